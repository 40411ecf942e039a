//! The communication manager of a port.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use roce_wire::Qpn;
use roce_wire::cm::{Message, RejectReason, Rep, Req, Rtu, ServiceId, SidrRep, SidrReq};
use softroce_engine::Time;
use verbs_api::{Error, ErrorKind, Result};

pub use self::handshake::Handshake;
pub use self::peer::{Peer, Reach};

use self::asked::Asked;
use self::over::Over;
use crate::connection::{Attempts, Clock, Connection, SERVICE_TIMEOUT};
use crate::counters::Counters;
use crate::event::{Event, Outgoing};
use crate::ids::Ids;
use crate::outbox::Outbox;
use crate::state::{Input, State};
use crate::timing::{PACKET_LIFETIME, code_to_ns};

mod asked;
mod early;
mod execute;
mod handshake;
mod not_yet;
mod over;
mod peer;
mod receive;

/// Connections of an agent, those that are over and wait for their time included.
const CONNECTIONS_MAX: usize = 1 << 17;
/// Requests that may wait at one listener, whatever it asks for.
const BACKLOG_MAX: u32 = 1 << 16;
/// Code of the time that a reply may take, and how often messages are sent again. The choices of RDMA CM.
const RESPONSE_TIMEOUT: u8 = 20;
const RETRIES: u8 = 15;

/// A connection to be asked for.
#[derive(Clone, Debug)]
pub struct Connect {
    /// Whom to ask.
    pub peer: Peer,
    /// Comes back with every event.
    pub owner: u64,
    /// The request, but for what the agent knows: own number and GUID, time-outs and retries.
    pub req: Req,
}

/// A refusal by the program.
#[derive(Clone, Copy, Debug)]
pub struct Refuse<'a> {
    /// Why; [`RejectReason::CONSUMER`] is the program's own.
    pub reason: RejectReason,
    /// More about it, at most 72 bytes.
    pub info: &'a [u8],
    /// For the peer's program, at most 148 bytes.
    pub private_data: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
struct Listener {
    owner: u64,
    backlog: u32,
    waiting: u32,
}

/// See the [crate's documentation](crate).
#[derive(Debug)]
pub struct Agent {
    ids: Ids,
    ca_guid: u64,
    connections: BTreeMap<u32, Box<Connection>>,
    listeners: BTreeMap<ServiceId, Listener>,
    /// What peers have asked for: connections, and services of datagrams.
    asked: Asked,
    over: Over,
    /// Peers' queue pairs, by address, GUID and number: to know one that is connected anew. The address is in it so that a
    /// stranger who names another's queue pair does not end its connection.
    remote_qps: BTreeMap<(IpAddr, u64, u32), u32>,
    timers: BTreeSet<(Time, u32)>,
    outbox: Outbox,
    counters: Counters,
}

impl Agent {
    /// An agent of the device `ca_guid`. All its numbers begin with `prefix`, by which answers find this process.
    pub fn new(seed: u64, prefix: u8, ca_guid: u64) -> Self {
        Agent {
            ids: Ids::new(prefix, seed),
            ca_guid,
            connections: BTreeMap::new(),
            listeners: BTreeMap::new(),
            asked: Asked::default(),
            over: Over::default(),
            remote_qps: BTreeMap::new(),
            timers: BTreeSet::new(),
            outbox: Outbox::default(),
            counters: Counters::default(),
        }
    }

    /// Listen: requests for `service` become events of `owner`, of which `backlog` may wait.
    ///
    /// # Errors
    /// EADDRINUSE: somebody listens already.
    pub fn listen(&mut self, service: ServiceId, owner: u64, backlog: u32) -> Result<()> {
        if self.listeners.contains_key(&service) {
            return Err(Error::new(
                ErrorKind::AddressInUse,
                format!("somebody listens on {service} already"),
            ));
        }
        let listener = Listener {
            owner,
            backlog: backlog.clamp(1, BACKLOG_MAX),
            waiting: 0,
        };
        self.listeners.insert(service, listener);
        Ok(())
    }

