//! The steering table of an address: which socket gets the packets of which slice.
//!
//! The sockets that share an address form a group in the kernel, numbered from 0 in the order in which they came; when
//! one leaves, the last takes its number. A classic BPF program picks the number for each packet. It is an
//! optimisation: whoever gets a packet of another's slice passes it on.

use super::control;
use super::slice::{SLICE_COUNT, Slice};

/// For each slice the number of its owner's socket, as far as known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Table {
    positions: [Option<u8>; SLICE_COUNT],
}

/// Instructions of the largest program: two for each slice and the fixed ones.
const PROGRAM_INSTRUCTIONS_MAX: usize = 2 * SLICE_COUNT + FIXED_INSTRUCTIONS;
const FIXED_INSTRUCTIONS: usize = 7;
/// A number that no socket has: the kernel then chooses by the hash of addresses and ports.
const NO_POSITION: u32 = 0xffff;

impl Table {
    pub(super) const EMPTY: Table = Table {
        positions: [None; SLICE_COUNT],
    };

    pub(super) fn position(&self, slice: Slice) -> Option<u8> {
        self.positions[slice.index()]
    }

    /// Note where `slice` sits. Whoever was thought to sit there does not.
    pub(super) fn set(&mut self, slice: Slice, position: u8) {
        for other in &mut self.positions {
            if *other == Some(position) {
                *other = None;
            }
        }
        self.positions[slice.index()] = Some(position);
    }

    pub(super) fn forget(&mut self, slice: Slice) {
        self.positions[slice.index()] = None;
    }

    /// The program that steers by this table. Control packets for slice 0 name the position themselves, so that one
    /// can ask a socket by its position who it is.
    pub(super) fn write_program<'a>(&self, program: &'a mut Program) -> &'a [libc::sock_filter] {
        let mut writer = Writer { program, length: 0 };
        writer.push(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 5);
        for (slice, position) in self.positions.iter().enumerate() {
            if let Some(position) = position {
                writer.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 1, slice as u32);
                writer.push(libc::BPF_RET | libc::BPF_K, 0, 0, (*position).into());
            }
        }
        writer.push(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, 4, 0);
        writer.push(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 0, 0, 0);
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
        writer.push(libc::BPF_RET | libc::BPF_K, 0, 0, NO_POSITION);
        let length = writer.length;
        &program.0[..length]
    }
}

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
        table.forget(slice(2));
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
    }
}
