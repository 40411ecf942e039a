//! Softroce's own devices on two addresses of this machine: their fabric asks about each packet before it is sent, and
//! what is forged comes from a socket on the peer's address. It takes no right.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use roce_wire::ROCE_V2_PORT;
use roce_wire::icrc::Flow;
use softroce::faults::{Direction, Judgement, Parcel, Passage, Watch};

use super::traffic::{Marks, flipped};
use super::{Forger, Traffic, flow};
use crate::testbed::{Fate, Side};

/// Asks the case about each packet of two devices.
pub(in crate::beds) struct Watcher {
    pub(in crate::beds) traffic: Arc<Traffic>,
    /// The left end's address; all others are at the right.
    pub(in crate::beds) left: IpAddr,
}

impl Watch for Watcher {
    fn judge(&mut self, passage: &Passage<'_>, out: &mut Vec<Parcel>) -> Judgement {
        if passage.direction == Direction::In {
            return Judgement::Untouched;
        }
        let way = passage.way;
        let from = if way.src == self.left {
            Side::Left
        } else {
            Side::Right
        };
        let flow = flow(way.src, way.dst, way.source_port);
        let marks = Marks {
            class: way.traffic_class,
            identification: 0,
        };
        let fate = self.traffic.judge(from, &flow, marks, passage.bytes);
        let parcel = |bytes: Vec<u8>, delay: Duration| Parcel {
            way,
            bytes,
            delay_ns: delay.as_nanos() as u64,
            past: 0,
            overtaken_at_most_ns: 0,
        };
        let same = |delay| parcel(passage.bytes.to_vec(), delay);
        match fate {
            Fate::Deliver => return Judgement::Untouched,
            Fate::Drop => {}
            Fate::Duplicate => out.extend([same(Duration::ZERO), same(Duration::ZERO)]),
            Fate::Delay(time) => out.push(same(time)),
            Fate::Corrupt { bit } => out.push(parcel(flipped(passage.bytes, bit), Duration::ZERO)),
        }
        Judgement::Changed
    }
}

/// A socket on the address of each end; what is forged to one end comes from the other's.
pub(in crate::beds) struct Sockets {
    /// Left and right.
    sockets: [UdpSocket; 2],
    addresses: [IpAddr; 2],
}

impl Sockets {
    pub(in crate::beds) fn bind(addresses: [IpAddr; 2]) -> std::io::Result<Self> {
        let socket = |address| {
            let socket = UdpSocket::bind(SocketAddr::new(address, 0))?;
            super::socket::forbid_fragments(&socket)?;
            std::io::Result::Ok(socket)
        };
        Ok(Sockets {
            sockets: [socket(addresses[0])?, socket(addresses[1])?],
            addresses,
        })
    }
}

impl Forger for Sockets {
    fn flow(&self, to: Side) -> Flow {
        let from = to.peer().index();
        let port = self.sockets[from]
            .local_addr()
            .map_or(0, |address| address.port());
        flow(self.addresses[from], self.addresses[to.index()], port)
    }

    fn send(&mut self, to: Side, bytes: &[u8]) -> std::io::Result<()> {
        let target = SocketAddr::new(self.addresses[to.index()], ROCE_V2_PORT);
        self.sockets[to.peer().index()].send_to(bytes, target)?;
        Ok(())
    }
}
