//! What is behind the lock of a datagram socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use verbs_api::{CmId, CmPortSpace, ConnectionManager, Error, Object, Provider, Result};

use super::peers::{Peer, Peers};
use super::station::Station;
use crate::attendant::Attended;
use crate::connected::Ready;
use crate::errors::{Errno, error};
use crate::front::Behind;
use crate::options::Settings;

/// Questions that may wait.
const BACKLOG: u32 = 128;
/// Events that one look takes in: whoever floods the socket with questions does not keep its program from its data.
const EVENTS_MAX: usize = 256;
/// What calls say of a socket whose device is gone.
const GONE: Errno = Errno::ENETDOWN;
/// The cookie of the listener; those of questions count from 1.
const LISTENER: u64 = 0;

/// Whether calls still work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Life {
    Alive,
    /// The device is gone.
    Gone,
    Closed,
}

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
    /// Why a question had no answer, and whose it was: told once, by whatever call comes first.
    pub(super) failure: Option<(SocketAddr, Errno)>,
    /// The latest question that had no answer, by its cookie: for a call that waits for it, when another was told.
    pub(super) unanswered: Option<(u64, Errno)>,
    pub(super) life: Life,
}

impl<M: ConnectionManager> Behind for Inner<M> {
    type M = M;

    fn pump(&mut self) -> Result<bool> {
        let found = self.poll_stations()?;
        let found = self.take_events()? || found;
        self.check_device()?;
        Ok(found)
    }

    fn arm(&mut self) -> Result<bool> {
        // More of them show on their descriptor, armed or not.
        let mut found = self.take_events()?;
        self.check_device()?;
        loop {
            self.stations.iter_mut().try_for_each(Station::arm)?;
            match self.poll_stations()? {
                true => found = true,
                false => return Ok(found),
            }
        }
    }

    fn attend(&mut self) -> Result<Attended> {
        Ok(match (self.life, self.take_events()?) {
            (Life::Closed, _) => Attended::Over,
            (Life::Alive | Life::Gone, true) => Attended::Something,
            (Life::Alive | Life::Gone, false) => Attended::Nothing,
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
            unanswered: None,
            life: Life::Alive,
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

    /// Send, if the peer is known and there is room. `question` is the call's own: which question it waits for.
    pub(super) fn send(
        &mut self,
        to: Option<SocketAddr>,
        bytes: &[u8],
        question: &mut Option<u64>,
    ) -> Result<Option<usize>> {
        self.check_open()?;
        let to = to.or(self.chosen).ok_or_else(|| {
            error(
                Errno::EDESTADDRREQ,
                "the socket is not connected; say where to send to",
            )
        })?;
        if self.failure.is_some_and(|(address, _)| address == to) {
            self.tell_failure()?;
        }
        if let Some((cookie, errno)) = self.unanswered
            && *question == Some(cookie)
        {
            return Err(unreachable(to, errno));
        }
        self.bind_if_not_yet()?;
        let port = self.port();
        match self.peers.get(to) {
            Some(Peer::Known { station, destination }) => {
                let sent = self.stations[*station].send(port, destination, bytes)?;
                Ok(sent.then_some(bytes.len()))
            }
            Some(Peer::Asked { cookie, .. }) => {
                *question = Some(*cookie);
                Ok(None)
            }
            None => {
                *question = Some(self.start_to_ask(to)?);
                Ok(None)
            }
        }
    }

    /// The failure that waits, as an error: from now on it does not wait any more.
    fn tell_failure(&mut self) -> Result<()> {
        match self.failure.take() {
            Some((address, errno)) => Err(unreachable(address, errno)),
            None => Ok(()),
        }
    }

    /// The same as a number (`SO_ERROR`). That of a device that is gone stays.
    pub(super) fn take_failure(&mut self) -> Option<Errno> {
        match self.life {
            Life::Gone => Some(GONE),
            Life::Alive | Life::Closed => self.failure.take().map(|(_, errno)| errno),
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
        // As sockets of UDP do: before what has arrived.
        self.tell_failure()?;
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

    /// No call works any more.
    pub(super) fn close(&mut self) {
        self.life = Life::Closed;
        self.peers = Peers::default();
        drop(self.listener.take().map(Object::destroy));
    }

    fn check_open(&self) -> Result<()> {
        match self.life {
            Life::Closed => Err(error(Errno::EBADF, "the socket is closed")),
            Life::Alive | Life::Gone => self.check_device(),
        }
    }

    fn check_device(&self) -> Result<()> {
        match self.life {
            Life::Gone => Err(error(GONE, "the device of the socket is gone")),
            Life::Alive | Life::Closed => Ok(()),
        }
    }

    pub(super) fn ready(&mut self) -> Result<Ready> {
        let (has_failed, is_closed) = (self.failure.is_some(), self.life == Life::Closed);
        let has_room = self.stations.iter().all(Station::can_send) && !self.peers.is_asking();
        Ok(Ready {
            input: self.waiting()?.is_some() || is_closed,
            output: has_room || has_failed || is_closed,
            hang_up: is_closed,
            error: has_failed,
        })
    }
}

fn unreachable(address: SocketAddr, errno: Errno) -> Error {
    error(errno, format!("{address} does not answer: {errno}"))
}
