//! What may differ between a packet of the engine's and the kernel's, and between their completions.

use roce_wire::frame::{Frame, parse_ethernet};
use roce_wire::ip::{Ip, Ipv4, Ipv6};
use roce_wire::udp::Udp;
use roce_wire::{Position, ROCE_V2_PORT, icrc, parse};
use serde_json::Value;
use std::net::IpAddr;
use verbs_api::{Wc, WcFlags, WcOpcode, WcStatus};

use super::capture::{Captured, Case, Side};
use super::deviation::{self, What};
use super::end::Built;
use super::script::IMM_HOST_ORDER;

const MIG_REQ_BYTE: usize = 1;
const MIG_REQ_BIT: u8 = 0x40;
const ACK_REQ_BYTE: usize = 8;
const ACK_REQ_BIT: u8 = 0x80;
const SYNDROME_BYTE: usize = 12;

/// What of the allowed differences there was.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    pub ack_requests: usize,
    pub deviations: usize,
}

/// Compare a packet with the captured one: whole IP packets, byte for byte. Allowed to differ are MigReq (1 here, 0
/// there), AckReq of a packet that is not a message's last one, the IPv4 identification, a deviation that is listed for
/// the case, and the ICRC as far as it follows. Queue pair numbers, keys, addresses and ports are the same in both.
pub fn packets(case: &Case, built: &Built, captured: &Captured) -> Differences {
    let theirs = captured.frame();
    let context = format!("{} {}\nkernel: {}", case.mtu_bytes, case.name, theirs);
    let mut bytes = built.bytes.clone();
    let mut differences = Differences::default();

    assert_eq!(bytes[MIG_REQ_BYTE] & MIG_REQ_BIT, MIG_REQ_BIT, "{context}");
    assert_eq!(theirs.payload[MIG_REQ_BYTE] & MIG_REQ_BIT, 0, "{context}");
    bytes[MIG_REQ_BYTE] &= !MIG_REQ_BIT;

    let info = parse(&bytes).unwrap().headers.bth.opcode.info().unwrap();
    if matches!(info.position, Position::First | Position::Middle) && info.is_request() {
        differences.ack_requests +=
            usize::from((bytes[ACK_REQ_BYTE] ^ theirs.payload[ACK_REQ_BYTE]) & ACK_REQ_BIT != 0);
        bytes[ACK_REQ_BYTE] &= !ACK_REQ_BIT;
        bytes[ACK_REQ_BYTE] |= theirs.payload[ACK_REQ_BYTE] & ACK_REQ_BIT;
    }
    for deviation in deviation::of(case) {
        if let (What::Syndrome { kernel, engine }, Side::Server) = (deviation.what, captured.from) {
            assert_eq!(bytes[SYNDROME_BYTE], engine, "{context}");
            assert_eq!(theirs.payload[SYNDROME_BYTE], kernel, "{context}");
            bytes[SYNDROME_BYTE] = kernel;
            differences.deviations += 1;
        }
    }

    let ours = frame_around(built, &bytes, &theirs);
    let theirs = emitted(&theirs);
    let read_again = parse_ethernet(&ours).unwrap();
    assert_eq!(ours, theirs, "{context}\nengine: {read_again}");
    differences
}

