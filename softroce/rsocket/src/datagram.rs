//! Datagram sockets.
//!
//! A socket listens on its port for those who ask where to send to (RDMA CM's service ID resolution), and asks likewise
//! before it first sends to somebody. Who has sent something is known from that. Datagrams may be lost and come in any
//! order, and a receiver that does not read loses what does not fit its slots, as with UDP; a datagram has at most what one
//! packet holds.
//!
//! An error about somebody who was sent to is told as for UDP: once, by the next call that receives or sends there, or by
//! `SO_ERROR`, and `poll` says so until then. One whose device is gone fails in every call.
//!
//! Questions are answered by a thread of the socket's ([`attendant`](crate::attendant)), whatever the program does meanwhile.

use std::fmt;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use verbs_api::{CmId, ConnectionManager, Result};

use crate::attendant::Attendant;
use crate::connected::Ready;
use crate::errors::not_connected;
use crate::family::Family;
use crate::front::{Front, Patience};
use crate::options::{Options, Settings};
use crate::stream::OpenChannel;
use crate::wait::{LOOK_UP, Watch};
use inner::Inner;
use station::Station;

mod inner;
mod peers;
mod questions;
mod station;

/// Closing waits so long for datagrams to leave.
const LINGER: Duration = Duration::from_secs(1);

/// A datagram socket; see the [crate's documentation](crate).
pub struct DatagramSocket<M: ConnectionManager> {
    /// Before what it attends to.
    _attendant: Attendant,
    front: Arc<Front<Inner<M>>>,
}

impl<M: ConnectionManager> fmt::Debug for DatagramSocket<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DatagramSocket")
            .field("number", &self.number())
            .finish_non_exhaustive()
    }
}

impl<M: ConnectionManager> DatagramSocket<M> {
    /// A new socket for addresses of `family`.
    pub fn new(open: &OpenChannel<M>, family: Family) -> Result<Self> {
        let settings = Arc::new(Settings::new(family, Options::default()));
        let inner = Inner::new(Arc::new(open()?), settings.clone());
        let front = Arc::new(Front::new(settings, inner)?);
        Ok(DatagramSocket {
            _attendant: Attendant::start(&front)?,
            front,
        })
    }

    fn family(&self) -> Family {
        self.settings().family()
    }

    fn lock(&self) -> MutexGuard<'_, Inner<M>> {
        self.front.lock()
    }

    /// A descriptor that is the socket's own, for as long as it lives.
    pub fn number(&self) -> RawFd {
        self.front.number()
    }

    /// What the program has set about it.
    pub fn settings(&self) -> &Settings {
        self.front.settings()
    }

    /// Whether no call has it locked for good: at the end of a program, one may be that a signal has interrupted.
    pub fn is_free(&self) -> bool {
        self.front.is_free()
    }

    /// Bind to a local address; port 0 is any. A socket that sends without being bound is bound to any.
    pub fn bind(&self, local: SocketAddr) -> Result<()> {
        self.lock().bind(self.family().inner(local)?)
    }

    /// Send to `peer` and receive from it alone; `None` undoes that.
    pub fn connect(&self, peer: Option<SocketAddr>) -> Result<()> {
        let peer = peer.map(|peer| self.family().inner(peer)).transpose()?;
        let mut inner = self.lock();
        inner.bind_if_not_yet()?;
        inner.chosen = peer;
        match peer {
            Some(peer) if inner.peers.get(peer).is_none() => inner.start_to_ask(peer).map(drop),
            _ => Ok(()),
        }
    }

    /// Its own address.
    pub fn local_addr(&self) -> SocketAddr {
        let inner = self.lock();
        let local = inner.listener.as_ref().and_then(CmId::local_addr);
        let mut local = local.unwrap_or_else(|| self.family().any());
        // Of a socket that is bound to any address, that of the way to its peer.
        let chosen = inner.chosen.and_then(|peer| inner.peers.destination(peer));
        if let Some((station, _)) = chosen.filter(|_| local.ip().is_unspecified()) {
            local.set_ip(inner.stations[station].ip);
        }
        self.family().outer(local)
    }

    /// The peer that it is connected to. ENOTCONN: to none.
    pub fn peer_addr(&self) -> Result<SocketAddr> {
        let chosen = self.lock().chosen.ok_or_else(not_connected)?;
        Ok(self.family().outer(chosen))
    }

    /// The error that waits (`SO_ERROR`), which is taken by this.
    pub fn take_error(&self) -> Option<i32> {
        let mut inner = self.lock();
        let pumped = self.front.pump(&mut inner);
        let failure = inner.take_failure().map(|errno| errno as i32);
        failure.or_else(|| pumped.err().map(|error| error.errno()))
    }

    /// Send a datagram, by default to the peer that it is connected to.
    ///
    /// # Errors
    /// EDESTADDRREQ: there is none; EMSGSIZE: more than a packet holds; ECONNREFUSED: nobody is there; ENETDOWN: the
    /// device is gone.
    pub fn send(&self, to: Option<SocketAddr>, bytes: &[u8], patience: Patience) -> Result<usize> {
        let to = to.map(|to| self.family().inner(to)).transpose()?;
        let mut question = None;
        self.front
            .until(patience, |inner| inner.send(to, bytes, &mut question))
    }

    /// Receive a datagram, or look at it and leave it there (`is_peek`). What does not fit is lost.
    ///
    /// # Errors
    /// That of a datagram to somebody who is not there (ECONNREFUSED), once; ENETDOWN: the device is gone.
    pub fn receive(&self, out: &mut [u8], is_peek: bool, patience: Patience) -> Result<(usize, SocketAddr)> {
        self.lock().bind_if_not_yet()?;
        let (count, from) = self.front.until(patience, |inner| inner.receive(out, is_peek))?;
        Ok((count, self.family().outer(from)))
    }

    /// What it is ready for now.
    pub fn ready(&self) -> Result<Ready> {
        let mut inner = self.lock();
        self.front.pump(&mut inner)?;
        inner.ready()
    }

    /// What it is ready for now; and what to sleep on until that may have changed.
    pub fn watch(&self) -> Result<(Ready, Watch<'_, M>)> {
        let mut inner = self.lock();
        self.front.arm(&mut inner)?;
        let ready = inner.ready()?;
        Ok((ready, self.front.watch(&mut inner)))
    }

    /// End it: what was sent still leaves; calls that wait fail.
    pub fn close(&self) {
        self.wait_for_departure(Instant::now() + LINGER);
        let mut inner = self.lock();
        inner.close();
        drop(inner);
        self.front.wake_all();
    }

    fn wait_for_departure(&self, until: Instant) {
        loop {
            let watch = {
                let mut inner = self.lock();
                let is_armed = self.front.arm(&mut inner).is_ok();
                if !is_armed || inner.stations.iter().all(Station::has_sent_all) {
                    return;
                }
                self.front.watch(&mut inner)
            };
            let left = until.saturating_duration_since(Instant::now());
            let _ = watch.sleep(left.min(LOOK_UP));
            if left.is_zero() {
                return;
            }
        }
    }
}
