//! Messages of peers.

use std::net::IpAddr;

use roce_wire::Qpn;
use roce_wire::cm::ip::{IP_CM_LEN, IpCm};
use roce_wire::cm::{
    Apr, AprStatus, Drep, Message, Rej, RejectReason, RejectedMessage, Req, ServiceId, SidrRep, SidrReq,
    SidrStatus,
};
use softroce_engine::Time;

use super::asked::Wish;
use super::over::Asking;
use super::{Agent, CONNECTIONS_MAX, Peer, State, clock};
use crate::connection::{Clock, Connection};
use crate::event::{Event, Happened, Request};
use crate::state::Input;
use crate::timing::code_to_ns;

/// A message as it arrived.
struct Arrival<'a> {
    from: &'a Peer,
    transaction_id: u64,
    message: &'a Message,
}

impl Agent {
    /// Take a datagram of class 7 in, from queue pair `from.qpn` of `from.address` to the own address `from.own`. Total on
    /// hostile bytes.
    pub fn handle_mad(&mut self, now: Time, from: &Peer, mad: &[u8]) {
        let Ok((transaction_id, message)) = Message::parse(mad) else {
            self.counters.malformed += 1;
            return;
        };
        self.counters.received += 1;
        let arrival = Arrival {
            from,
            transaction_id,
            message: &message,
        };
        match &message {
            Message::Req(req) => self.handle_req(now, &arrival, req),
            Message::SidrReq(req) => self.handle_sidr_req(now, &arrival, req),
            _ => self.handle_answer(now, &arrival),
        }
    }

    /// A message about a connection that both know.
    fn handle_answer(&mut self, now: Time, arrival: &Arrival<'_>) {
        let Some(id) = self.id_of(arrival) else {
            self.counters.unknown_id += 1;
            self.answer_stranger(arrival);
            return;
        };
        if let Message::Dreq(dreq) = arrival.message
            && self.connections.get(&id).map(|connection| connection.local_qpn) != Some(dreq.remote_qpn)
        {
            self.counters.out_of_place += 1;
            return;
        }
        if self.asks_again(now, id, arrival.message) {
            return;
        }
        let input = match arrival.message {
            Message::Rep(rep) => {
                if !self.learn_responder(id, rep.local_comm_id, rep.local_ca_guid, rep.local_qpn) {
                    return;
                }
                self.counters.duplicates += u64::from(self.state(id) != State::ReqSent);
                Input::Rep
            }
            Message::Mra(mra) => {
                self.have_patience(id, mra.service_timeout);
                match mra.of_message {
                    0 => Input::MraOfReq,
                    1 => Input::MraOfRep,
                    _ => return,
                }
            }
            Message::Rej(rej) if rej.reason == RejectReason::STALE_CONNECTION => Input::RejStale,
            Message::Rej(_) => Input::Rej,
            Message::Rtu(_) => Input::Rtu,
            Message::Dreq(_) => Input::Dreq,
            Message::Drep(_) => Input::Drep,
            Message::Lap(_) => Input::Lap,
            Message::Apr(_) => Input::Apr,
            Message::SidrRep(_) => Input::SidrRep,
            Message::Req(_) | Message::SidrReq(_) => return,
        };
        if !self.input(now, id, input, Some(arrival.message)) {
            self.counters.out_of_place += 1;
        }
    }

    /// The connection that a message is about: both numbers and the address must be right. Only the first answer to a
    /// request brings the peer's number; a rejection may come from somebody who has none.
    fn id_of(&self, arrival: &Arrival<'_>) -> Option<u32> {
        let id = match arrival.message {
            // Who gave up may not know our number.
            Message::Rej(rej) if rej.remote_comm_id == 0 && rej.reason == RejectReason::TIMEOUT => self
                .asked
                .find(Wish::Connection, arrival.from.address, rej.local_comm_id)?,
            message => message.receiver_id()?,
        };
        let connection = self.connections.get(&id)?;
        let is_from_peer =
            connection.peer.address == arrival.from.address && connection.peer.own == arrival.from.own;
        let is_known = match (sender_id(arrival.message), connection.remote_id) {
            (None, _) | (Some(_), 0) => true,
            // Who refuses a request may have no number for it; a connection that is there is not refused any more.
            (Some(0), _) => {
                matches!(arrival.message, Message::Rej(_)) && connection.state != State::Established
            }
            (Some(sender), known) => sender == known,
        };
        (is_from_peer && is_known).then_some(id)
    }

    /// A reply tells who has answered. False when it is from another connection of the peer's than an earlier one.
    fn learn_responder(&mut self, id: u32, remote_id: u32, ca_guid: u64, qpn: Qpn) -> bool {
        let Some(connection) = self.connections.get_mut(&id) else {
            return false;
        };
        if !matches!(connection.state, State::ReqSent | State::MraReqReceived) {
            return true;
        }
        connection.remote_id = remote_id;
        connection.remote_ca_guid = ca_guid;
        connection.remote_qpn = qpn;
        let address = connection.peer.address;
        self.remote_qps
            .entry((address, ca_guid, qpn.value()))
            .or_insert(id);
        true
    }

