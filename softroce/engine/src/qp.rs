//! Queue pairs.
//!
//! A [`Qp`] is attributes and state, two work queues, a [`requester`], a [`completer`] (the requester's other half,
//! fed by responses) and a [`responder`]. Its methods are spread over the files of this folder by role; what they
//! share with other queue pairs comes in as [`Shared`].
//!
//! Whenever something happens that may give a queue pair packets to send, it is put on the list of ready ones;
//! [`Qp::transmit`] is its turn. Whenever a deadline may have come nearer, [`Qp::arm`] is called.
#![forbid(unsafe_code)]

mod completer;
mod error;
mod explain;
mod link;
pub(crate) mod migration;
mod operation;
mod receive_queue;
mod receive_source;
mod requester;
mod resources;
mod respond;
mod responder;
mod send_queue;
mod send_store;
pub(crate) mod transition;
mod unreliable;
mod xrc_target;

use roce_wire::{Qpn, Transport};
use verbs_api::{QpAttr, QpCap, QpState, QpType, RecvWr, SqSigType, Wc, WcStatus};

use crate::integrity::Integrity;
use crate::memory::Accessor;
use crate::mutants::{Mutant, is_on};
use crate::shared::Shared;
use crate::{CqId, PdId, RxMeta, SendRequest, SrqId, Time};

pub(crate) use link::{Link, PARTITION};
pub(crate) use operation::Operation;
pub(crate) use receive_queue::{ReceivePools, ReceiveQueue, RecvWqe, Refusal as ReceiveRefusal};
pub(crate) use receive_source::{Held, ReceiveSource};
pub(crate) use send_queue::{Refusal as SendRefusal, SendQueue};
pub(crate) use send_store::SendPools;
pub(crate) use xrc_target::XrcTarget;

use migration::Migration;
use requester::Requester;
use responder::Responder;

/// What a queue pair is made of; fixed for its life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity {
    pub(crate) qpn: Qpn,
    /// Its place in the engine's lists.
    pub(crate) slot: u32,
    pub(crate) qp_type: QpType,
    pub(crate) pd: PdId,
    /// `None`: it sends nothing that completes (XRC target).
    pub(crate) send_cq: Option<CqId>,
    /// `None`: it has no receives (XRC initiator), or they complete elsewhere (XRC target).
    pub(crate) recv_cq: Option<CqId>,
    pub(crate) cap: QpCap,
    pub(crate) sq_sig: SqSigType,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) id: Identity,
    pub(crate) state: QpState,
    /// The attributes as they were set.
    pub(crate) attr: QpAttr,
    pub(crate) link: Option<Link>,
    pub(crate) migration: Migration,
    /// Of the peer's packets.
    integrity: Integrity,
    /// Multicast groups that it is attached to.
    pub(crate) memberships: u32,
    send_queue: SendQueue,
    receives: ReceiveSource,
    requester: Requester,
    responder: Responder,
}

/// What a turn has left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing until something happens.
    Done,
    /// The turn was long enough; more next time.
    Again,
    /// The batch is full, and it goes on with the next one.
    BatchFull,
    /// The batch is full of what it sent itself: others go on with the next one.
    BatchFullAgain,
    /// The peer's window is used up; the queue pair stands in its line.
    WaitsForPeer,
    /// The READ budget is used up; the queue pair stands in its line.
    WaitsForReads,
}

/// Whether requests are acknowledged, and sent again when they are not.
fn is_reliable(qp_type: QpType) -> bool {
    match qp_type {
        QpType::Rc | QpType::XrcInitiator | QpType::XrcTarget => true,
        QpType::Uc | QpType::Ud | QpType::Gsi | QpType::RawPacket => false,
    }
}

/// Whether each message has a destination of its own.
pub(crate) fn is_datagram(qp_type: QpType) -> bool {
    matches!(qp_type, QpType::Ud | QpType::Gsi)
}

impl Qp {
    pub(crate) fn new(id: Identity, send_queue: SendQueue, receives: ReceiveSource) -> Self {
        Qp {
            id,
            state: QpState::Reset,
            attr: QpAttr {
                state: Some(QpState::Reset),
                ..QpAttr::default()
            },
            link: None,
            migration: Migration::default(),
            integrity: Integrity::default(),
            memberships: 0,
            send_queue,
            receives,
            requester: Requester::default(),
            responder: Responder::default(),
        }
    }

    /// Put it on the list of those that may have packets to send.
    pub(crate) fn make_ready(&self, shared: &mut Shared) {
        shared.ready.push(self.id.slot);
    }

