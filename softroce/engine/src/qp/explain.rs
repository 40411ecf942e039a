//! What there is to say about a queue pair that failed, or that waits.
#![forbid(unsafe_code)]

use roce_wire::Packet;
use verbs_api::{Access, QpState, RemoteAddr, WcStatus};

use super::operation::Operation;
use super::requester::Hold;
use super::{Qp, ReceiveSource};
use crate::failure::{Cause, FailedRequest, Failure, Refusal};
use crate::memory::MemoryFault;
use crate::psn::Seq;
use crate::shared::Shared;
use crate::waiting::{Waiting, WaitsFor};

impl Qp {
    fn failure(&self, shared: &Shared, psn: Seq, cause: Cause) -> Failure {
        Failure {
            at: shared.now,
            qpn: self.id.qpn.value(),
            qp_type: Some(self.id.qp_type),
            peer: self.link.map(|link| link.path.dst),
            peer_qpn: self.link.map_or(0, |link| link.dest_qp.value()),
            psn: psn.psn().value(),
            cause,
        }
    }

    /// The oldest send request is about to fail.
    pub(super) fn note_failed_send(&self, shared: &mut Shared, status: WcStatus) {
        let wqe = *self.send_queue.get(&shared.sends, self.send_queue.head());
        let r = &self.requester;
        let retries = match status {
            WcStatus::RnrRetryExcErr => self.attr.rnr_retry,
            _ => self.attr.retry_cnt,
        };
        let request = FailedRequest {
            status,
            opcode: wqe.op.wc_opcode(),
            wr_id: wqe.wr_id,
            length: wqe.length,
            remote: wqe.op.remote(),
            was_answered: r.una > Seq::start(self.attr.sq_psn.unwrap_or(0)),
            retries: retries.unwrap_or(0),
            waited_ns: shared.now.since(r.waiting_since()),
        };
        let failure = self.failure(shared, r.una, Cause::Request(request));
        shared.failures.note(failure);
    }

    /// A request of the peer's is refused for good.
    pub(super) fn note_refused(&self, shared: &mut Shared, psn: Seq, refusal: Refusal) {
        let failure = self.failure(shared, psn, Cause::Refused(refusal));
        shared.failures.note(failure);
    }

    /// Something of which there may be thousands: the first one is told.
    pub(super) fn note_once(&self, shared: &mut Shared, psn: u32, cause: Cause) {
        if shared.failures.is_news(self.id.qpn.value(), cause) {
            let failure = self.failure(shared, Seq::start(psn), cause);
            shared.failures.note(failure);
        }
    }

    /// Which access the peer asked for, and why it has none.
    pub(super) fn explain_access(
        &self,
        shared: &Shared,
        packet: &Packet<'_>,
        under_way: Option<(RemoteAddr, u32)>,
    ) -> Refusal {
        let headers = &packet.headers;
        let is_read = matches!(
            headers.bth.opcode.info().map(|info| info.operation),
            Some(roce_wire::Operation::ReadRequest)
        );
        let (remote, length, need) = match (headers.atomic_eth, headers.reth, under_way) {
            (Some(atomic), ..) => (
                RemoteAddr {
                    addr: atomic.va,
                    rkey: verbs_api::RKey(atomic.rkey.0),
                },
                8,
                Access::REMOTE_ATOMIC,
            ),
            (None, Some(reth), _) => (
                RemoteAddr {
                    addr: reth.va,
                    rkey: verbs_api::RKey(reth.rkey.0),
                },
                reth.dma_length,
                if is_read {
                    Access::REMOTE_READ
                } else {
                    Access::REMOTE_WRITE
                },
            ),
            (None, None, Some((remote, length))) => (remote, length, Access::REMOTE_WRITE),
            (None, None, None) => return Refusal::Rule("reaches for memory without saying where"),
        };
        let found = shared
            .memory
            .remote(self.accessor(), remote.rkey, remote.addr, u64::from(length), need);
        let why = match found {
            Err(MemoryFault::BadKey) => "wrong rkey, no memory region or window has it",
            Err(MemoryFault::WrongPd) => {
                "the memory of this rkey is in another protection domain than the queue pair"
            }
            Err(MemoryFault::WrongQp) => "the memory window of this rkey is open through another queue pair",
            Err(MemoryFault::AccessDenied) if is_read => {
                "the memory of this rkey is not registered for remote reads"
            }
            Err(MemoryFault::AccessDenied) if need == Access::REMOTE_ATOMIC => {
                "the memory of this rkey is not registered for remote atomics"
            }
            Err(MemoryFault::AccessDenied) => "the memory of this rkey is not registered for remote writes",
            Err(MemoryFault::OutOfBounds) => "the range reaches outside of the memory of this rkey",
            Err(MemoryFault::Misaligned) => "the address is not aligned",
            // What is refused now may have been taken away only while its bytes moved.
            Ok(()) => "the program has unmapped the memory of this rkey",
        };
        Refusal::Access {
            rkey: remote.rkey.0,
            va: remote.addr,
            length,
            why,
        }
    }

