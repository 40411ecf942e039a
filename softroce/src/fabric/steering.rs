//! The steering table of an address: which socket gets the packets of which slice.
//!
//! The sockets that share an address form a group in the kernel, numbered from 0 in the order in which they came; when
//! one leaves, the last takes its number. A classic BPF program picks the number for each packet. It is an
//! optimisation: whoever gets a packet of another's slice passes it on.

use roce_wire::cm::{self, MessageKind};
use roce_wire::{Opcode, Qpn};

use super::control;
use super::slice::{MAD_AT, SLICE_COUNT, Slice, SliceSet};

/// For each slice the number of its owner's socket, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    positions: [Option<u8>; SLICE_COUNT],
    /// The same from the other side. Whoever joins hears of as many tables as there are members.
    owners: [Option<Slice>; SLICE_COUNT],
    /// Members that do not run, as far as known: they get nothing that others could have.
    asleep: SliceSet,
}

/// Instructions of the largest program: four for each slice and the fixed ones.
const PROGRAM_INSTRUCTIONS_MAX: usize = 4 * SLICE_COUNT + FIXED_INSTRUCTIONS;
const FIXED_INSTRUCTIONS: usize = 25;
/// A number that no socket has: the kernel then chooses by the hash of addresses and ports.
const NO_POSITION: u32 = 0xffff;

impl Table {
    pub(super) const EMPTY: Table = Table {
        positions: [None; SLICE_COUNT],
        owners: [None; SLICE_COUNT],
        asleep: SliceSet::EMPTY,
    };

    pub(super) fn position(&self, slice: Slice) -> Option<u8> {
        self.positions[slice.index()]
    }

    /// Note where `slice` sits. Whoever was thought to sit there does not.
    pub(super) fn set(&mut self, slice: Slice, position: u8) {
        self.forget(slice);
        if let Some(other) = self.owners[usize::from(position)].replace(slice) {
            self.positions[other.index()] = None;
        }
        self.positions[slice.index()] = Some(position);
    }

    pub(super) fn asleep(&self) -> &SliceSet {
        &self.asleep
    }

    pub(super) fn set_asleep(&mut self, asleep: SliceSet) {
        self.asleep = asleep;
    }

    /// The positions of known members.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Slice, u8)> {
        let entry = |slice| self.position(slice).map(|position| (slice, position));
        (1..=u8::MAX).filter_map(Slice::new).filter_map(entry)
    }

    /// The last position known.
    pub(super) fn last(&self) -> Option<u8> {
        self.positions.iter().flatten().max().copied()
    }

    pub(super) fn forget(&mut self, slice: Slice) {
        if let Some(position) = self.positions[slice.index()].take() {
            self.owners[usize::from(position)] = None;
        }
    }

    /// Messages of RDMA CM about a connection go to the slice that its number names; requests to anybody who runs, another
    /// one each time, so that one who has just been stopped does not swallow all of them. Leaves the slice in the
    /// accumulator and goes to the table, or falls through.
    fn write_management(&self, writer: &mut Writer<'_>) {
        let jump_if = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        let jump = libc::BPF_JMP | libc::BPF_JA;
        let load_half = libc::BPF_LD | libc::BPF_H | libc::BPF_ABS;
        let load_word = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
        let at = |offset: usize| (MAD_AT + offset) as u32;
        let draw = self.draw_instructions();
        writer.push(LOAD_BYTE, 0, 0, 0);
        writer.push(jump_if, 1, 0, Opcode::UD_SEND_ONLY.value().into());
        writer.push(jump, 0, 0, 12 + draw);
        writer.push(load_word, 0, 0, 4);
        writer.push(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, 0x00ff_ffff);
        writer.push(jump_if, 1, 0, Qpn::GSI.value());
        writer.push(jump, 0, 0, 8 + draw);
        writer.push(load_half, 0, 0, at(cm::ATTRIBUTE_AT));
        writer.push(jump_if, 4, 0, MessageKind::SidrRep.attribute().into());
        writer.push(jump_if, 5, 0, MessageKind::Req.attribute().into());
        writer.push(jump_if, 4, 0, MessageKind::SidrReq.attribute().into());
        writer.push(LOAD_BYTE, 0, 0, at(cm::SECOND_ID_AT));
        writer.push(jump, 0, 0, 3 + draw);
        writer.push(LOAD_BYTE, 0, 0, at(cm::FIRST_ID_AT));
        writer.push(jump, 0, 0, 1 + draw);
        self.write_draw(writer);
    }

    /// Positions of members that run; none when nobody is known to be asleep: then all take part, also who is not in the
    /// table.
    fn awake(&self) -> impl Iterator<Item = u8> {
        let all_run = self.asleep.is_empty();
        let runs = move |(slice, position)| (!all_run && !self.asleep.contains(slice)).then_some(position);
        self.entries().filter_map(runs)
    }

    /// Instructions of [`write_draw`](Table::write_draw).
    fn draw_instructions(&self) -> u32 {
        3 + 2 * self.awake().count().saturating_sub(1) as u32
    }

    fn write_draw(&self, writer: &mut Writer<'_>) {
        let members = self.last().map_or(1, |last| u32::from(last) + 1);
        let awake = self.awake().count() as u32;
        let of = if awake == 0 { members } else { awake };
        writer.push(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, RANDOM);
        writer.push(BPF_ALU_MOD, 0, 0, of);
        for (number, position) in (0..).zip(self.awake()) {
            // The last one needs no question.
            if number + 1 < awake {
                writer.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, number);
            }
            writer.push(libc::BPF_RET | libc::BPF_K, 0, 0, position.into());
        }
        if awake == 0 {
            writer.push(libc::BPF_RET | BPF_A, 0, 0, 0);
        }
    }

    /// The program that steers by this table. Control packets for slice 0 name the position themselves, so that one
    /// can ask a socket by its position who it is.
    pub(super) fn write_program<'a>(&self, program: &'a mut Program) -> &'a [libc::sock_filter] {
        let mut writer = Writer { program, length: 0 };
        self.write_management(&mut writer);
        writer.push(LOAD_BYTE, 0, 0, 5);
        for (slice, position) in self.positions.iter().enumerate() {
            if let Some(position) = position {
                writer.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, slice as u32);
                writer.push(libc::BPF_RET | libc::BPF_K, 0, 0, (*position).into());
            }
        }
        writer.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 4, 0);
        writer.push(LOAD_BYTE, 0, 0, 0);
        writer.push(
            libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
            0,
            2,
            control::OPCODE.into(),
        );
        writer.push(
            libc::BPF_LD | libc::BPF_B | libc::BPF_ABS,
            0,
            0,
            control::POSITION_AT as u32,
        );
        writer.push(libc::BPF_RET | BPF_A, 0, 0, 0);
        let anybody = self.awake().next().map_or(NO_POSITION, u32::from);
        writer.push(libc::BPF_RET | libc::BPF_K, 0, 0, anybody);
        let length = writer.length;
        &program.0[..length]
    }
}