    /// Listen no more. Requests that wait stay with their owners.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.listeners.remove(&service);
    }

    /// Ask for a connection; its number.
    ///
    /// # Errors
    /// ENOMEM: the bound of connections is reached.
    pub fn connect(&mut self, now: Time, connect: Connect) -> Result<u32> {
        self.check_room()?;
        let id = self.ids.next(|id| self.connections.contains_key(&id));
        let mut req = connect.req;
        req.local_comm_id = id;
        req.local_ca_guid = self.ca_guid;
        req.remote_response_timeout = RESPONSE_TIMEOUT;
        req.local_response_timeout = RESPONSE_TIMEOUT;
        req.max_cm_retries = RETRIES;
        let connection = Connection {
            state: State::ReqSent,
            service: req.service_id,
            local_qpn: req.local_qpn,
            owner: Some(connect.owner),
            clock: clock(PATIENCE_FOR_REP_NS, RETRIES, code_to_ns(req.primary.ack_timeout)),
            ..self.blank(now, id, connect.peer)
        };
        self.start(now, connection, Message::Req(req));
        Ok(id)
    }

    /// Ask who serves a service of datagrams; the number of the question.
    ///
    /// # Errors
    /// ENOMEM: the bound of connections is reached.
    pub fn resolve(&mut self, now: Time, peer: Peer, owner: u64, mut req: SidrReq) -> Result<u32> {
        self.check_room()?;
        let id = self.ids.next(|id| self.connections.contains_key(&id));
        req.request_id = id;
        let connection = Connection {
            state: State::SidrReqSent,
            service: req.service_id,
            owner: Some(owner),
            clock: clock(code_to_ns(RESPONSE_TIMEOUT), RETRIES, 0),
            ..self.blank(now, id, peer)
        };
        self.start(now, connection, Message::SidrReq(req));
        Ok(id)
    }

    /// Reply to a request. The agent fills in both numbers and the GUID.
    ///
    /// # Errors
    /// EINVAL: there is no such request, or it is too late.
    pub fn reply(&mut self, now: Time, id: u32, mut rep: Rep) -> Result<()> {
        let connection = self.find(id)?;
        rep.local_comm_id = id;
        rep.remote_comm_id = connection.remote_id;
        rep.local_ca_guid = self.ca_guid;
        self.command(now, id, Input::Reply, Some(Message::Rep(rep)))
    }

    /// Refuse a request, or a reply.
    ///
    /// # Errors
    /// EINVAL: there is nothing to refuse; too much additional information or private data.
    pub fn reject(&mut self, now: Time, id: u32, refuse: &Refuse<'_>) -> Result<()> {
        check_length("additional information of a rejection", refuse.info, 72)?;
        check_length("private data of a rejection", refuse.private_data, 148)?;
        let rej = self
            .find(id)?
            .rej(refuse.reason, refuse.info, refuse.private_data);
        self.command(now, id, Input::Reject, Some(rej))
    }

    /// After a reply: the queue pair is ready.
    ///
    /// # Errors
    /// EINVAL: there is no reply that waits; more than 224 bytes.
    pub fn ready(&mut self, now: Time, id: u32, private_data: &[u8]) -> Result<()> {
        check_length("private data of a last message", private_data, 224)?;
        let connection = self.find(id)?;
        let mut rtu = Rtu {
            local_comm_id: id,
            remote_comm_id: connection.remote_id,
            ..Rtu::default()
        };
        rtu.private_data[..private_data.len()].copy_from_slice(private_data);
        self.command(now, id, Input::Ready, Some(Message::Rtu(rtu)))
    }

    /// Ask the peer for patience.
    ///
    /// # Errors
    /// EINVAL: there is no request or reply that waits.
    pub fn delay(&mut self, now: Time, id: u32) -> Result<()> {
        let mra = self.find(id)?.mra(SERVICE_TIMEOUT);
        self.command(now, id, Input::Delay, Some(mra))
    }

    /// Data of the peer's has come before its last message: the connection is there.
    ///
    /// # Errors
    /// EINVAL: no reply is out.
    pub fn establish(&mut self, now: Time, id: u32) -> Result<()> {
        self.command(now, id, Input::Establish, None)
    }

    /// End a connection, or agree to its end.
    ///
    /// # Errors
    /// EINVAL: there is no connection; more than 220 bytes.
    pub fn disconnect(&mut self, now: Time, id: u32, private_data: &[u8]) -> Result<()> {
        check_length("private data of a disconnection", private_data, 220)?;
        let connection = self.find(id)?;
        let message = match connection.state {
            State::DreqReceived => connection.drep(private_data),
            _ => connection.dreq(private_data),
        };
        self.command(now, id, Input::Disconnect, Some(message))
    }

    /// Answer about a service of datagrams. The agent fills in the number and the service.
    ///
    /// # Errors
    /// EINVAL: nobody asks.
    pub fn answer(&mut self, now: Time, id: u32, mut rep: SidrRep) -> Result<()> {
        let connection = self.find(id)?;
        rep.request_id = connection.remote_id;
        rep.service_id = connection.service;
        self.command(now, id, Input::Answer, Some(Message::SidrRep(rep)))
    }

    /// Give a request its own owner, in place of the listener's.
    pub fn adopt(&mut self, id: u32, owner: u64) {
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.owner = Some(owner);
        }
    }

    /// Nobody cares for the connection any more: it ends as the protocol wants, and no event comes.
    pub fn destroy(&mut self, now: Time, id: u32) {
        self.outbox.forget(id);
        if let Some(connection) = self.connections.get_mut(&id) {
            connection.owner = None;
            // It cannot be refused.
            let _ = self.command(now, id, Input::Destroy, None);
        }
    }

    /// Nobody cares for any connection any more: the process ends.
    pub fn leave(&mut self, now: Time) {
        let ids: Vec<u32> = self.connections.keys().copied().collect();
        for id in ids {
            self.destroy(now, id);
        }
    }

    /// Deadlines up to `now` have passed.
    pub fn handle_timeout(&mut self, now: Time) {
        while let Some((deadline, id)) = self.timers.first().copied()
            && deadline <= now
        {
            self.timers.pop_first();
            self.time_out(now, id);
        }
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.outbox.poll_transmit()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.outbox.poll_event()
    }

    /// When [`handle_timeout`](Agent::handle_timeout) must be called next.
    pub fn poll_timeout(&self) -> Option<Time> {
        self.timers.first().map(|(deadline, _)| *deadline)
    }

    /// Where a connection stands; [`State::Closed`] when there is none.
    pub fn state(&self, id: u32) -> State {
        self.connections
            .get(&id)
            .map_or(State::Closed, |connection| connection.state)
    }

    /// Connections that exist, in whatever state.
    pub fn connection_count(&self) -> usize {
        self.connections.len()
    }

    /// What it has counted.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// 64 bits that follow from the seed: for starting PSNs.
    pub fn random(&mut self) -> u64 {
        self.ids.random()
    }

    fn find(&self, id: u32) -> Result<&Connection> {
        self.connections
            .get(&id)
            .map(|connection| &**connection)
            .ok_or_else(|| Error::invalid("the connection does not exist (any more)"))
    }

    fn check_room(&self) -> Result<()> {
        if self.connections.len() < CONNECTIONS_MAX {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::NoMemory,
            format!(
                "all {CONNECTIONS_MAX} connections of the device are in use, those included that have just ended"
            ),
        ))
    }

    fn blank(&mut self, now: Time, id: u32, peer: Peer) -> Connection {
        Connection {
            state: State::Closed,
            id,
            remote_id: 0,
            peer,
            owner: None,
            transaction_id: self.ids.random(),
            remote_ca_guid: 0,
            remote_qpn: Qpn::default(),
            local_qpn: Qpn::default(),
            listener: None,
            service: ServiceId::default(),
            last: None,
            clock: clock(0, 0, 0),
            attempts: Attempts { sent: 0, since: now },
        }
    }
}

/// From one REQ to the next: the time that the peer may take, and the way there and back.
const PATIENCE_FOR_REP_NS: u64 = {
    let way = 1_u64 << (PACKET_LIFETIME - 8);
    let answer = 1_u64 << (RESPONSE_TIMEOUT - 8);
    (2 * way + answer) * 1_000_000
};

fn clock(interval_ns: u64, retries: u8, timewait_ns: u64) -> Clock {
    Clock {
        deadline: None,
        due: None,
        interval_ns,
        patience_ns: 0,
        timewait_ns,
        retries_left: retries,
        retries_max: retries,
        unheard_left: not_yet::TRIES,
        early_left: early::REPEATS,
    }
}

fn check_length(what: &str, bytes: &[u8], most: usize) -> Result<()> {
    if bytes.len() <= most {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{} bytes do not fit: the {what} has room for {most}",
        bytes.len()
    )))
}

#[cfg(test)]
mod tests;
