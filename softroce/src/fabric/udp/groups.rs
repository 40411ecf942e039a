//! The multicast groups of a fabric: a socket for each, bound to the group's own address.
//!
//! A socket on a unicast address receives nothing that is sent to groups, and one on a group's address receives
//! everything that is sent there, as do those of other processes. So every member process has its own, on the
//! interface of its device; the kernel makes the copies, also for members on the machine that sends.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use roce_wire::ROCE_V2_PORT;
use socket2::SockRef;
use softroce_engine::RxMeta;
use verbs_api::{Error, ErrorKind, Result};

use super::super::FabricCounters;
use super::super::sys::{Datagram, Epoll, HeaderFields, ReceiveArena, Sharing, SocketOptions, UdpSocket};
use super::member::{meta, segment};

/// Groups that a fabric is in at most, as many as the engine reports; each costs a descriptor.
const GROUPS_MAX: usize = 256;

/// Only for trials. It does not leave the interface.
const TRIAL_GROUP: Ipv6Addr = Ipv6Addr::new(0xff01, 0, 0, 0, 0, 0, 0, 0x5246);
/// Loopback delivers at once.
const TRIAL_PATIENCE: Duration = Duration::from_millis(5);

#[derive(Debug)]
struct Group {
    address: IpAddr,
    socket: UdpSocket,
    /// The kernel's count of overflows of the socket, which wraps.
    overflows_seen: u32,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Groups {
    own: IpAddr,
    interface_index: u32,
    options: SocketOptions,
    /// Readable when one of the sockets is. `None` in a forked child.
    epoll: Option<Epoll>,
    /// A group's place is its token in the epoll set.
    places: Vec<Option<Group>>,
    joined: usize,
    arena: ReceiveArena,
}

impl Groups {
    /// In no group yet. Their sockets get these options, as far as groups leave a choice.
    pub(super) fn new(own: IpAddr, interface_index: u32, options: SocketOptions) -> io::Result<Self> {
        Ok(Groups {
            own,
            interface_index,
            options: SocketOptions {
                sharing: Sharing::Everybody,
                // Only datagrams are sent to groups, and they are delivered with these.
                header_fields: HeaderFields::Reported,
                ..options
            },
            epoll: Some(Epoll::new()?),
            places: Vec::new(),
            joined: 0,
            arena: ReceiveArena::new(),
        })
    }

    /// The descriptor that is readable when something has come for a group.
    pub(super) fn fd(&self) -> Option<RawFd> {
        self.epoll.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// See [`Fabric::join`](super::Fabric::join).
    pub(super) fn join(&mut self, address: IpAddr) -> Result<()> {
        self.check(address)?;
        if self.place_of(address).is_some() {
            return Ok(());
        }
        let free = self.places.iter().position(Option::is_none);
        let place = free.unwrap_or(self.places.len());
        if place == GROUPS_MAX {
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("this device is in {GROUPS_MAX} multicast groups already, its limit; leave one"),
            ));
        }
        let group = self
            .open(address, place)
            .map_err(|error| Error::system(format!("cannot join the multicast group {address}"), error))?;
        if free.is_none() {
            self.places.push(None);
        }
        self.places[place] = Some(group);
        self.joined += 1;
        Ok(())
    }

    /// See [`Fabric::leave`](super::Fabric::leave).
    pub(super) fn leave(&mut self, address: IpAddr) {
        let place = self.place_of(address);
        if let Some(group) = place.and_then(|place| self.places[place].take()) {
            self.joined -= 1;
            if let Some(epoll) = &self.epoll {
                epoll.remove(group.socket.as_raw_fd());
            }
        }
    }

    /// The interface has another number than before (it was made anew): memberships belong to the number.
    pub(super) fn interface_is(&mut self, index: u32) {
        self.interface_index = index;
        for place in 0..self.places.len() {
            let Some(address) = self.places[place].as_ref().map(|group| group.address) else {
                continue;
            };
            // Both are in the set for a moment. Where the new one is not to be had, the old one stays, deaf.
            if let Ok(group) = self.open(address, place)
                && let Some(old) = self.places[place].replace(group)
                && let Some(epoll) = &self.epoll
            {
                epoll.remove(old.socket.as_raw_fd());
            }
        }
    }