/// The engine's packet as it would leave, but for the identification, which is the captured one's.
fn frame_around(built: &Built, payload: &[u8], theirs: &Frame<'_>) -> Vec<u8> {
    let path = built.packet.path;
    let mut sealed = payload.to_vec();
    let (ip, ip_id) = match (path.src, path.dst) {
        (IpAddr::V4(src), IpAddr::V4(dst)) => {
            let Ip::V4(header) = theirs.ip else {
                panic!("the capture is of another family")
            };
            let ip = Ipv4 {
                tos: path.traffic_class,
                identification: header.identification,
                dont_fragment: true,
                ttl: path.hop_limit,
                src,
                dst,
            };
            (Ip::V4(ip), header.identification)
        }
        (IpAddr::V6(src), IpAddr::V6(dst)) => {
            let ip = Ipv6 {
                traffic_class: path.traffic_class,
                flow_label: 0,
                hop_limit: path.hop_limit,
                src,
                dst,
            };
            (Ip::V6(ip), 0)
        }
        (src, dst) => panic!("from {src} to {dst}"),
    };
    let flow = icrc::Flow {
        src: path.src,
        dst: path.dst,
        source_port: path.source_port,
        dest_port: ROCE_V2_PORT,
    };
    icrc::seal(&flow, ip_id, &mut sealed);
    emitted(&Frame {
        ethernet: theirs.ethernet,
        ip,
        udp: Udp {
            source_port: path.source_port,
            dest_port: ROCE_V2_PORT,
            checksum: 0,
        },
        payload: &sealed,
        trailer: &[],
    })
}

fn emitted(frame: &Frame<'_>) -> Vec<u8> {
    let mut out = vec![0; frame.len()];
    frame.emit(&mut out).unwrap();
    out
}

/// Compare all completions of a side with those of the capture. How many deviations there were.
pub fn completions(case: &Case, side: Side, ours: &[Wc]) -> usize {
    let theirs = case.completions(side);
    let context = format!("{} {} {side:?}: {ours:?}", case.mtu_bytes, case.name);
    assert_eq!(ours.len(), theirs.len(), "{context}");
    let deviations = ours.iter().zip(theirs).map(|(ours, theirs)| {
        let kernel_status = status(theirs);
        let listed = deviation::of(case).find(|deviation| {
            deviation.what
                == What::ReceiveStatus {
                    kernel: kernel_status,
                    engine: ours.status,
                }
        });
        if side == Side::Server && listed.is_some() {
            return 1;
        }
        assert_eq!(ours.status, kernel_status, "{context}");
        if ours.status == WcStatus::Success {
            success(ours, theirs, &context);
        }
        0
    });
    deviations.sum()
}

/// Fields of a successful completion; those of another mean nothing.
fn success(ours: &Wc, theirs: &Value, context: &str) {
    let number = |key: &str| u32::try_from(theirs[key].as_u64().unwrap()).unwrap();
    assert_eq!(ours.opcode.code(), number("opcode"), "{context}");
    let has_byte_len = !matches!(ours.opcode, WcOpcode::Send | WcOpcode::RdmaWrite);
    let byte_len = if has_byte_len { number("byte_len") } else { 0 };
    assert_eq!(ours.byte_len, byte_len, "{context}");
    let is_receive = matches!(ours.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
    let their_flags = WcFlags::from_bits(number("flags")).unwrap();
    let flags = if is_receive {
        their_flags - WcFlags::GRH
    } else {
        WcFlags::empty()
    };
    assert_eq!(ours.flags, flags, "{context}");
    if flags.contains(WcFlags::WITH_IMM) {
        assert_eq!(number("imm"), IMM_HOST_ORDER, "{context}");
        assert_eq!(ours.imm.to_be_bytes(), number("imm").to_le_bytes(), "{context}");
    }
}

fn status(theirs: &Value) -> WcStatus {
    match theirs["status"].as_str().unwrap() {
        "IBV_WC_SUCCESS" => WcStatus::Success,
        "IBV_WC_REM_ACCESS_ERR" => WcStatus::RemAccessErr,
        "IBV_WC_REM_INV_REQ_ERR" => WcStatus::RemInvReqErr,
        "IBV_WC_REM_OP_ERR" => WcStatus::RemOpErr,
        "IBV_WC_RNR_RETRY_EXC_ERR" => WcStatus::RnrRetryExcErr,
        "IBV_WC_LOC_QP_OP_ERR" => WcStatus::LocQpOpErr,
        other => panic!("status {other}"),
    }
}
