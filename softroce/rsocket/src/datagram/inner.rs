//! What is behind the lock of a datagram socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs_api::{
    CmEvent, CmEventKind, CmId, CmPortSpace, ConnectionManager, ConnectionParameters, Provider, QpType,
    Result,
};

use super::peers::{Peer, Peers};
use super::station::{QKEY, Station};
use crate::attendant::Attended;
use crate::connected::Ready;
use crate::errors::{Errno, error};
use crate::front::Behind;
use crate::options::Settings;

/// For each step of the resolution.
const RESOLUTION: Duration = Duration::from_secs(2);
/// Questions that may wait.
const BACKLOG: u32 = 128;
/// Events that one look takes in: whoever floods the socket with questions does not keep its program from its data.
const EVENTS_MAX: usize = 256;
/// The cookie of the listener; those of questions count from 1.
const LISTENER: u64 = 0;

/// See the module's documentation.
pub(super) struct Inner<M: ConnectionManager> {
    pub(super) cm: Arc<M>,
    pub(super) settings: Arc<Settings>,
    /// Once bound.
    pub(super) listener: Option<M::Id>,
    pub(super) stations: Vec<Station<M::P>>,
    pub(super) peers: Peers<M>,
    pub(super) next_cookie: u64,
    /// The peer that the program has chosen.
    pub(super) chosen: Option<SocketAddr>,
    /// Why the latest question had no answer, and whose it was.
    pub(super) failure: Option<(SocketAddr, Errno)>,
    pub(super) is_closed: bool,
}

impl<M: ConnectionManager> Behind for Inner<M> {
    type M = M;

    fn pump(&mut self) -> Result<bool> {
        let found = self.poll_stations()?;
        Ok(self.take_events()? || found)
    }

    fn arm(&mut self) -> Result<bool> {
        // More of them show on their descriptor, armed or not.
        let mut found = self.take_events()?;
        loop {
            self.stations.iter_mut().try_for_each(Station::arm)?;
            match self.poll_stations()? {
                true => found = true,
                false => return Ok(found),
            }
        }
    }

    fn attend(&mut self) -> Result<Attended> {
        Ok(match (self.is_closed, self.take_events()?) {
            (true, _) => Attended::Over,
            (false, true) => Attended::Something,
            (false, false) => Attended::Nothing,
        })
    }

    fn look_at_peer(&mut self, _now: Instant) -> Result<()> {
        Ok(())
    }

    fn cm(&self) -> &Arc<M> {
        &self.cm
    }

    fn channels(&self) -> Vec<<M::P as Provider>::Channel> {
        self.stations.iter().map(Station::channel).collect()
    }
}

impl<M: ConnectionManager> Inner<M> {
    /// Nothing yet.
    pub(super) fn new(cm: Arc<M>, settings: Arc<Settings>) -> Self {
        Inner {
            cm,
            settings,
            listener: None,
            stations: Vec::new(),
            peers: Peers::default(),
            next_cookie: LISTENER + 1,
            chosen: None,
            failure: None,
            is_closed: false,
        }
    }

    pub(super) fn bind(&mut self, local: SocketAddr) -> Result<()> {
        if self.listener.is_some() {
            return Err(error(Errno::EINVAL, "the socket is bound already"));
        }
        let id = self.cm.create_id(CmPortSpace::Udp, LISTENER)?;
        let options = self.settings.options();
        if options.reuse_address {
            id.set_reuse_address(true)?;
        }
        if options.only_own_family {
            id.set_only_own_family(true)?;
        }
        id.bind_addr(local)?;
        id.listen(BACKLOG)?;
        self.listener = Some(id);
        Ok(())
    }

    pub(super) fn bind_if_not_yet(&mut self) -> Result<()> {
        match self.listener {
            Some(_) => Ok(()),
            None => self.bind(self.settings.family().any()),
        }
    }

    fn port(&self) -> u16 {
        let local = self.listener.as_ref().and_then(CmId::local_addr);
        local.map_or(0, |local| local.port())
    }

    fn poll_stations(&mut self) -> Result<bool> {
        let mut found = false;
        for station in &mut self.stations {
            found |= station.poll()?;
        }
        Ok(found)
    }

    /// Questions, and answers to ours. True when there was something.
    fn take_events(&mut self) -> Result<bool> {
        for taken in 0..EVENTS_MAX {
            let Some(event) = self.cm.wait(Some(Duration::ZERO))? else {
                return Ok(taken > 0);
            };
            self.handle(event);
        }
        Ok(true)
    }

    fn handle(&mut self, mut event: CmEvent<M>) {
        if let Some(request) = event.request.take() {
            drop(event);
            // Dropped unanswered, it is refused.
            if let Err(error) = self.answer(&request) {
                tracing::warn!(%error, "a peer's question where to send to is refused");
            }
            return;
        }
        let Some((address, id)) = self.peers.asked(event.cookie) else {
            return;
        };
        let went_on = match event.kind {
            CmEventKind::AddrResolved => id.resolve_route(RESOLUTION),
            CmEventKind::RouteResolved => self.ask(address),
            CmEventKind::Established => self.learn(address, &event),
            kind => {
                let errno = match event.status {
                    status if status < 0 => Errno::from_raw(-status),
                    _ => Errno::ECONNREFUSED,
                };
                tracing::info!(%address, ?kind, status = event.status, "no answer where to send to");
                Err(error(errno, "no answer"))
            }
        };
        drop(event);
        if let Err(error) = went_on {
            self.failure = Some((address, Errno::from_raw(error.errno())));
            self.peers.forget(address);
        }
    }

