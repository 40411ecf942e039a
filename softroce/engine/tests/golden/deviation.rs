//! Where the kernel departs from the specification, and the engine does not follow.
//!
//! In fields that mean nothing there are three more, in all cases; [`super::compare`] knows them:
//! - `MigReq`: a queue pair without path migration is in the state "migrated" and says so in every packet
//!   (IBA 17.2.8). The kernel's driver never does.
//! - `byte_len` of a completed SEND or WRITE: it is defined for what was received, READ or fetched. The kernel's driver
//!   gives the length of the message, the engine 0.
//! - Flags of completions: the kernel's driver reports a GRH on reliable connections, which have none in the buffer, and
//!   an immediate in the sender's completion, which has no such field.

use std::fmt;

use verbs_api::WcStatus;

use super::capture::Case;

/// What differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// The syndrome of the answer.
    Syndrome { kernel: u8, engine: u8 },
    /// The status of the receive request.
    ReceiveStatus { kernel: WcStatus, engine: WcStatus },
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            What::Syndrome { kernel, engine } => {
                write!(f, "syndrome {kernel:#04x} of the kernel's, {engine:#04x} here")
            }
            What::ReceiveStatus { kernel, engine } => {
                write!(f, "{kernel:?} of the kernel's, {engine:?} here")
            }
        }
    }
}

/// One deviation.
pub struct Deviation {
    pub mtu_bytes: usize,
    pub case: &'static str,
    pub what: What,
    pub why: &'static str,
}

const TOO_SHORT: &str = "a message longer than the receive request is an invalid request (0x61) that ends the receive \
    request with a length error; the kernel's driver calls it a remote operational error (0x63) and an operation error";

/// The cases whose message does not fit, three of them because the captures' receives have 8192 bytes.
const TOO_SHORT_CASES: [(usize, &str); 5] = [
    (1024, "rc_nak_recv_too_short"),
    (4096, "rc_nak_recv_too_short"),
    (4096, "rc_send_12287"),
    (4096, "rc_send_12288"),
    (4096, "rc_send_imm_8197"),
];

/// All of them.
pub fn all() -> impl Iterator<Item = Deviation> {
    TOO_SHORT_CASES.into_iter().flat_map(|(mtu_bytes, case)| {
        [
            What::Syndrome {
                kernel: 0x63,
                engine: 0x61,
            },
            What::ReceiveStatus {
                kernel: WcStatus::LocQpOpErr,
                engine: WcStatus::LocLenErr,
            },
        ]
        .map(|what| Deviation {
            mtu_bytes,
            case,
            what,
            why: TOO_SHORT,
        })
    })
}

/// Those of a case.
pub fn of(case: &Case) -> impl Iterator<Item = Deviation> {
    all().filter(|deviation| deviation.mtu_bytes == case.mtu_bytes && deviation.case == case.name)
}