    /// What it waits for.
    pub(crate) fn waiting(&self, shared: &Shared) -> Waiting {
        let r = &self.requester;
        let sends = self.send_queue.tail() - self.send_queue.head();
        let receives = match &self.receives {
            ReceiveSource::Own(queue) => queue.len().into(),
            ReceiveSource::Shared { srq, .. } => {
                shared.srqs.get(*srq).map_or(0, |queue| queue.queued().into())
            }
            ReceiveSource::Named(_) | ReceiveSource::Nowhere => 0,
        };
        let waits_for = match self.state {
            QpState::Reset | QpState::Init => WaitsFor::Connection,
            QpState::Err | QpState::Sqe => WaitsFor::Nothing,
            QpState::Rtr | QpState::Rts | QpState::Sqd => {
                if sends == 0 && receives == 0 {
                    WaitsFor::Nothing
                } else if sends == 0 {
                    WaitsFor::Message
                } else if r.rnr_at == Some(r.una) {
                    WaitsFor::Receive
                } else if r.is_waiting() {
                    WaitsFor::Acknowledgement {
                        timeouts: r.timeouts_in_a_row,
                    }
                } else if self.state == QpState::Sqd {
                    WaitsFor::Nothing
                } else if matches!(r.hold, Hold::Rate(_)) {
                    WaitsFor::Rate
                } else {
                    WaitsFor::Window
                }
            }
        };
        let oldest = (sends > 0).then(|| *self.send_queue.get(&shared.sends, self.send_queue.head()));
        Waiting {
            qpn: self.id.qpn.value(),
            qp_type: self.id.qp_type,
            state: self.state,
            peer: self.link.map(|link| link.path.dst),
            peer_qpn: self.link.map_or(0, |link| link.dest_qp.value()),
            sends,
            oldest: oldest.map(|wqe| wqe.op.wc_opcode()),
            receives,
            psn: r.una.psn().value(),
            waits_for,
            waited_ns: shared.now.since(r.waiting_since()),
            heard_ns: self
                .link
                .and_then(|link| shared.peers.get(link.peer).heard_at())
                .map(|at| shared.now.since(at)),
        }
    }
}

impl Operation {
    /// Where it reaches at the peer.
    fn remote(&self) -> Option<RemoteAddr> {
        match *self {
            Operation::Write { remote, .. }
            | Operation::Read { remote }
            | Operation::CompareSwap { remote, .. }
            | Operation::FetchAdd { remote, .. }
            | Operation::AtomicWrite { remote, .. }
            | Operation::Flush { remote, .. } => Some(remote),
            Operation::Send { .. } | Operation::LocalInvalidate { .. } | Operation::Bind(_) => None,
        }
    }
}