    /// Somebody asks where to send to.
    fn answer(&mut self, request: &M::Id) -> Result<()> {
        let station = self.station_of(request)?;
        let parameters = ConnectionParameters {
            qp: Some((self.stations[station].qpn(), QpType::Ud)),
            qkey: Some(QKEY),
            ..ConnectionParameters::default()
        };
        // One who has given up meanwhile asks again, or not.
        let _ = request.accept(Some(&parameters));
        Ok(())
    }

    /// The station on the device of an id, made when there is none.
    fn station_of(&mut self, id: &M::Id) -> Result<usize> {
        let missing = || error(Errno::ENETUNREACH, "an id without a device");
        let device = id.device_name().ok_or_else(missing)?;
        if let Some(known) = self.stations.iter().position(|station| station.device == device) {
            return Ok(known);
        }
        let context = id.context().ok_or_else(missing)?;
        let ip = id.local_addr().ok_or_else(missing)?.ip();
        self.stations
            .push(Station::new(&context, device, ip, &self.settings.options())?);
        Ok(self.stations.len() - 1)
    }

    /// Start to ask somebody.
    pub(super) fn start_to_ask(&mut self, address: SocketAddr) -> Result<()> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let id = self.cm.create_id(CmPortSpace::Udp, cookie)?;
        id.resolve_addr(None, address, RESOLUTION)?;
        self.peers.set(address, Peer::Asked { id, cookie });
        Ok(())
    }

    fn ask(&mut self, address: SocketAddr) -> Result<()> {
        // Taken out, since its device may need a station.
        let Some(Peer::Asked { id, cookie }) = self.peers.take(address) else {
            return Ok(());
        };
        let station = self.station_of(&id)?;
        id.connect(&ConnectionParameters {
            qp: Some((self.stations[station].qpn(), QpType::Ud)),
            ..ConnectionParameters::default()
        })?;
        self.peers.set(address, Peer::Asked { id, cookie });
        Ok(())
    }

    fn learn(&mut self, address: SocketAddr, event: &CmEvent<M>) -> Result<()> {
        let refused = || error(Errno::ECONNREFUSED, "an answer without an address");
        let found = event.datagram_peer.ok_or_else(refused)?;
        let Some(Peer::Asked { id, .. }) = self.peers.get(address) else {
            return Ok(());
        };
        let device = id.device_name().ok_or_else(refused)?;
        let known = self.stations.iter().position(|station| station.device == device);
        let station = known.ok_or_else(refused)?;
        let destination = self.stations[station].destination(&found.av, found.qp_num, found.qkey)?;
        self.peers.set(address, Peer::Known { station, destination });
        Ok(())
    }

    /// Send, if the peer is known and there is room.
    pub(super) fn send(&mut self, to: Option<SocketAddr>, bytes: &[u8]) -> Result<Option<usize>> {
        self.check_open()?;
        let to = to.or(self.chosen).ok_or_else(|| {
            error(
                Errno::EDESTADDRREQ,
                "the socket is not connected; say where to send to",
            )
        })?;
        if let Some((address, errno)) = self.failure
            && address == to
        {
            self.failure = None;
            return Err(error(errno, format!("{to} does not answer: {errno}")));
        }
        self.bind_if_not_yet()?;
        let port = self.port();
        match self.peers.destination(to) {
            Some((station, destination)) => {
                let sent = self.stations[station].send(port, destination, bytes)?;
                Ok(sent.then_some(bytes.len()))
            }
            None => {
                if self.peers.get(to).is_none() {
                    self.start_to_ask(to)?;
                }
                Ok(None)
            }
        }
    }

    /// The station whose oldest datagram is for us to read; those of others than the chosen peer are dropped.
    fn waiting(&mut self) -> Result<Option<usize>> {
        let chosen = self.chosen;
        for (position, station) in self.stations.iter_mut().enumerate() {
            while let Some(first) = station.first() {
                if chosen.is_none_or(|chosen| chosen == first.from) {
                    return Ok(Some(position));
                }
                station.discard()?;
            }
        }
        Ok(None)
    }

    pub(super) fn receive(&mut self, out: &mut [u8], is_peek: bool) -> Result<Option<(usize, SocketAddr)>> {
        self.check_open()?;
        let Some(position) = self.waiting()? else {
            return Ok(None);
        };
        let station = &mut self.stations[position];
        let Some(first) = station.first().copied() else {
            return Ok(None);
        };
        let count = station.copy(&first, out);
        let is_news = match self.peers.destination(first.from) {
            Some((_, known)) => !Station::is_way_back(known, &first),
            None => true,
        };
        if is_news && let Ok(destination) = station.way_back(&first) {
            let peer = Peer::Known {
                station: position,
                destination,
            };
            self.peers.set(first.from, peer);
        }
        if !is_peek {
            station.discard()?;
        }
        Ok(Some((count, first.from)))
    }

    fn check_open(&self) -> Result<()> {
        match self.is_closed {
            true => Err(error(Errno::EBADF, "the socket is closed")),
            false => Ok(()),
        }
    }

    pub(super) fn ready(&mut self) -> Result<Ready> {
        let has_failed = self.failure.is_some();
        let has_room = self.stations.iter().all(Station::can_send) && !self.peers.is_asking();
        Ok(Ready {
            input: self.waiting()?.is_some() || has_failed || self.is_closed,
            output: has_room || has_failed || self.is_closed,
            hang_up: self.is_closed,
            error: has_failed,
        })
    }
}