    /// Queue a send request. The caller has checked that the operation is one of this service.
    pub(crate) fn post_send(
        &mut self,
        shared: &mut Shared,
        request: &SendRequest<'_>,
        op: Operation,
    ) -> Result<(), SendRefusal> {
        let is_signaled =
            self.id.sq_sig == SqSigType::All || request.flags.contains(verbs_api::SendFlags::SIGNALED);
        self.send_queue
            .push(&mut shared.sends, request, op, is_signaled)?;
        if matches!(self.state, QpState::Err | QpState::Sqe) && !is_on(Mutant::SendInErrIsForgotten) {
            self.flush_send_queue(shared);
        } else {
            self.make_ready(shared);
        }
        Ok(())
    }

    /// Forget the newest `count` send requests, as far as they have not begun.
    pub(crate) fn withdraw_sends(&mut self, shared: &mut Shared, count: u64) {
        self.send_queue
            .withdraw(&mut shared.sends, count, self.requester.begun_end);
    }

    /// Send requests that have packets under way.
    pub(crate) fn requests_under_way(&self) -> u64 {
        self.requester.begun_end.saturating_sub(self.send_queue.head())
    }

    /// As it reaches for memory on its peer's behalf.
    pub(crate) fn accessor(&self) -> Accessor {
        Accessor {
            pd: self.receives.remote_pd(self.id.pd),
            qpn: self.id.qpn,
        }
    }

    /// Queue a receive request. The caller has checked that it has a queue of its own.
    pub(crate) fn post_recv(
        &mut self,
        shared: &mut Shared,
        request: &RecvWr<'_>,
    ) -> Result<(), ReceiveRefusal> {
        if let ReceiveSource::Own(queue) = &mut self.receives {
            queue.push(&mut shared.receives, request)?;
        }
        if self.state == QpState::Err {
            self.flush_receives(shared);
        }
        Ok(())
    }