    /// What must be answered although nobody here knows the connection (IBA 12.9.8).
    fn answer_stranger(&mut self, arrival: &Arrival<'_>) {
        let answer = match arrival.message {
            Message::Dreq(dreq) => Message::Drep(Drep {
                local_comm_id: dreq.remote_comm_id,
                remote_comm_id: dreq.local_comm_id,
                ..Drep::default()
            }),
            Message::Rep(rep) => Message::Rej(Rej {
                remote_comm_id: rep.local_comm_id,
                local_comm_id: rep.remote_comm_id,
                of_message: RejectedMessage::REP,
                reason: RejectReason::INVALID_COMM_ID,
                ..Rej::default()
            }),
            Message::Lap(lap) => Message::Apr(Apr {
                local_comm_id: lap.remote_comm_id,
                remote_comm_id: lap.local_comm_id,
                status: AprStatus::INVALID_COMM_ID,
                ..Apr::default()
            }),
            Message::Mra(_)
            | Message::Rej(_)
            | Message::Rtu(_)
            | Message::Drep(_)
            | Message::Apr(_)
            | Message::Req(_)
            | Message::SidrReq(_)
            | Message::SidrRep(_) => return,
        };
        self.counters.sent += 1;
        self.outbox.send(arrival.from, arrival.transaction_id, &answer);
    }

    fn handle_req(&mut self, now: Time, arrival: &Arrival<'_>, req: &Req) {
        let asker = arrival.from.address;
        if let Some(id) = self.asked.find(Wish::Connection, asker, req.local_comm_id) {
            self.counters.duplicates += 1;
            if !self.confirms_early(now, id) {
                self.input(now, id, Input::Req, Some(arrival.message));
            }
            return;
        }
        let stale = self
            .remote_qps
            .get(&(arrival.from.address, req.local_ca_guid, req.local_qpn.value()))
            .copied();
        if self.answers_late_copy(now, arrival.from, &asking(arrival, req), stale.is_some()) {
            return;
        }
        if let Some(old) = stale {
            self.counters.stale += 1;
            self.input(now, old, Input::Stale, None);
            return self.refuse(now, arrival, req, RejectReason::STALE_CONNECTION);
        }
        let Some(ip) = check_ip(arrival.from, req.service_id, &req.private_data) else {
            return self.refuse(now, arrival, req, RejectReason::CONSUMER);
        };
        if req.primary.local_gid != mapped(arrival.from.address) {
            return self.refuse(now, arrival, req, RejectReason::INVALID_GID);
        }
        let Some(owner) = self.take_place(asker, req.service_id) else {
            if !self.listeners.contains_key(&req.service_id) {
                self.counters.no_listener += 1;
                self.refuse(now, arrival, req, RejectReason::INVALID_SERVICE_ID);
            }
            return;
        };
        let id = self.ids.next(|id| self.connections.contains_key(&id));
        let peer = Peer {
            traffic_class: req.primary.traffic_class,
            ..*arrival.from
        };
        let patience_ns = code_to_ns(req.local_response_timeout);
        let timewait_ns = code_to_ns(req.primary.ack_timeout);
        let connection = Connection {
            state: State::ReqReceived,
            remote_id: req.local_comm_id,
            owner: Some(owner),
            transaction_id: arrival.transaction_id,
            remote_ca_guid: req.local_ca_guid,
            remote_qpn: req.local_qpn,
            listener: Some(req.service_id),
            service: req.service_id,
            clock: Clock {
                due: Some(now + patience_ns),
                ..clock(patience_ns, req.max_cm_retries, timewait_ns)
            },
            ..self.blank(now, id, peer)
        };
        self.asked.note(Wish::Connection, asker, req.local_comm_id, id);
        self.remote_qps.insert(
            (arrival.from.address, req.local_ca_guid, req.local_qpn.value()),
            id,
        );
        self.connections.insert(id, Box::new(connection));
        let request = Request {
            own: arrival.from.own,
            peer: arrival.from.address,
            service: req.service_id,
            ip,
            private_data: programs_part(ip.is_some(), &req.private_data),
            req: Some(Box::new(*req)),
        };
        self.ask_owner(id, owner, request);
    }

