//! Packets that nobody sent.

use roce_wire::icrc::{self, Flow};
use roce_wire::{Aeth, Bth, CreditCode, Headers, ICRC_LEN, Msn, Opcode, Packet, Qpn, ROCE_V2_PORT, Syndrome};

use crate::{Forgery, Way};

/// Bytes of the longest forged packet: a CNP.
const FORGED_BYTES_MAX: usize = roce_wire::BTH_LEN + CNP_PAYLOAD.len() + ICRC_LEN;
const CNP_PAYLOAD: [u8; 16] = [0; 16];

/// Compute the ICRC anew, for the IPv4 identification 0. Bytes that are too few or too many to be a packet stay.
pub(crate) fn seal(way: &Way, bytes: &mut [u8]) {
    let is_packet = roce_wire::BTH_LEN + ICRC_LEN <= bytes.len() && bytes.len() <= usize::from(u16::MAX) - 28;
    if is_packet {
        icrc::seal(&flow(way), 0, bytes);
    }
}

/// What the ICRC covers of a way.
pub(crate) fn flow(way: &Way) -> Flow {
    Flow {
        src: way.src,
        dst: way.dst,
        source_port: way.source_port,
        dest_port: ROCE_V2_PORT,
    }
}

/// A packet for the queue pair of `hit`, or `qpn`, sealed. `None` for a stale duplicate, which is no new packet.
pub(crate) fn forge(forgery: Forgery, way: &Way, hit: &Headers, qpn: Option<u32>) -> Option<Vec<u8>> {
    let dest_qp = qpn.and_then(Qpn::new).unwrap_or(hit.bth.dest_qp);
    let transport = hit.bth.opcode.transport();
    let msn = hit.aeth.map_or(Msn::new(0), |aeth| aeth.msn);
    let acknowledge = |ahead: u32, syndrome| {
        let opcode = Opcode::RC_ACKNOWLEDGE.of(transport);
        let mut headers = Headers::new(Bth::new(opcode, dest_qp, hit.bth.psn + ahead));
        headers.aeth = Some(Aeth { syndrome, msn });
        headers
    };
    let (headers, payload): (Headers, &[u8]) = match forgery {
        Forgery::Nak(code) => (acknowledge(0, Syndrome::Nak(code)), &[]),
        Forgery::Rnr(timer) => (acknowledge(0, Syndrome::RnrNak(timer)), &[]),
        Forgery::GhostAck { ahead } => (acknowledge(ahead, Syndrome::Ack(CreditCode::UNLIMITED)), &[]),
        Forgery::Cnp => {
            let mut bth = Bth::new(Opcode::CNP, dest_qp, roce_wire::Psn::new(0));
            bth.becn = true;
            (Headers::new(bth), &CNP_PAYLOAD)
        }
        Forgery::StaleDuplicate { .. } => return None,
    };
    let packet = Packet {
        headers,
        payload,
        pad: &[],
        icrc: [0; ICRC_LEN],
    };
    let mut bytes = vec![0; FORGED_BYTES_MAX];
    // An acknowledgement of a service that has none has no AETH, and is a BTH alone.
    let len = packet.emit(&mut bytes).ok()?;
    bytes.truncate(len);
    seal(way, &mut bytes);
    Some(bytes)
}