    /// The earliest moment at which something is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let request = self.requester_deadline().unwrap_or(Time::MAX);
        let first = request.min(self.responder.ack_deadline().unwrap_or(Time::MAX));
        (first != Time::MAX).then_some(first)
    }

    /// Have [`Qp::handle_timeout`] called in time, and not at all when nothing is due any more: to be looked at for
    /// nothing costs one of many queue pairs as much as a message does, since it has left the caches by then.
    pub(crate) fn arm(&self, shared: &mut Shared) {
        match self.deadline() {
            Some(deadline) => shared.timers.arm(self.id.slot, deadline),
            None => shared.timers.disarm(self.id.slot),
        }
    }

    /// A deadline may have passed.
    pub(crate) fn handle_timeout(&mut self, shared: &mut Shared) {
        self.handle_requester_timeout(shared);
        if self.responder.ack_deadline().is_some_and(|due| due <= shared.now) {
            self.responder.hurry_ack();
            self.make_ready(shared);
        }
        self.arm(shared);
    }

    /// Whether the ICRC of a packet from the peer is right.
    pub(crate) fn is_intact(&mut self, meta: &RxMeta, udp_payload: &[u8]) -> bool {
        self.integrity.holds(meta, udp_payload)
    }

    /// Start as requester and responder anew with what the attributes say. On the way to RTR and on to RTS.
    pub(crate) fn start_responder(&mut self, shared: &Shared) {
        let first = self.attr.rq_psn.unwrap_or(0);
        let resources = self.attr.max_dest_rd_atomic.unwrap_or(0);
        self.responder = Responder::new(first, resources, shared.ack_delay_ns);
    }

    pub(crate) fn start_requester(&mut self, shared: &Shared) {
        let first = self.attr.sq_psn.unwrap_or(0);
        let mtu = self.link.map_or(256, |link| link.mtu);
        self.requester = Requester::new(
            first,
            &self.attr,
            self.send_queue.head(),
            shared.reads.packets_a_request(mtu),
        );
    }

    /// Whether READs or atomics wait in the send queue.
    pub(crate) fn has_reads_queued(&self, shared: &Shared) -> bool {
        (self.send_queue.head()..self.send_queue.tail())
            .any(|number| self.send_queue.get(&shared.sends, number).op.has_response())
    }

    /// Whether it is one end of a connection.
    pub(crate) fn is_connected(&self) -> bool {
        match self.id.qp_type {
            QpType::Rc | QpType::Uc | QpType::XrcInitiator | QpType::XrcTarget => true,
            QpType::Ud | QpType::Gsi | QpType::RawPacket => false,
        }
    }

    /// In SQD, with requests that had begun and are not complete.
    pub(crate) fn is_draining(&self) -> bool {
        self.state == QpState::Sqd && self.requester.has_begun_work(&self.send_queue)
    }

    /// RTS to SQD: what has begun goes on, nothing new begins.
    pub(crate) fn drain(&mut self, shared: &mut Shared, announce: bool) {
        self.requester.announce_drained = announce;
        self.note_drained(shared);
    }

    /// SQD to SQD: attributes of the drained requester and of the responder change.
    pub(crate) fn retune(&mut self, changed: &QpAttr) {
        if changed.max_dest_rd_atomic.is_some() {
            self.responder
                .set_resources(self.attr.max_dest_rd_atomic.unwrap_or(0));
        }
        self.requester.retune(&self.attr);
    }

    /// Whether receive requests are posted to it, and not to a shared queue.
    pub(crate) fn has_own_receives(&self) -> bool {
        matches!(self.receives, ReceiveSource::Own(_))
    }

    /// The shared receive queue that it was created with.
    pub(crate) fn srq(&self) -> Option<SrqId> {
        match self.receives {
            ReceiveSource::Own(_) | ReceiveSource::Named(_) | ReceiveSource::Nowhere => None,
            ReceiveSource::Shared { srq, .. } => Some(srq),
        }
    }

    /// What it is as an XRC target, if it is one.
    pub(crate) fn xrc_target(&self) -> Option<&XrcTarget> {
        match &self.receives {
            ReceiveSource::Own(_) | ReceiveSource::Shared { .. } | ReceiveSource::Nowhere => None,
            ReceiveSource::Named(target) => Some(target),
        }
    }

    /// As [`Self::xrc_target`].
    pub(crate) fn xrc_target_mut(&mut self) -> Option<&mut XrcTarget> {
        match &mut self.receives {
            ReceiveSource::Own(_) | ReceiveSource::Shared { .. } | ReceiveSource::Nowhere => None,
            ReceiveSource::Named(target) => Some(target),
        }
    }

    /// A shared receive queue of XRC is gone.
    pub(crate) fn forget_srq(&mut self, srq: SrqId) {
        self.receives.forget(srq);
    }

    /// The transport that its packets say.
    fn transport(&self) -> Transport {
        match self.id.qp_type {
            QpType::Rc | QpType::RawPacket => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud | QpType::Gsi => Transport::Ud,
            QpType::XrcInitiator | QpType::XrcTarget => Transport::Xrc,
        }
    }

    /// Whether its completions go there.
    pub(crate) fn uses_cq(&self, cq: CqId) -> bool {
        self.id.send_cq == Some(cq) || self.id.recv_cq == Some(cq) || self.receives.uses_cq(cq)
    }

    /// Whether there is anything left to fail.
    pub(crate) fn is_alive(&self) -> bool {
        match self.state {
            QpState::Reset | QpState::Err => false,
            QpState::Init | QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe => true,
        }
    }

    /// When the acknowledgement that is owed should leave, if one is.
    pub(crate) fn ack_ripens(&self) -> Option<Time> {
        self.responder.ack.map(|ack| ack.ripe)
    }

    /// The attributes as they stand, current PSNs included.
    pub(crate) fn query(&self) -> QpAttr {
        let mut attr = self.attr;
        attr.state = Some(self.state);
        attr.cur_state = Some(self.state);
        attr.cap = Some(self.id.cap);
        attr.sq_draining = self.is_draining();
        if attr.rq_psn.is_some() {
            attr.rq_psn = Some(self.responder.expected_psn().value());
        }
        if attr.sq_psn.is_some() {
            attr.sq_psn = Some(self.requester.next_new_psn().value());
        }
        if self.is_connected() {
            attr.path_mig_state = Some(self.migration.state());
        }
        attr
    }

    /// Forget connection and work, as on the way to RESET. No completions, and those that wait are removed: but for
    /// what of an XRC target waits in the queue of a shared receive queue, which is not its own.
    pub(crate) fn reset(&mut self, shared: &mut Shared) {
        self.release_link(shared);
        for cq in [self.id.send_cq, self.id.recv_cq].into_iter().flatten() {
            shared.cqs.remove_completions_of(cq, self.id.qpn.value());
        }
        self.send_queue.clear(&mut shared.sends);
        self.receives.clear(shared);
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.migration = Migration::default();
        self.attr = QpAttr {
            state: Some(QpState::Reset),
            ..QpAttr::default()
        };
        self.state = QpState::Reset;
        shared.timers.disarm(self.id.slot);
    }

    /// It is gone: give back what was reserved for it.
    pub(crate) fn release(&mut self, shared: &mut Shared) {
        self.reset(shared);
        self.send_queue.release(&mut shared.sends);
        self.receives.release(shared);
    }

    /// Forget what the checksums of the peer's packets have shown.
    fn forget_checksums(&mut self) {
        self.integrity = Integrity::default();
    }

    /// A completion of this queue pair's, to be filled in.
    fn completion(&self, wr_id: u64, status: WcStatus) -> Wc {
        Wc {
            wr_id,
            status,
            qp_num: self.id.qpn.value(),
            ..Wc::default()
        }
    }
}
