//! Why work on a queue pair failed, in more words than a completion status has.
//!
//! Noted where an error is made, so it costs nothing where there is none. The driver takes them with
//! [`Engine::poll_failure`](crate::Engine::poll_failure); the oldest are forgotten when it does not.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;
use std::net::IpAddr;

use verbs_api::{QpType, RemoteAddr, WcOpcode, WcStatus};

use crate::Time;

/// Failures that wait to be taken, at most.
const WAITING_MAX: usize = 32;
/// Packets dropped for one reason and queue pair are told once among the last so many.
const REMEMBERED: usize = 16;

/// Something that failed on a queue pair, or did not get to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failure {
    /// When.
    pub at: Time,
    /// The own queue pair; of a packet that found none, the number that it was for.
    pub qpn: u32,
    /// Its service; `None` when there is no such queue pair.
    pub qp_type: Option<QpType>,
    /// The address of the peer, if one is known.
    pub peer: Option<IpAddr>,
    /// The peer's queue pair.
    pub peer_qpn: u32,
    /// PSN of the packet that failed, was refused or was dropped.
    pub psn: u32,
    /// What happened.
    pub cause: Cause,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// A send request of ours completed with an error.
    Request(FailedRequest),
    /// We refused a request of the peer's, which hears of it by a NAK that says less.
    Refused(Refusal),
    /// The peer sent a message for which no receive was posted here.
    NoReceive,
    /// A packet was dropped.
    Dropped(DropReason),
    /// A completion queue overflowed.
    CqOverflow,
}

/// A send request that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// How it completes.
    pub status: WcStatus,
    /// What it was to do.
    pub opcode: WcOpcode,
    /// The program's name for it.
    pub wr_id: u64,
    /// Bytes of the message.
    pub length: u32,
    /// Where at the peer, and by which key.
    pub remote: Option<RemoteAddr>,
    /// Whether the peer ever acknowledged anything.
    pub was_answered: bool,
    /// How often it was tried again (`retry_cnt` or `rnr_retry`).
    pub retries: u8,
    /// Since the last answer, or since the request began, ns.
    pub waited_ns: u64,
}

/// Why a request of the peer was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is longer than the receive request.
    TooLong {
        /// Bytes of the message that have come.
        message: u64,
        /// Bytes that fit.
        receive: u64,
    },
    /// The remote address does not bear the access.
    Access {
        /// The key.
        rkey: u32,
        /// The address.
        va: u64,
        /// Bytes from there.
        length: u32,
        /// What is wrong.
        why: &'static str,
    },
    /// Another rule of the protocol is broken.
    Rule(&'static str),
}

/// Why a packet was dropped: what a wrong address or number leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// No queue pair has the number.
    UnknownQp,
    /// The queue pair is connected to another address.
    WrongPeer,
    /// The queue pair has not come to RTR, or failed before.
    WrongState,
    /// The Q_Key is not the queue pair's.
    BadQkey,
    /// No receive was posted for a message of an unreliable service.
    NoReceive,
}

/// Failures that nobody has taken yet.
#[derive(Debug)]
pub(crate) struct Failures {
    waiting: VecDeque<Failure>,
    /// Reasons and queue pairs of what was told last and happens by the thousand.
    told: VecDeque<(u32, Cause)>,
}

impl Default for Failures {
    fn default() -> Self {
        // All that it will ever need: failures are noted on the data path.
        Failures {
            waiting: VecDeque::with_capacity(WAITING_MAX),
            told: VecDeque::with_capacity(REMEMBERED),
        }
    }
}

impl Failures {
    /// Note one.
    pub(crate) fn note(&mut self, failure: Failure) {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(failure);
    }

    /// Note one that may happen again and again: true when it was not told lately.
    pub(crate) fn is_news(&mut self, qpn: u32, cause: Cause) -> bool {
        if self.told.contains(&(qpn, cause)) {
            return false;
        }
        if self.told.len() == REMEMBERED {
            self.told.pop_front();
        }
        self.told.push_back((qpn, cause));
        true
    }

    pub(crate) fn take(&mut self) -> Option<Failure> {
        self.waiting.pop_front()
    }
}

/// A queue pair number as people read it.
struct Number(u32);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "queue pair {:#x}", self.0)
    }
}

