//! Requests that come again: never executed a second time, but for READs, which change nothing (IBA C9-105).
#![forbid(unsafe_code)]

use roce_wire::{Operation, Packet, Reth};
use verbs_api::{Access, RKey};

use super::Message;
use crate::PdId;
use crate::memory::{Accessor, AtomicOp};
use crate::mutants::{Mutant, is_on};
use crate::psn::Seq;
use crate::qp::Qp;
use crate::qp::resources::Kind;
use crate::qp::send_queue::packets_of;
use crate::shared::Shared;

impl Qp {
    /// Serve a repeated request: never executed again, but for READs, which change nothing (IBA C9-105).
    pub(super) fn handle_duplicate(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq) {
        shared.counters.duplicate_request += 1;
        let Some(info) = packet.headers.bth.opcode.info() else {
            return;
        };
        match info.operation {
            Operation::Send | Operation::Write if is_on(Mutant::RepeatedAckReachesBeyondRead) => {
                self.responder.ack_again = Some(self.responder.expected.before());
                self.make_ready(shared);
            }
            Operation::Send | Operation::Write => {
                // Not beyond a READ or atomic that came after it: that would say that its answer is lost.
                let first = self.responder.resources.first_after(psn);
                self.responder.ack_again = Some(first.unwrap_or(self.responder.expected).before());
                self.make_ready(shared);
            }
            Operation::ReadRequest => {
                if is_on(Mutant::RepeatedReadEndsMessage) {
                    self.responder.message = Message::None;
                }
                self.repeat_read(shared, packet, psn);
            }
            Operation::CompareSwap | Operation::FetchAdd | Operation::AtomicWrite | Operation::Flush => {
                let found = self.responder.resources.find(psn).map(|resource| resource.kind);
                let is_same = match found {
                    Some(Kind::Atomic { .. }) => packet.headers.atomic_eth.is_some(),
                    Some(Kind::Confirmed) => packet.headers.atomic_eth.is_none(),
                    Some(Kind::Read { .. } | Kind::None) | None => false,
                };
                if is_same {
                    if let (true, Some(atomic)) = (is_on(Mutant::AtomicRunsAgain), packet.headers.atomic_eth)
                    {
                        let add = AtomicOp::FetchAdd {
                            add: atomic.swap_or_add,
                        };
                        let _ = shared
                            .memory
                            .atomic(self.accessor(), RKey(atomic.rkey.0), atomic.va, add);
                    }
                    self.responder.resources.owe_again(psn, psn);
                    self.make_ready(shared);
                }
            }
            Operation::ReadResponse
            | Operation::Acknowledge
            | Operation::AtomicAcknowledge
            | Operation::CongestionNotification => {}
        }
    }

    /// A READ came again, whole or in part: the same PSNs carry the same bytes. Anything else is dropped.
    fn repeat_read(&mut self, shared: &mut Shared, packet: &Packet<'_>, psn: Seq) {
        let (Some(resource), Some(reth)) = (self.responder.resources.find(psn), packet.headers.reth) else {
            return;
        };
        let Kind::Read { va, rkey, length, pd } = resource.kind else {
            return;
        };
        let mtu = self.link.map_or(256, |link| link.mtu);
        let skipped = u64::from(psn - resource.first) * u64::from(mtu);
        let is_subset = reth.rkey == rkey
            && reth.va == va.wrapping_add(skipped)
            && skipped + u64::from(reth.dma_length) <= u64::from(length);
        if !is_subset || !self.can_read(shared, pd, &reth) {
            return;
        }
        let end = psn + (packets_of(reth.dma_length, mtu) - 1);
        if end > resource.last {
            return;
        }
        self.responder.resources.owe_again(psn, end);
        self.make_ready(shared);
    }

    fn can_read(&self, shared: &Shared, pd: PdId, reth: &Reth) -> bool {
        let who = Accessor { pd, qpn: self.id.qpn };
        let (rkey, length) = (RKey(reth.rkey.0), u64::from(reth.dma_length));
        let located = shared
            .memory
            .remote(who, rkey, reth.va, length, Access::REMOTE_READ);
        length == 0 || located.is_ok()
    }
}
