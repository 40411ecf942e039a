//! Queue pairs of reliable connections.
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
mod receive_queue;
mod requester;
mod resources;
mod respond;
mod responder;
mod send_queue;
pub(crate) mod transition;

use roce_wire::icrc::{Flow, FlowCrc, Verdict};
use roce_wire::{PKey, Qpn, ROCE_V2_PORT};
use verbs_api::{QpAttr, QpCap, QpState, QpType, RecvWr, SqSigType, Wc, WcStatus};

use crate::budget::PeerId;
use crate::shared::Shared;
use crate::{CqId, Path, PdId, RxMeta, SendRequest, Time};

pub(crate) use receive_queue::{ReceiveQueue, Refusal as ReceiveRefusal};
pub(crate) use send_queue::{Operation, Refusal as SendRefusal, SendQueue};

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

/// The connection, from RTR on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) path: Path,
    pub(crate) peer: PeerId,
    pub(crate) dest_qp: Qpn,
    /// Path MTU, payload bytes a packet.
    pub(crate) mtu: u32,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) id: Identity,
    pub(crate) state: QpState,
    /// The attributes as they were set.
    pub(crate) attr: QpAttr,
    pub(crate) link: Option<Link>,
    /// The ICRC's state after the headers of the peer's packets, for the source port that it used last.
    peer_crc: Option<(u16, FlowCrc)>,
    /// Packets that had the IPv4 identification expected, up to [`EXPECTED_IDS_ENOUGH`].
    expected_ids: u8,
    send_queue: SendQueue,
    receive_queue: ReceiveQueue,
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
    /// The batch is full.
    BatchFull,
    /// The peer's window is used up; the queue pair stands in its line.
    WaitsForPeer,
    /// The READ budget is used up; the queue pair stands in its line.
    WaitsForReads,
}

/// The partition that every packet is in: RoCE's P_Key table has this one entry.
pub(crate) const PARTITION: PKey = PKey::DEFAULT;

/// After so many packets with the identification expected, the peer numbers its packets as we do.
const EXPECTED_IDS_ENOUGH: u8 = 16;
/// Packets that a kernel sends as one train at most, and numbers from 0 on.
const TRAIN_PACKETS_MAX: u16 = 128;

impl Qp {
    pub(crate) fn new(id: Identity) -> Self {
        Qp {
            id,
            state: QpState::Reset,
            attr: QpAttr {
                state: Some(QpState::Reset),
                ..QpAttr::default()
            },
            link: None,
            peer_crc: None,
            expected_ids: 0,
            send_queue: SendQueue::new(id.cap.max_send_wr, id.cap.max_send_sge, id.cap.max_inline_data),
            receive_queue: ReceiveQueue::new(id.cap.max_recv_wr, id.cap.max_recv_sge),
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
        self.send_queue.push(request, op, is_signaled)?;
        if self.state == QpState::Err {
            self.flush_send_queue(shared);
        } else {
            self.make_ready(shared);
        }
        Ok(())
    }

    /// Send requests that have packets under way.
    pub(crate) fn requests_under_way(&self) -> u64 {
        self.requester.begun_end.saturating_sub(self.send_queue.head())
    }

    /// Queue a receive request.
    pub(crate) fn post_recv(
        &mut self,
        shared: &mut Shared,
        request: &RecvWr<'_>,
    ) -> Result<(), ReceiveRefusal> {
        self.receive_queue.push(request)?;
        if self.state == QpState::Err {
            self.flush_receive_queue(shared);
        }
        Ok(())
    }

    /// The earliest moment at which something is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        let response = self.responder.ack_deadline();
        [self.requester_deadline(), response].into_iter().flatten().min()
    }

    /// Have [`Qp::handle_timeout`] called in time.
    pub(crate) fn arm(&self, shared: &mut Shared) {
        if let Some(deadline) = self.deadline() {
            shared.timers.arm(self.id.slot, deadline);
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

    /// Whether the ICRC of a packet from the peer is right. The sender's kernel numbers the packets of a train 0, 1, 2, …
    pub(crate) fn is_intact(&mut self, meta: &RxMeta, udp_payload: &[u8]) -> bool {
        let crc = match self.peer_crc {
            Some((port, crc)) if port == meta.source_port => crc,
            Some(_) | None => {
                let flow = Flow {
                    src: meta.src,
                    dst: meta.dst,
                    source_port: meta.source_port,
                    dest_port: ROCE_V2_PORT,
                };
                let crc = FlowCrc::new(&flow);
                self.peer_crc = Some((meta.source_port, crc));
                crc
            }
        };
        match crc.verify(&[meta.segment, 0], udp_payload) {
            Verdict::Valid => {
                self.expected_ids = EXPECTED_IDS_ENOUGH.min(self.expected_ids + 1);
                true
            }
            // Where the identification must be guessed, one damaged packet in 2^16 looks whole. A peer that has kept
            // to the expected numbers has its packets guessed only within what a train that came in pieces explains.
            Verdict::ValidWithIpId(id) => self.expected_ids < EXPECTED_IDS_ENOUGH || id < TRAIN_PACKETS_MAX,
            Verdict::Invalid => false,
        }
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

    /// Whether its completions go there.
    pub(crate) fn uses_cq(&self, cq: CqId) -> bool {
        self.id.send_cq == Some(cq) || self.id.recv_cq == Some(cq)
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
            attr.sq_psn = Some(self.requester.next_psn().value());
        }
        attr
    }

    /// Forget connection and work, as on the way to RESET. No completions.
    pub(crate) fn reset(&mut self, shared: &mut Shared) {
        self.release_link(shared);
        self.send_queue.clear();
        self.receive_queue.clear();
        self.requester = Requester::default();
        self.responder = Responder::default();
        self.attr = QpAttr {
            state: Some(QpState::Reset),
            ..QpAttr::default()
        };
        self.state = QpState::Reset;
        shared.timers.disarm(self.id.slot);
    }

    /// Give back what it holds of the shared budgets, and leave their lists.
    pub(crate) fn release_link(&mut self, shared: &mut Shared) {
        self.release_charges(shared);
        self.peer_crc = None;
        self.expected_ids = 0;
        shared.reads.forget(self.id.slot);
        if let Some(link) = self.link.take() {
            shared.peers.leave(link.peer, self.id.slot);
            // It may have been woken and not have had its turn.
            shared.wake_waiting(link.peer);
        }
        shared.ready.remove(self.id.slot);
        shared.acks.remove(self.id.slot);
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