impl fmt::Display for Failure {
    /// One sentence that names the cause.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Cause::Request(request) => self.write_request(f, request),
            Cause::Refused(refusal) => {
                self.write_peer(f)?;
                match *refusal {
                    Refusal::TooLong { message, receive } => write!(
                        f,
                        " sent a message longer than its receive: at least {message} bytes for a receive of {receive} bytes, on {}",
                        Number(self.qpn)
                    ),
                    Refusal::Access {
                        rkey,
                        va,
                        length,
                        why,
                    } => write!(
                        f,
                        " asked for {length} bytes at {va:#x} with rkey {rkey:#x} on {}: {why}",
                        Number(self.qpn)
                    ),
                    Refusal::Rule(why) => write!(f, " sent a request to {} that {why}", Number(self.qpn)),
                }
            }
            Cause::NoReceive => {
                self.write_peer(f)?;
                write!(
                    f,
                    " sent a message to {}, where no receive is posted",
                    Number(self.qpn)
                )
            }
            Cause::Dropped(reason) => {
                write!(f, "a packet from ")?;
                self.write_peer(f)?;
                write!(f, " was dropped: ")?;
                let qp = Number(self.qpn);
                match reason {
                    DropReason::UnknownQp => {
                        write!(f, "there is no {qp} here (destroyed, or a wrong number)")
                    }
                    DropReason::WrongPeer => write!(
                        f,
                        "{qp} is connected to another address (a wrong GID on one side)"
                    ),
                    DropReason::WrongState => write!(f, "{qp} is not in RTR or RTS"),
                    DropReason::BadQkey => write!(f, "its Q_Key is not the one of {qp}"),
                    DropReason::NoReceive => write!(f, "{qp} has no receive posted"),
                }
            }
            Cause::CqOverflow => write!(
                f,
                "the completion queue of {} overflowed: it is too small, or it is not polled",
                Number(self.qpn)
            ),
        }
    }
}

impl Failure {
    fn write_peer(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.peer {
            Some(address) => write!(f, "{address}"),
            None => write!(f, "the peer"),
        }
    }

    fn write_request(&self, f: &mut fmt::Formatter<'_>, request: &FailedRequest) -> fmt::Result {
        let what = name(request.opcode);
        let seconds = request.waited_ns as f64 / 1e9;
        let peer_qp = Number(self.peer_qpn);
        match request.status {
            WcStatus::RetryExcErr if request.was_answered => {
                self.write_peer(f)?;
                write!(
                    f,
                    " stopped answering: no acknowledgement of a {what} from its {peer_qp} for {seconds:.1} s and {} retries",
                    request.retries
                )
            }
            WcStatus::RetryExcErr => {
                write!(f, "nobody answered at ")?;
                self.write_peer(f)?;
                write!(
                    f,
                    ": no acknowledgement of a {what} to {peer_qp} there for {seconds:.1} s and {} retries",
                    request.retries
                )
            }
            WcStatus::RnrRetryExcErr => {
                write!(f, "the peer posted no receive: ")?;
                self.write_peer(f)?;
                write!(
                    f,
                    " {peer_qp} was not ready for a {what} of {} bytes (RNR) after {} retries",
                    request.length, request.retries
                )
            }
            WcStatus::RemAccessErr => {
                self.write_peer(f)?;
                write!(f, " refused a {what} (remote access error): ")?;
                match request.remote {
                    Some(remote) => write!(
                        f,
                        "rkey {:#x} does not give access to {} bytes at {:#x}, on its {peer_qp}",
                        remote.rkey.0, request.length, remote.addr
                    ),
                    None => write!(f, "its {peer_qp} does not permit it"),
                }
            }
            WcStatus::RemInvReqErr => {
                self.write_peer(f)?;
                write!(
                    f,
                    " refused a {what} of {} bytes (invalid request): its {peer_qp} does not permit it, or a message is longer than its receive",
                    request.length
                )
            }
            WcStatus::LocProtErr => write!(
                f,
                "a {what} of {} bytes names local memory that is not registered for it (lkey, range, protection domain or rights)",
                request.length
            ),
            other => {
                write!(f, "a {what} of {} bytes to ", request.length)?;
                self.write_peer(f)?;
                write!(f, " failed: {other:?}")
            }
        }
    }
}

/// A request as the specification writes it.
pub(crate) fn name(opcode: WcOpcode) -> &'static str {
    match opcode {
        WcOpcode::Send => "SEND",
        WcOpcode::RdmaWrite => "RDMA WRITE",
        WcOpcode::RdmaRead => "RDMA READ",
        WcOpcode::CompSwap => "compare-and-swap",
        WcOpcode::FetchAdd => "fetch-and-add",
        WcOpcode::BindMw => "memory window bind",
        WcOpcode::LocalInv => "local invalidate",
        WcOpcode::Flush => "FLUSH",
        WcOpcode::AtomicWrite => "ATOMIC WRITE",
        WcOpcode::Recv | WcOpcode::RecvRdmaWithImm => "receive",
    }
}
