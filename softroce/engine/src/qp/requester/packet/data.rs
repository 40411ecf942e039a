//! The headers of one packet of a SEND or WRITE.
#![forbid(unsafe_code)]

use roce_wire::{Headers, ICRC_LEN, Ieth, ImmDt, Opcode, RKey, Reth, Transport, XrcEth, pad_len};
use verbs_api::SendFlags;

use crate::qp::Link;
use crate::qp::operation::{Operation, SendTail};
use crate::qp::send_queue::SendWqe;

/// Of requests that stay here: reserved, so that every responder would refuse it.
const NEVER_SENT: Opcode = Opcode::new(0x15);

/// Where a packet stands in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    First,
    Middle,
    Last,
    Only,
}

impl Place {
    fn of(is_first: bool, is_last: bool) -> Place {
        match (is_first, is_last) {
            (true, true) => Place::Only,
            (true, false) => Place::First,
            (false, true) => Place::Last,
            (false, false) => Place::Middle,
        }
    }

    fn ends_message(self) -> bool {
        matches!(self, Place::Last | Place::Only)
    }
}

/// A packet of a SEND or WRITE, before its payload is copied in.
pub(in crate::qp) struct DataPacket {
    pub(in crate::qp) headers: Headers,
    /// Where in the message its payload begins, and how long it is.
    pub(in crate::qp) offset: u64,
    pub(in crate::qp) payload_len: usize,
}

impl DataPacket {
    pub(in crate::qp) fn len(&self) -> usize {
        self.headers.len() + self.payload_len + usize::from(self.headers.bth.pad) + ICRC_LEN
    }
}

/// The packet at `index` of a SEND or WRITE; AckReq is set on the last one.
pub(in crate::qp) fn data_packet(transport: Transport, link: &Link, wqe: &SendWqe, index: u32) -> DataPacket {
    let offset = u64::from(index) * u64::from(link.mtu);
    let payload_len = (u64::from(wqe.length) - offset).min(u64::from(link.mtu)) as usize;
    let is_last = offset + payload_len as u64 == u64::from(wqe.length);
    let place = Place::of(index == 0, is_last);
    let mut bth = link.bth(opcode(&wqe.op, place).of(transport), roce_wire::Psn::new(0));
    bth.pad = pad_len(payload_len);
    bth.ack_request = place.ends_message();
    let mut headers = Headers::new(bth);
    headers.xrceth = xrceth(wqe);
    match wqe.op {
        Operation::Send {
            tail: SendTail::Immediate(imm),
        } if is_last => {
            headers.immediate = Some(ImmDt(imm.to_be_bytes()));
        }
        Operation::Send {
            tail: SendTail::Invalidate(rkey),
        } if is_last => {
            headers.invalidate = Some(Ieth(RKey(rkey.0)));
        }
        Operation::Write { remote, imm } => {
            headers.reth = Some(Reth {
                va: remote.addr,
                rkey: RKey(remote.rkey.0),
                dma_length: wqe.length,
            });
            headers.immediate = imm.filter(|_| is_last).map(|imm| ImmDt(imm.to_be_bytes()));
        }
        Operation::Send { .. }
        | Operation::Read { .. }
        | Operation::CompareSwap { .. }
        | Operation::FetchAdd { .. }
        | Operation::AtomicWrite { .. }
        | Operation::Flush { .. }
        | Operation::LocalInvalidate { .. }
        | Operation::Bind(_) => {}
    }
    // A solicited event belongs to messages that end in a receive completion.
    let completes_receive = match wqe.op {
        Operation::Send { .. } => true,
        Operation::Write { imm, .. } => imm.is_some(),
        Operation::Read { .. }
        | Operation::CompareSwap { .. }
        | Operation::FetchAdd { .. }
        | Operation::AtomicWrite { .. }
        | Operation::Flush { .. }
        | Operation::LocalInvalidate { .. }
        | Operation::Bind(_) => false,
    };
    headers.bth.solicited = is_last && completes_receive && wqe.flags.contains(SendFlags::SOLICITED);
    DataPacket {
        headers,
        offset,
        payload_len,
    }
}

/// XRC alone sends it, with every request packet.
pub(super) fn xrceth(wqe: &SendWqe) -> Option<XrcEth> {
    wqe.srq.map(|srq| XrcEth { srq })
}

fn opcode(op: &Operation, place: Place) -> Opcode {
    use Place::{First, Last, Middle, Only};
    match (op, place) {
        (Operation::Send { .. }, First) => Opcode::RC_SEND_FIRST,
        (Operation::Send { .. }, Middle) => Opcode::RC_SEND_MIDDLE,
        (
            Operation::Send {
                tail: SendTail::Plain,
            },
            Last,
        ) => Opcode::RC_SEND_LAST,
        (
            Operation::Send {
                tail: SendTail::Plain,
            },
            Only,
        ) => Opcode::RC_SEND_ONLY,
        (
            Operation::Send {
                tail: SendTail::Immediate(_),
            },
            Last,
        ) => Opcode::RC_SEND_LAST_WITH_IMMEDIATE,
        (
            Operation::Send {
                tail: SendTail::Immediate(_),
            },
            Only,
        ) => Opcode::RC_SEND_ONLY_WITH_IMMEDIATE,
        (
            Operation::Send {
                tail: SendTail::Invalidate(_),
            },
            Last,
        ) => Opcode::RC_SEND_LAST_WITH_INVALIDATE,
        (
            Operation::Send {
                tail: SendTail::Invalidate(_),
            },
            Only,
        ) => Opcode::RC_SEND_ONLY_WITH_INVALIDATE,
        (Operation::Write { .. }, First) => Opcode::RC_WRITE_FIRST,
        (Operation::Write { .. }, Middle) => Opcode::RC_WRITE_MIDDLE,
        (Operation::Write { imm: None, .. }, Last) => Opcode::RC_WRITE_LAST,
        (Operation::Write { imm: None, .. }, Only) => Opcode::RC_WRITE_ONLY,
        (Operation::Write { imm: Some(_), .. }, Last) => Opcode::RC_WRITE_LAST_WITH_IMMEDIATE,
        (Operation::Write { imm: Some(_), .. }, Only) => Opcode::RC_WRITE_ONLY_WITH_IMMEDIATE,
        (Operation::Read { .. }, _) => Opcode::RC_READ_REQUEST,
        (Operation::CompareSwap { .. }, _) => Opcode::RC_COMPARE_SWAP,
        (Operation::FetchAdd { .. }, _) => Opcode::RC_FETCH_ADD,
        (Operation::AtomicWrite { .. }, _) => Opcode::RC_ATOMIC_WRITE,
        (Operation::Flush { .. }, _) => Opcode::RC_FLUSH,
        (Operation::LocalInvalidate { .. } | Operation::Bind(_), _) => NEVER_SENT,
    }
}

/// Write headers and zero padding; the room for the payload comes back.
pub(in crate::qp) fn emit<'a>(headers: &Headers, out: &'a mut [u8], payload_len: usize) -> &'a mut [u8] {
    let headers_len = headers.emit(out).expect("the packet was sized for these headers");
    let body = &mut out[headers_len..];
    let pad = usize::from(headers.bth.pad);
    body[payload_len..payload_len + pad].fill(0);
    &mut body[..payload_len]
}
