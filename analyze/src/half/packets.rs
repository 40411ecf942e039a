//! What a single request packet shows: lengths, padding, flags, and its place in its message.

use roce_wire::{OpcodeInfo, Operation, PayloadRule, Position, Psn};

use super::{Half, Message, Open, Sink, packet, sequence};
use crate::reading::{Service, Sighting};
use crate::report::End;
use crate::survey::is_path_mtu;

/// The most bytes of a message (IBA C9-94).
const MESSAGE_BYTES_MAX: u32 = 1 << 31;
const PATH_MTU_MAX: usize = 4096;

/// Checks that need nothing but the packet and the path MTU, of a request or an answer.
pub(super) fn check(
    sighting: &Sighting<'_>,
    info: &OpcodeInfo,
    mtu: Option<usize>,
    by: End,
    sink: &mut Sink<'_>,
) {
    let bth = sighting.headers.bth;
    let (len, frame) = (sighting.payload.len(), [sighting.number]);
    let name = bth.opcode;
    check_length(sighting, info, mtu, by, sink);
    let is_inner = matches!(info.position, Position::First | Position::Middle);
    if !(len + usize::from(bth.pad)).is_multiple_of(4) || (is_inner && bth.pad != 0) {
        let seen = format!("{name} with {len} bytes and a pad count of {}", bth.pad);
        let expected = "a payload padded to a multiple of four, and no padding within a message";
        sink.findings.add(packet("LENGTH-5"), by, &frame, expected, seen);
    } else if sighting.pad.iter().any(|byte| *byte != 0) {
        let seen = format!("{name} with padding {:02x?}", sighting.pad);
        sink.findings
            .add(packet("WIRE-6"), by, &frame, "padding of zeros", seen);
    }
    if sighting.has_reserved_bits {
        let seen = format!("{name} with reserved bits set");
        sink.findings.add(
            packet("WIRE-5"),
            by,
            &frame,
            "zero in reserved bits of the BTH",
            seen,
        );
    }
    let may_solicit =
        info.position.ends_message() && (info.operation == Operation::Send || info.headers.immediate);
    if bth.solicited && !may_solicit {
        let seen = format!("{name} with the solicited bit");
        let expected = "the solicited bit on the last packet of a SEND or WRITE with immediate only";
        sink.findings.add(packet("WIRE-4"), by, &frame, expected, seen);
    }
    if sighting.flow.service == Service::Uc && bth.ack_request {
        let seen = format!("{name} with AckReq");
        sink.findings.add(
            packet("UC-2"),
            by,
            &frame,
            "no AckReq on an unreliable connection",
            seen,
        );
    }
    if let Some(reth) = sighting.headers.reth
        && reth.dma_length > MESSAGE_BYTES_MAX
    {
        let seen = format!("{name} announces {} bytes", reth.dma_length);
        sink.findings
            .add(packet("LENGTH-4"), by, &frame, "at most 2^31 bytes", seen);
    }
}

/// The payload against opcode and path MTU.
fn check_length(
    sighting: &Sighting<'_>,
    info: &OpcodeInfo,
    mtu: Option<usize>,
    by: End,
    sink: &mut Sink<'_>,
) {
    let (len, frame) = (sighting.payload.len(), [sighting.number]);
    let name = sighting.headers.bth.opcode;
    if !info.payload.allows(
        len,
        mtu.unwrap_or(if info.payload == PayloadRule::FullMtu {
            len
        } else {
            PATH_MTU_MAX
        }),
    ) || (info.payload == PayloadRule::FullMtu && !is_path_mtu(len))
    {
        let expected = match (info.payload, mtu) {
            (PayloadRule::Empty, _) => "no payload".to_owned(),
            (PayloadRule::Exactly(bytes), _) => format!("{bytes} bytes of payload"),
            (PayloadRule::FullMtu, Some(mtu)) => format!("{mtu} bytes of payload, the path MTU"),
            (PayloadRule::FullMtu, None) => "a payload of 256, 512, 1024, 2048 or 4096 bytes".to_owned(),
            (PayloadRule::OneToMtu, mtu) => {
                format!("1 to {} bytes of payload", mtu.unwrap_or(PATH_MTU_MAX))
            }
            (PayloadRule::UpToMtu, mtu) => {
                format!("at most {} bytes of payload", mtu.unwrap_or(PATH_MTU_MAX))
            }
        };
        let seen = format!("{name} with {len} bytes");
        sink.findings.add(packet("LENGTH-2"), by, &frame, &expected, seen);
    }
}

