//! A queue pair's turn to send: answers first, then requests, then an acknowledgement behind them.
#![forbid(unsafe_code)]

use roce_wire::{Aeth, AtomicAckEth, Headers, ICRC_LEN, NakCode, Opcode, Psn, Syndrome, pad_len};

use super::requester::emit;
use super::resources::{Debt, Kind, Reason, Resource};
use super::responder::Urgency;
use super::{Link, Qp, Turn, is_reliable};
use crate::Time;
use crate::batch::{Acks, TxBatch};
use crate::memory::Accessor;
use crate::mutants::{Mutant, is_on};
use crate::psn::Seq;
use crate::shared::Shared;

/// READ response packets of one turn, at most.
const TURN_PACKETS: u32 = 64;
/// READ response bytes of one turn, at most.
const TURN_BYTES: usize = 60 << 10;
/// Zero bytes behind a CNP's BTH (RoCEv2 annex).
const CNP_PAYLOAD_LEN: usize = 16;

impl Qp {
    /// Fill the batch with what this queue pair may send now.
    pub(crate) fn transmit(&mut self, shared: &mut Shared, batch: &mut TxBatch, acks: Acks) -> Turn {
        if !is_reliable(self.id.qp_type) {
            return self.transmit_unreliable(shared, batch);
        }
        let Some(link) = self.link else {
            return Turn::Done;
        };
        let answered = self.send_responses(shared, batch, &link);
        if answered == Turn::BatchFull {
            return Turn::BatchFull;
        }
        let before = batch.packets().len();
        let sent = self.send_requests(shared, batch);
        self.arm(shared);
        if sent == Turn::BatchFull {
            return Turn::BatchFull;
        }
        let has_sent_data = batch.packets().len() > before;
        if self.owes_ack_now(shared.now, acks, has_sent_data)
            && self.send_ack(shared, batch) == Turn::BatchFull
        {
            return Turn::BatchFull;
        }
        if answered == Turn::Again || sent == Turn::Again {
            Turn::Again
        } else {
            sent
        }
    }

    fn owes_ack_now(&self, now: Time, acks: Acks, has_sent_data: bool) -> bool {
        let is_relaxed = self
            .responder
            .ack
            .is_none_or(|ack| ack.urgency == Urgency::Relaxed);
        let travels = has_sent_data
            && match acks {
                Acks::Hold => self.ack_ripens().is_some_and(|ripe| ripe <= now),
                Acks::Defer | Acks::Ripe | Acks::Flush => true,
            };
        acks == Acks::Flush || travels || !is_relaxed || self.responder.ack_again.is_some()
    }

    /// Answers to READs and atomics, in the order of their requests; behind them a NAK; a congestion notification.
    pub(super) fn send_responses(&mut self, shared: &mut Shared, batch: &mut TxBatch, link: &Link) -> Turn {
        if self.responder.cnp.is_due {
            if !send_cnp(shared, batch, link) {
                return Turn::BatchFull;
            }
            self.responder.cnp.is_due = false;
        }
        let mut bytes = 0;
        for _ in 0..TURN_PACKETS {
            let Some(resource) = self.responder.resources.next_owing().map(|resource| *resource) else {
                return self.send_nak(shared, batch, link);
            };
            if bytes >= TURN_BYTES {
                return Turn::Again;
            }
            match self.send_response_packet(shared, batch, link, &resource) {
                Some(len) => bytes += len,
                None => return Turn::BatchFull,
            }
        }
        Turn::Again
    }

    /// The next packet that `resource` owes. Its length (0 when it turned out to owe none); `None`: no room.
    fn send_response_packet(
        &mut self,
        shared: &mut Shared,
        batch: &mut TxBatch,
        link: &Link,
        resource: &Resource,
    ) -> Option<usize> {
        let Debt::Packets {
            start,
            next,
            end,
            reason,
        } = resource.debt
        else {
            return Some(0);
        };
        match resource.kind {
            Kind::None => {
                self.responder.resources.owe(next, Debt::Nothing);
                Some(0)
            }
            Kind::Atomic { original } => {
                let mut headers = self.response_headers(link, Opcode::RC_ATOMIC_ACKNOWLEDGE, next);
                headers.atomic_ack = Some(AtomicAckEth { original });
                let len = push(shared, batch, link, &headers)?;
                self.responder.resources.owe(next, Debt::Nothing);
                Some(len)
            }
            Kind::Confirmed => {
                let headers = self.response_headers(link, Opcode::RC_READ_RESPONSE_ONLY, next);
                let len = push(shared, batch, link, &headers)?;
                self.responder.resources.owe(next, Debt::Nothing);
                Some(len)
            }
            Kind::Read { va, rkey, length, pd } => {
                let offset = u64::from(next - resource.first) * u64::from(link.mtu);
                let payload_len = (u64::from(length) - offset).min(u64::from(link.mtu)) as usize;
                let start = match is_on(Mutant::RepeatedReadBeginsInTheMiddle) {
                    true => resource.first,
                    false => start,
                };
                let opcode = match (next == start, next == end) {
                    (true, true) => Opcode::RC_READ_RESPONSE_ONLY,
                    (true, false) => Opcode::RC_READ_RESPONSE_FIRST,
                    (false, true) => Opcode::RC_READ_RESPONSE_LAST,
                    (false, false) => Opcode::RC_READ_RESPONSE_MIDDLE,
                };
                let mut headers = self.response_headers(link, opcode, next);
                headers.bth.pad = pad_len(payload_len);
                let len = headers.len() + payload_len + usize::from(headers.bth.pad) + ICRC_LEN;
                let payload = emit(&headers, batch.push(link.path, len)?, payload_len);
                let at = va.wrapping_add(offset);
                let rkey = verbs_api::RKey(rkey.0);
                let who = Accessor { pd, qpn: self.id.qpn };
                if payload_len > 0 && shared.memory.read_remote(who, rkey, at, payload).is_err() {
                    batch.pop();
                    self.stop_response(shared, next, reason);
                    return Some(0);
                }
                let debt = if next == end {
                    Debt::Nothing
                } else {
                    Debt::Packets {
                        start,
                        next: next + 1,
                        end,
                        reason,
                    }
                };
                self.responder.resources.owe(next, debt);
                note_sent(shared, len);
                Some(len)
            }
        }
    }

