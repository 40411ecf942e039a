//! Where to send to: what peers ask of a socket, and what it asks of them (RDMA CM's service ID resolution).

use std::net::SocketAddr;
use std::time::Duration;

use verbs_api::{
    CmEvent, CmEventKind, CmId, CmPortSpace, ConnectionManager, ConnectionParameters, QpType, Result,
};

use super::inner::{Inner, Life};
use super::peers::Peer;
use super::station::{QKEY, Station};
use crate::errors::{Errno, error};

/// For each step of the resolution.
const RESOLUTION: Duration = Duration::from_secs(2);

impl<M: ConnectionManager> Inner<M> {
    /// Take in an event.
    pub(super) fn handle(&mut self, mut event: CmEvent<M>) {
        if let Some(request) = event.request.take() {
            drop(event);
            // Dropped unanswered, it is refused.
            if let Err(error) = self.answer(&request) {
                tracing::warn!(%error, "a peer's question where to send to is refused");
            }
            return;
        }
        if event.kind == CmEventKind::DeviceRemoval && self.life == Life::Alive {
            tracing::info!("the device of a socket is gone");
            self.life = Life::Gone;
            return;
        }
        let cookie = event.cookie;
        let Some((address, id)) = self.peers.asked(cookie) else {
            return;
        };
        let went_on = match event.kind {
            CmEventKind::AddrResolved => id.resolve_route(RESOLUTION),
            CmEventKind::RouteResolved => self.ask(address),
            CmEventKind::Established => self.learn(address, &event),
            CmEventKind::AddrChange => Ok(()),
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
            let errno = Errno::from_raw(error.errno());
            self.failure = Some((address, errno));
            self.unanswered = Some((cookie, errno));
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

    /// Start to ask somebody; under which cookie.
    pub(super) fn start_to_ask(&mut self, address: SocketAddr) -> Result<u64> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let id = self.cm.create_id(CmPortSpace::Udp, cookie)?;
        id.resolve_addr(None, address, RESOLUTION)?;
        self.peers.set(address, Peer::Asked { id, cookie });
        Ok(cookie)
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
}