    fn handle_sidr_req(&mut self, now: Time, arrival: &Arrival<'_>, req: &SidrReq) {
        let asker = arrival.from.address;
        if let Some(id) = self.asked.find(Wish::Datagrams, asker, req.request_id) {
            self.counters.duplicates += 1;
            self.input(now, id, Input::SidrReq, Some(arrival.message));
            return;
        }
        let Some(ip) = check_ip(arrival.from, req.service_id, &req.private_data) else {
            return self.refuse_sidr(arrival, req, SidrStatus::REJECTED);
        };
        let Some(owner) = self.take_place(asker, req.service_id) else {
            if !self.listeners.contains_key(&req.service_id) {
                self.counters.no_listener += 1;
                self.refuse_sidr(arrival, req, SidrStatus::UNSUPPORTED);
            }
            return;
        };
        let id = self.ids.next(|id| self.connections.contains_key(&id));
        let connection = Connection {
            state: State::SidrReqReceived,
            remote_id: req.request_id,
            owner: Some(owner),
            transaction_id: arrival.transaction_id,
            listener: Some(req.service_id),
            service: req.service_id,
            clock: clock(code_to_ns(super::RESPONSE_TIMEOUT), 0, 0),
            ..self.blank(now, id, *arrival.from)
        };
        self.asked.note(Wish::Datagrams, asker, req.request_id, id);
        self.connections.insert(id, Box::new(connection));
        let request = Request {
            own: arrival.from.own,
            peer: arrival.from.address,
            service: req.service_id,
            ip,
            private_data: programs_part(ip.is_some(), &req.private_data),
            req: None,
        };
        self.ask_owner(id, owner, request);
    }

    /// A place in the backlog of the service's listener; its owner. A peer that finds none asks again later.
    fn take_place(&mut self, asker: IpAddr, service: ServiceId) -> Option<u64> {
        let is_full = self.connections.len() >= CONNECTIONS_MAX || self.asked.has_its_share(asker);
        let listener = self.listeners.get_mut(&service)?;
        if is_full || listener.waiting >= listener.backlog {
            self.counters.backlog_full += 1;
            return None;
        }
        listener.waiting += 1;
        Some(listener.owner)
    }

    fn ask_owner(&mut self, id: u32, owner: u64, request: Request) {
        self.outbox.tell(Event {
            id,
            owner,
            happened: Happened::Requested(Box::new(request)),
        });
    }

    /// Refuse a request of which only that is kept.
    fn refuse(&mut self, now: Time, arrival: &Arrival<'_>, req: &Req, reason: RejectReason) {
        self.counters.sent += 1;
        let rej = Message::Rej(Rej {
            remote_comm_id: req.local_comm_id,
            of_message: RejectedMessage::REQ,
            reason,
            ..Rej::default()
        });
        self.outbox.send(arrival.from, arrival.transaction_id, &rej);
        self.over.note(now, asking(arrival, req), Some(Box::new(rej)));
    }

    fn refuse_sidr(&mut self, arrival: &Arrival<'_>, req: &SidrReq, status: SidrStatus) {
        self.counters.sent += 1;
        let rep = Message::SidrRep(SidrRep {
            request_id: req.request_id,
            status,
            service_id: req.service_id,
            ..SidrRep::default()
        });
        self.outbox.send(arrival.from, arrival.transaction_id, &rep);
    }
}

fn asking(arrival: &Arrival<'_>, req: &Req) -> Asking {
    Asking {
        asker: arrival.from.address,
        remote_id: req.local_comm_id,
        transaction_id: arrival.transaction_id,
    }
}

/// What RDMA CM put in front, for services of ports; `None` when it is not as it must be.
#[allow(clippy::option_option, reason = "not there, and wrong, are two things")]
fn check_ip(from: &Peer, service: ServiceId, private_data: &[u8]) -> Option<Option<IpCm>> {
    if service.port().is_none() {
        return Some(None);
    }
    let ip = IpCm::parse(private_data).ok()?;
    let is_true = ip.source.ip() == from.address && ip.destination == from.own;
    is_true.then_some(Some(ip))
}

/// The program's private data: the whole rest of the field, since its length does not travel.
fn programs_part(has_ip: bool, private_data: &[u8]) -> Vec<u8> {
    let start = if has_ip { IP_CM_LEN } else { 0 };
    private_data.get(start..).unwrap_or_default().to_vec()
}

/// The number by which the sender knows the connection; `None` in answers about datagrams.
fn sender_id(message: &Message) -> Option<u32> {
    match message {
        Message::Req(message) => Some(message.local_comm_id),
        Message::Mra(message) => Some(message.local_comm_id),
        Message::Rej(message) => Some(message.local_comm_id),
        Message::Rep(message) => Some(message.local_comm_id),
        Message::Rtu(message) => Some(message.local_comm_id),
        Message::Dreq(message) => Some(message.local_comm_id),
        Message::Drep(message) => Some(message.local_comm_id),
        Message::Lap(message) => Some(message.local_comm_id),
        Message::Apr(message) => Some(message.local_comm_id),
        Message::SidrReq(_) | Message::SidrRep(_) => None,
    }
}

/// As a GID.
fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