    /// The memory went away in the middle of a READ.
    fn stop_response(&mut self, shared: &mut Shared, psn: Seq, reason: Reason) {
        match reason {
            Reason::Duplicate => self.responder.resources.owe(psn, Debt::Nothing),
            Reason::Request => {
                self.responder.drop_debts();
                self.refuse_fatally(shared, psn, Some(NakCode::RemoteAccess));
                shared.raise(self.id.qpn.value(), verbs_api::EventKind::QpAccessErr);
                self.fail(shared);
            }
        }
    }

    fn send_nak(&mut self, shared: &mut Shared, batch: &mut TxBatch, link: &Link) -> Turn {
        if self.responder.nak.is_none() {
            return Turn::Done;
        }
        let probe = self.acknowledge_headers(link, Psn::new(0), Syndrome::ACK);
        if !batch.has_room(probe.len() + ICRC_LEN) {
            return Turn::BatchFull;
        }
        if let Some((psn, syndrome)) = self.responder.take_nak() {
            let headers = self.acknowledge_headers(link, psn, syndrome);
            push(shared, batch, link, &headers);
            // It acknowledges all before it.
            self.responder.note_acknowledged();
        }
        Turn::Done
    }

    /// Send the acknowledgements that are owed, unless something before them is owed still.
    pub(crate) fn send_ack(&mut self, shared: &mut Shared, batch: &mut TxBatch) -> Turn {
        let Some(link) = self.link else { return Turn::Done };
        if self.responder.resources.owes() {
            return Turn::Done;
        }
        // At most two: what a duplicate is answered with may lie before what came since, and a READ between them.
        while let Some(psn) = self.responder.next_ack() {
            let headers = self.acknowledge_headers(&link, psn.psn(), Syndrome::ACK);
            if push(shared, batch, &link, &headers).is_none() {
                return Turn::BatchFull;
            }
            self.responder.note_acknowledged_up_to(shared.now, psn);
        }
        self.arm(shared);
        Turn::Done
    }

    fn acknowledge_headers(&self, link: &Link, psn: Psn, syndrome: Syndrome) -> Headers {
        let opcode = Opcode::RC_ACKNOWLEDGE.of(self.transport());
        let mut headers = Headers::new(link.bth(opcode, psn));
        headers.aeth = Some(Aeth {
            syndrome,
            msn: self.responder.msn(),
        });
        headers
    }

    fn response_headers(&self, link: &Link, opcode: Opcode, psn: Seq) -> Headers {
        let mut headers = self.acknowledge_headers(link, psn.psn(), Syndrome::ACK);
        headers.bth.opcode = opcode.of(self.transport());
        headers
    }
}

fn send_cnp(shared: &mut Shared, batch: &mut TxBatch, link: &Link) -> bool {
    let mut bth = link.bth(Opcode::CNP, Psn::new(0));
    bth.becn = true;
    let headers = Headers::new(bth);
    let len = headers.len() + CNP_PAYLOAD_LEN + ICRC_LEN;
    let Some(out) = batch.push(link.path, len) else {
        return false;
    };
    emit(&headers, out, CNP_PAYLOAD_LEN).fill(0);
    note_sent(shared, len);
    shared.counters.np_cnp_sent += 1;
    true
}

/// Append a packet without payload; its length, or `None` when there is no room.
fn push(shared: &mut Shared, batch: &mut TxBatch, link: &Link, headers: &Headers) -> Option<usize> {
    let len = headers.len() + ICRC_LEN;
    emit(headers, batch.push(link.path, len)?, 0);
    note_sent(shared, len);
    Some(len)
}

fn note_sent(shared: &mut Shared, len: usize) {
    shared.counters.sent_pkts += 1;
    shared.counters.sent_bytes += len as u64;
}