const LOAD_BYTE: u32 = libc::BPF_LD | libc::BPF_B | libc::BPF_ABS;
/// Where a load finds a random number (`SKF_AD_OFF + SKF_AD_RANDOM`).
const RANDOM: u32 = (-0x1000_i32 + 56) as u32;
/// "The remainder of a division by a constant".
const BPF_ALU_MOD: u32 = 0x94;
/// "Return the accumulator"; `libc` has it for some targets only.
const BPF_A: u32 = 0x10;

/// Memory for a steering program.
pub(super) struct Program([libc::sock_filter; PROGRAM_INSTRUCTIONS_MAX]);

impl Program {
    pub(super) fn new() -> Self {
        Program(
            [libc::sock_filter {
                code: 0,
                jt: 0,
                jf: 0,
                k: 0,
            }; PROGRAM_INSTRUCTIONS_MAX],
        )
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

struct Writer<'a> {
    program: &'a mut Program,
    length: usize,
}

impl Writer<'_> {
    fn push(&mut self, code: u32, jt: u8, jf: u8, k: u32) {
        self.program.0[self.length] = libc::sock_filter {
            code: code as u16,
            jt,
            jf,
            k,
        };
        self.length += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the few instructions that the programs use, as the kernel does: a load outside ends with 0.
    fn run(program: &[libc::sock_filter], packet: &[u8]) -> u32 {
        let (mut at, mut accumulator) = (0, 0u32);
        loop {
            let step = program[at];
            at += 1;
            match u32::from(step.code) {
                0x30 => match packet.get(step.k as usize) {
                    Some(byte) => accumulator = (*byte).into(),
                    None => return 0,
                },
                0x28 => match packet.get(step.k as usize..step.k as usize + 2) {
                    Some(half) => accumulator = u32::from(half[0]) << 8 | u32::from(half[1]),
                    None => return 0,
                },
                0x20 if step.k == RANDOM => accumulator = 1_000_003,
                0x20 => match packet.get(step.k as usize..step.k as usize + 4) {
                    Some(word) => accumulator = u32::from_be_bytes(word.try_into().unwrap()),
                    None => return 0,
                },
                0x54 => accumulator &= step.k,
                0x94 => accumulator %= step.k,
                0x05 => at += step.k as usize,
                0x15 => at += usize::from(if accumulator == step.k { step.jt } else { step.jf }),
                0x06 => return step.k,
                0x16 => return accumulator,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    fn slice(number: u8) -> Slice {
        Slice::new(number).unwrap()
    }

    #[test]
    fn packets_go_to_the_socket_of_their_slice_and_others_to_the_hash() {
        let mut table = Table::EMPTY;
        table.set(slice(17), 0);
        table.set(slice(255), 3);
        let mut program = Program::new();
        let program = table.write_program(&mut program);
        let to = |slice: u8| {
            run(
                program,
                &[4, 0, 0xff, 0xff, 0, slice, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0],
            )
        };
        assert_eq!((to(17), to(255), to(18), to(0)), (0, 3, NO_POSITION, NO_POSITION));
        assert_eq!(run(program, &[4, 0]), 0);
    }

    #[test]
    fn messages_of_rdma_cm_go_to_the_slice_in_their_number_and_requests_to_anybody() {
        let mut table = Table::EMPTY;
        table.set(slice(17), 0);
        table.set(slice(255), 3);
        let mut program = Program::new();
        let program = table.write_program(&mut program);
        let to = |message: cm::Message| run(program, &packet_of(&message));
        let rep = |remote_comm_id| {
            to(cm::Message::Rep(cm::Rep {
                remote_comm_id,
                ..cm::Rep::default()
            }))
        };
        assert_eq!(
            (rep(17 << 24 | 5), rep(255 << 24), rep(9 << 24)),
            (0, 3, NO_POSITION)
        );
        assert_eq!(rep(0), NO_POSITION);
        let sidr = cm::SidrRep {
            request_id: 255 << 24 | 7,
            ..cm::SidrRep::default()
        };
        assert_eq!(to(cm::Message::SidrRep(sidr)), 3);
        assert_eq!(to(cm::Message::Req(cm::Req::default())), 1_000_003 % 4);
        assert_eq!(to(cm::Message::SidrReq(cm::SidrReq::default())), 1_000_003 % 4);
    }

    #[test]
    fn who_is_asleep_gets_what_is_its_own_and_nothing_else() {
        let mut table = Table::EMPTY;
        for (number, position) in [(17, 0), (18, 1), (19, 2), (255, 3)] {
            table.set(slice(number), position);
        }
        table.set_asleep([slice(17), slice(19)].into_iter().collect());
        let mut program = Program::new();
        let program = table.write_program(&mut program);
        let to = |slice: u8| {
            run(
                program,
                &[4, 0, 0xff, 0xff, 0, slice, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0],
            )
        };
        assert_eq!((to(17), to(19), to(255)), (0, 2, 3));
        assert_eq!((to(9), to(0)), (1, 1), "what has no known owner");
        // The second of the two that run: 1,000,003 is odd.
        assert_eq!(run(program, &request()), 3);
        table.set_asleep([slice(17), slice(18), slice(19)].into_iter().collect());
        let mut program = Program::new();
        assert_eq!(run(table.write_program(&mut program), &request()), 3);
        table.set_asleep(table.entries().map(|(slice, _)| slice).collect());
        let mut program = Program::new();
        let program = table.write_program(&mut program);
        assert_eq!(run(program, &request()), 1_000_003 % 4, "nobody runs: any");
    }

    fn request() -> Vec<u8> {
        packet_of(&cm::Message::Req(cm::Req::default()))
    }

    fn packet_of(message: &cm::Message) -> Vec<u8> {
        let mut packet = vec![0; MAD_AT];
        (packet[0], packet[7]) = (Opcode::UD_SEND_ONLY.value(), 1);
        packet.extend_from_slice(&message.to_mad(1));
        packet.extend_from_slice(&[0; 4]);
        packet
    }

    #[test]
    fn a_probe_reaches_the_position_that_it_names() {
        let mut program = Program::new();
        let program = Table::EMPTY.write_program(&mut program);
        for position in [0, 5, 254] {
            let probe = control::Packet::Probe {
                from: slice(3),
                nonce: 1,
                round: 2,
                position,
            };
            assert_eq!(run(program, &probe.to_bytes()), u32::from(position));
        }
    }

    #[test]
    fn a_position_has_one_owner() {
        let mut table = Table::EMPTY;
        table.set(slice(1), 0);
        table.set(slice(2), 0);
        assert_eq!(
            (table.position(slice(1)), table.position(slice(2))),
            (None, Some(0))
        );
        table.set(slice(2), 5);
        table.set(slice(3), 0);
        assert_eq!(
            (table.position(slice(2)), table.position(slice(3))),
            (Some(5), Some(0)),
            "an owner has one position"
        );
        table.forget(slice(2));
        table.forget(slice(3));
        assert_eq!(table, Table::EMPTY);
    }

    #[test]
    fn the_full_table_fits_a_program() {
        let mut table = Table::EMPTY;
        for number in 1..=255 {
            table.set(slice(number), number - 1);
        }
        let mut program = Program::new();
        let length = table.write_program(&mut program).len();
        assert_eq!(length, 255 * 2 + FIXED_INSTRUCTIONS);
        table.set_asleep([slice(1)].into_iter().collect());
        let program = table.write_program(&mut program);
        assert_eq!(program.len(), 255 * 2 + 253 * 2 + FIXED_INSTRUCTIONS);
        assert_eq!(run(program, &request()), 1 + 1_000_003 % 254);
    }
}