    /// Hand over what has come, one bounded round of each group; returns how many datagrams there were.
    pub(super) fn receive(
        &mut self,
        counters: &mut FabricCounters,
        sink: &mut dyn FnMut(&RxMeta, &[u8]),
    ) -> usize {
        if self.joined == 0 {
            return 0;
        }
        let Some(epoll) = &self.epoll else { return 0 };
        let mut datagrams = 0;
        for token in epoll.ready(0).tokens() {
            let Some(Some(group)) = self.places.get_mut(*token as usize) else {
                continue;
            };
            let reads = group.socket.receive(&mut self.arena);
            for at in 0..reads {
                let datagram = self.arena.datagram(at);
                if let Some(overflows) = datagram.overflows {
                    counters.receive_overflows += u64::from(overflows.wrapping_sub(group.overflows_seen));
                    group.overflows_seen = overflows;
                }
                datagrams += deliver(group.address, &datagram, counters, sink);
            }
        }
        datagrams
    }

    /// In a forked child: close everything. (The epoll set is shared with the parent, so nothing may be taken out.)
    pub(super) fn close(&mut self) {
        self.epoll = None;
        self.places.fill_with(|| None);
        self.joined = 0;
    }

    /// Whether what is sent to groups from here reaches their members. IPv6 wants a route, which the loopback interface
    /// has not got unless root adds it; every other interface has.
    pub(super) fn are_reachable(&self) -> bool {
        match self.own {
            IpAddr::V6(own) if own.is_loopback() => self.reaches_itself(own).is_ok(),
            IpAddr::V4(_) | IpAddr::V6(_) => true,
        }
    }

    /// Send a datagram to a member on a port of the kernel's choice, so that nobody else sees it.
    fn reaches_itself(&self, own: Ipv6Addr) -> io::Result<()> {
        let scope_id = self.interface_index;
        let member = std::net::UdpSocket::bind(SocketAddrV6::new(TRIAL_GROUP, 0, 0, scope_id))?;
        member.join_multicast_v6(&TRIAL_GROUP, scope_id)?;
        member.set_read_timeout(Some(TRIAL_PATIENCE))?;
        let sender = std::net::UdpSocket::bind(SocketAddrV6::new(own, 0, 0, 0))?;
        SockRef::from(&sender).set_multicast_if_v6(scope_id)?;
        sender.send_to(&[0], member.local_addr()?)?;
        member.recv(&mut [0]).map(drop)
    }

    fn check(&self, group: IpAddr) -> Result<()> {
        if !group.is_multicast() {
            return Err(Error::invalid(format!("{group} is no multicast address")));
        }
        if group.is_ipv4() != self.own.is_ipv4() {
            return Err(Error::invalid(format!(
                "the device on {} cannot join {group}, a group of the other IP version; use a device with such an \
                 address",
                self.own
            )));
        }
        if !self.are_reachable() {
            return Err(Error::new(
                ErrorKind::Unsupported,
                format!(
                    "the interface of {} has no route for IPv6 multicast; use an IPv4 address, or have root add one \
                     (ip -6 route add local ff00::/8 dev lo table local)",
                    self.own
                ),
            ));
        }
        Ok(())
    }

    fn place_of(&self, address: IpAddr) -> Option<usize> {
        let is_it = |place: &Option<Group>| place.as_ref().is_some_and(|group| group.address == address);
        self.places.iter().position(is_it)
    }

    fn open(&self, address: IpAddr, place: usize) -> io::Result<Group> {
        let bound_to = match address {
            // Only narrow scopes need the interface; with others it does no harm.
            IpAddr::V6(v6) => SocketAddr::V6(SocketAddrV6::new(v6, ROCE_V2_PORT, 0, self.interface_index)),
            IpAddr::V4(_) => SocketAddr::new(address, ROCE_V2_PORT),
        };
        let socket = UdpSocket::bind(&bound_to, self.options)?;
        socket.join_group(address, self.interface_index)?;
        if let Some(epoll) = &self.epoll {
            epoll.add(socket.as_raw_fd(), place as u64)?;
        }
        Ok(Group {
            address,
            socket,
            overflows_seen: 0,
        })
    }
}

/// Take a datagram or train apart; returns how many packets went to `sink`.
fn deliver(
    group: IpAddr,
    datagram: &Datagram<'_>,
    counters: &mut FabricCounters,
    sink: &mut dyn FnMut(&RxMeta, &[u8]),
) -> usize {
    if datagram.is_cut_off || datagram.bytes.is_empty() {
        counters.malformed += 1;
        return 0;
    }
    counters.received_trains += u64::from(datagram.bytes.len() > datagram.segment_bytes);
    let mut delivered = 0;
    for at in (0..datagram.bytes.len()).step_by(datagram.segment_bytes) {
        let packet = segment(datagram, at);
        sink(&meta(datagram, group, at), packet);
        counters.received_datagrams += 1;
        counters.received_bytes += packet.len() as u64;
        delivered += 1;
    }
    delivered
}
