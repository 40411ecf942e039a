//! How packets get from one device to another.
//!
//! A fabric seals and sends what the engine built, and hands over what arrived. It knows addresses, sockets and
//! interfaces, and nothing of queue pairs beyond the destination number that steers a packet to its process.
//! It loses packets as any network does: nothing that happens to a single packet is an error here.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::RawFd;

use roce_wire::cm::ServiceId;
use softroce_engine::{Path, PortConfig, RxMeta, TxBatch};
use softroce_faults::{Event, Numbers};
use verbs_api::{Error, Result};

mod claim;
mod control;
mod faulty;
pub(crate) mod forward;
mod links;
mod roll_call;
mod seal;
mod services;
mod slice;
mod steering;
mod steward;
mod sys;
mod train;
mod udp;
mod unread;

pub use faulty::Faulty;
pub use sys::HeaderFields;
pub use udp::{Endpoint, Trains, UdpFabric, UdpOptions};

/// The way of a device to its peers. All methods return at once; none allocates after opening except
/// [`fds`](Fabric::fds) and [`port`](Fabric::port).
pub trait Fabric: Send {
    /// Seal (ICRC) and send every packet of the batch, in order. A datagram that the system refuses (EMSGSIZE,
    /// ENOBUFS, EPERM, ENETUNREACH, ...) is a lost packet: counted, and no more. The batch keeps its packets.
    fn send(&mut self, batch: &mut TxBatch);

    /// Send one datagram alone, sealed or not, a packet or not: for faults. Where a fabric cannot, it is lost.
    fn send_as_it_is(&mut self, path: &Path, datagram: &[u8]) {
        let _ = (path, datagram);
    }

    /// Hand every datagram of *one* bounded read round to `sink` (its slice is the UDP payload, BTH to ICRC
    /// inclusive, not checked in any way). Returns how many datagrams there were; 0 when nothing was there.
    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize;

    /// The descriptors to wait on for readability; a readable one is drained by [`recv`](Fabric::recv) and
    /// [`port`](Fabric::port). They stay the same while the fabric lives (groups joined later are waited on through
    /// one of them). Empty where there are none (simulation).
    fn fds(&self) -> Vec<RawFd>;

    /// What has happened so far.
    fn counters(&self) -> FabricCounters;

    /// Whether datagrams fill more than half of the own receive buffer: the receiver falls behind. Sampled, cheap.
    fn receive_pressure(&mut self) -> bool;

    /// Bytes of UC and UD, as receiving sockets count them, that one peer on this machine has not read yet: the most of
    /// any. 0 where nobody tells.
    fn unread_bytes(&mut self) -> u64 {
        0
    }

    /// Size of the receive buffer, bytes as the kernel counts them (a bound on what peers may have in flight to us).
    fn receive_buffer_bytes(&self) -> u32;

    /// State, MTU and GIDs as the interfaces are now.
    fn port(&mut self) -> PortConfig;

    /// Whether something about the interfaces has changed since the last [`port`](Fabric::port). Cheap.
    fn port_changed(&mut self) -> bool {
        false
    }

    /// Something that a fault rule does to queue pairs of these numbers, since the last [`port`](Fabric::port).
    fn disturbance(&mut self) -> Option<(Event, Numbers)> {
        None
    }

    /// Whether packets meet fault rules here.
    fn judges_packets(&self) -> bool {
        false
    }

    /// The queue pair numbers that packets reach this fabric by: its part of the 24-bit space.
    fn qpn_slice(&self) -> Range<u32>;

    /// Receive what is sent to this multicast group, on the interface of the own address, until
    /// [`leave`](Fabric::leave). Joining a group twice is joining it once.
    ///
    /// # Errors
    /// EOPNOTSUPP: the fabric knows no multicast. EINVAL: no multicast address, or one of another family than the own.
    /// Otherwise what the system says, such as ENOBUFS at its limit of groups.
    fn join(&mut self, group: IpAddr) -> Result<()> {
        let _ = group;
        Err(Error::unsupported("multicast"))
    }

    /// Receive what is sent to this group no more. Leaving a group that was not joined does nothing.
    ///
    /// # Errors
    /// EOPNOTSUPP: the fabric knows no multicast.
    fn leave(&mut self, group: IpAddr) -> Result<()> {
        let _ = group;
        Err(Error::unsupported("multicast"))
    }

    /// Whether [`join`](Fabric::join) works at all: what the device reports as its ability.
    fn has_multicast(&self) -> bool {
        false
    }

    /// Whether who has this address is on this machine, where packets are not lost on the way.
    fn is_on_this_machine(&self, address: IpAddr) -> bool {
        let _ = address;
        false
    }

    /// Have requests for this service of RDMA CM reach this process, and no other process on the address, until
    /// [`release_service`](Fabric::release_service).
    ///
    /// # Errors
    /// EADDRINUSE: another process has it.
    fn claim_service(&mut self, service: ServiceId) -> Result<()> {
        let _ = service;
        Ok(())
    }

    /// Leave the service to others. Releasing what was not claimed does nothing.
    fn release_service(&mut self, service: ServiceId) {
        let _ = service;
    }

    /// From now on tell the traffic class and the hop limit of what arrives ([`RxMeta`]), as far as they are known:
    /// datagrams are delivered with them. Costs about 0.2 µs a packet.
    fn report_header_fields(&mut self) {}

    /// The owner goes: from now on what is sent to the address reaches the other processes on it alone, and what lies
    /// here of theirs is passed on. Nothing can be sent any more.
    fn depart(&mut self) {}

    /// After a fork, in the child: close every descriptor, so that the child keeps neither sockets nor claims of its
    /// parent. Async-signal-safe; afterwards the fabric sends and receives nothing.
    fn close_in_child(&mut self);
}

/// What a fabric has done, in numbers since it was opened. A datagram is one packet, also within a train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FabricCounters {
    /// Datagrams that the system took.
    pub sent_datagrams: u64,
    /// Their UDP payload bytes.
    pub sent_bytes: u64,
    /// Sends of two or more datagrams as one train.
    pub sent_trains: u64,
    /// Datagrams that the system refused: lost.
    pub send_refused: u64,
    /// Datagrams handed to the engine.
    pub received_datagrams: u64,
    /// Their UDP payload bytes.
    pub received_bytes: u64,
    /// Reads that brought two or more datagrams as one train.
    pub received_trains: u64,
    /// Datagrams that the kernel dropped since our receive buffer was full.
    pub receive_overflows: u64,
    /// Datagrams too long, too short or cut off: dropped unread.
    pub malformed: u64,
    /// Datagrams for another process on this address, passed on to it.
    pub forwarded: u64,
    /// Datagrams for another process that could not be passed on: nobody there, or its inbox is full.
    pub forward_dropped: u64,
    /// Datagrams that another process passed on to us (also in `received_datagrams`).
    pub adopted: u64,
    /// How often the steering table of the address was renewed by us.
    pub steering_repairs: u64,
}