impl Half {
    /// A packet that follows the row without a hole: does it fit the message that has begun?
    pub(super) fn continue_message(
        &mut self,
        sighting: &Sighting<'_>,
        info: &OpcodeInfo,
        sink: &mut Sink<'_>,
    ) {
        let name = sighting.headers.bth.opcode;
        let begins = info.position.starts_message();
        match self.message {
            Message::Open(open) if begins || open.operation != info.operation => {
                let seen = format!("{name} within a {:?}", open.operation);
                let expected = "only its own Middle and Last packets after the First of a message";
                let frames = [open.frame, sighting.number];
                sink.findings
                    .add(sequence("OPSEQ-1"), self.requester, &frames, expected, seen);
            }
            Message::None if !begins => {
                let seen = format!("{name} without a First");
                let expected = "a First or Only packet at the beginning of a message";
                let frames = [sighting.number];
                sink.findings
                    .add(sequence("OPSEQ-1"), self.requester, &frames, expected, seen);
            }
            Message::Open(_) | Message::None | Message::Unknown => {}
        }
        self.message = self.message_after(sighting, info, sink);
    }

    fn message_after(&self, sighting: &Sighting<'_>, info: &OpcodeInfo, sink: &mut Sink<'_>) -> Message {
        let payload = sighting.payload.len() as u64;
        let open = match (self.message, info.position.starts_message()) {
            (_, true) => Some(Open {
                operation: info.operation,
                dma_length: sighting.headers.reth.map_or(0, |reth| reth.dma_length),
                so_far: payload,
                frame: sighting.number,
            }),
            (Message::Open(open), false) => Some(Open {
                so_far: open.so_far + payload,
                ..open
            }),
            (Message::None | Message::Unknown, false) => None,
        };
        let carries = matches!(info.operation, Operation::Write | Operation::AtomicWrite);
        match open {
            Some(open) if !info.position.ends_message() => Message::Open(open),
            Some(open) => {
                if carries && open.so_far != u64::from(open.dma_length) {
                    let expected = "the packets of a WRITE to add up to its announced length";
                    let seen = format!("{} bytes of {}", open.so_far, open.dma_length);
                    let frames = [open.frame, sighting.number];
                    sink.findings
                        .add(sequence("LENGTH-3"), self.requester, &frames, expected, seen);
                }
                Message::None
            }
            None if info.position.ends_message() => Message::None,
            None => Message::Unknown,
        }
    }

    /// The PSNs that a request takes.
    pub(super) fn psns_of(&self, info: &OpcodeInfo, dma_length: u32) -> u32 {
        match (info.operation, self.mtu) {
            (Operation::ReadRequest, Some(mtu)) if dma_length <= MESSAGE_BYTES_MAX => {
                crate::survey::packets(dma_length, mtu)
            }
            // Without a First anywhere every answer was of one packet.
            _ => 1,
        }
    }
}

/// How the row begins when the first packet is seen: a message that has begun before is not known.
pub(super) fn message_before(info: &OpcodeInfo) -> Message {
    if info.position.starts_message() {
        Message::None
    } else {
        Message::Unknown
    }
}

/// `psn` in words.
pub(super) fn shown(psn: Psn) -> String {
    format!("PSN {psn}")
}
