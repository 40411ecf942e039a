//! RoCEv2 over an ordinary UDP socket: one address, port 4791, no privileges.
//!
//! Any number of processes of one user may share an address. Each owns a slice of the queue pair numbers, proven by a
//! [claim](super::links); the kernel steers most packets to their owner by a [table](super::steering) that the members
//! keep [right](super::steward), and whoever receives a packet of another's passes it on. Nobody depends on another to
//! run, and a member that is killed, stopped or forked disturbs none but its own peers.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use roce_wire::cm::ServiceId;
use softroce_engine::{Path, PortConfig, RxMeta, TxBatch};
use verbs_api::{Error, Result};

use super::links::Links;
use super::steward::Steward;
use super::sys::{self, ReceiveArena, Sharing, SocketOptions, UdpSocket};
use super::{Fabric, FabricCounters};
use crate::clock::monotonic_ns;
use crate::interfaces::{Interface, InterfaceMonitor};
pub use endpoint::Endpoint;
pub use options::{Trains, UdpOptions};

use endpoint::{resolve, scope_id, socket_address};
use groups::Groups;
use member::Member;
use transmit::Transmitter;

mod endpoint;
mod groups;
mod member;
mod options;
mod refusal;
mod transmit;

/// What is relied on of a receive buffer, bytes: the system's usual size, or this part of a larger one. What it has besides
/// is for packets that nobody bounds: those of UC and UD, and of strangers.
const USUAL_BYTES: u32 = 212_992;
const PART_RELIED_ON: u32 = 4;
/// More is of no use, bytes: with this, READs are asked for in pieces that leave as two full trains, and two of them are
/// under way.
const RELIED_ON_BYTES_MAX: u32 = 675_840;

/// Receive rounds between two looks at the links, when nothing has come over them lately.
const LOOK_EVERY_ROUNDS: u32 = 32;
/// Rounds with a look each after something has come.
const BUSY_LOOKS: u32 = 256;
/// Receive rounds for which a measurement of the receive buffer holds.
const PRESSURE_ROUNDS: u32 = 16;
/// Receive rounds at the end, to pass on what is not ours: more than the largest receive buffer has packets for.
const LAST_READS: u32 = 1 << 14;
/// How often the socket must be found empty.
const LAST_LOOKS: u32 = 2;
/// How long opening waits for the other processes to help: a stopped one does not.
const SETTLE_PATIENCE_NS: u64 = 100_000_000;

/// See the module's documentation.
#[derive(Debug)]
pub struct UdpFabric {
    /// `None` in a forked child, after [`close_in_child`](Fabric::close_in_child).
    socket: Option<UdpSocket>,
    /// Who opened it: a child's copy is no owner.
    process: u32,
    own: SocketAddr,
    interface: Interface,
    monitor: Option<InterfaceMonitor>,
    transmitter: Transmitter,
    arena: ReceiveArena,
    member: Member,
    groups: Groups,
    counters: FabricCounters,
    /// The kernel's count of overflows, which wraps.
    overflows_seen: u32,
    rounds: u32,
    busy_looks: u32,
    last_round: usize,
    pressure: Pressure,
    receive_buffer_bytes: u32,
}

#[derive(Clone, Copy, Debug)]
struct Pressure {
    is_high: bool,
    measured_in_round: u32,
}

impl UdpFabric {
    /// Open the port on an address.
    ///
    /// # Errors
    /// No such address or interface here; the address is held by another user or program (`AddressInUse`: the text
    /// says by whom, and what to do); 255 processes have it already; the system has no descriptors left.
    pub fn open(options: &UdpOptions) -> Result<Self> {
        find_faster_icrc();
        let (address, interface) = resolve(&options.endpoint)?;
        let own = socket_address(address, &interface);
        let socket_options = SocketOptions {
            receive_buffer_bytes: options.receive_buffer_bytes,
            receive_trains: options.trains == Trains::Allowed,
            header_fields: options.header_fields,
            sharing: Sharing::SameUser,
        };
        // All that takes time comes before the socket: from then on packets of others may come here, which only reading
        // passes on.
        let segments_max = match options.trains {
            Trains::Allowed => sys::largest_train_segments(&own),
            Trains::Never => 1,
        };
        let groups = Groups::new(address, interface.index, socket_options)
            .map_err(|error| Error::system("cannot watch the sockets of multicast groups", error))?;
        let monitor = InterfaceMonitor::open().ok();
        let arena = ReceiveArena::new();
        let socket =
            UdpSocket::bind(&own, socket_options).map_err(|error| refusal::explain(address, error))?;
        // Refused only for interfaces that cannot have groups; then sending there is refused as well.
        let _ = socket.send_groups_on(address, interface.index);
        let (_, receive_buffer_bytes) = socket.receive_memory().ok_or_else(|| {
            Error::invalid("the kernel does not tell the size of receive buffers (SO_MEMINFO, Linux 4.12)")
        })?;
        let links = Links::claim(address, scope_id(&own), sys::random_u64())?;
        if let Some(monitor) = &monitor {
            links
                .watch(monitor.as_raw_fd())
                .map_err(|error| Error::system("cannot watch the network interfaces", error))?;
        }
        let mut fabric = UdpFabric {
            socket: Some(socket),
            process: std::process::id(),
            own,
            interface,
            monitor,
            transmitter: Transmitter::new(own, segments_max),
            arena,
            member: Member::new(own, links),
            groups,
            counters: FabricCounters::default(),
            overflows_seen: 0,
            rounds: 0,
            busy_looks: 0,
            last_round: 0,
            pressure: Pressure {
                is_high: false,
                measured_in_round: 0,
            },
            receive_buffer_bytes,
        };
        fabric.settle();
        Ok(fabric)
    }

    /// The address that it sits on.
    pub fn address(&self) -> IpAddr {
        self.own.ip()
    }

    /// Most packets of a train; 1 without trains.
    pub fn train_segments_max(&self) -> usize {
        self.transmitter.segments_max()
    }

    /// Meet the other members and get the own entry into the steering table. When that does not work out in time,
    /// others pass our packets on until it does.
    fn settle(&mut self) {
        let deadline_ns = monotonic_ns() + SETTLE_PATIENCE_NS;
        if let Some(socket) = &self.socket {
            self.member
                .join(socket, &mut self.transmitter, &mut self.counters);
        }
        while !self.member.is_settled() && monotonic_ns() < deadline_ns {
            // Nobody knows our numbers yet, so there is nothing for us among what arrives.
            let mut nobody = |_: &RxMeta, _: &[u8]| {};
            if self.read_socket(&mut nobody) == 0 {
                self.look_at_links(1, &mut nobody);
            }
        }
    }

    fn read_socket(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let Some(socket) = &self.socket else { return 0 };
        let asked_at_ns = self.member.is_waiting().then(monotonic_ns);
        let reads = socket.receive(&mut self.arena);
        let mut datagrams = 0;
        for at in 0..reads {
            let datagram = self.arena.datagram(at);
            if let Some(overflows) = datagram.overflows {
                self.counters.receive_overflows += u64::from(overflows.wrapping_sub(self.overflows_seen));
                self.overflows_seen = overflows;
            }
            datagrams += self
                .member
                .take(socket, &mut self.transmitter, &datagram, &mut self.counters, sink);
        }
        self.last_round = reads;
        if reads == 0 && self.member.has_caught_up() {
            // Then the roll call is up to date again as well.
            self.busy_looks = BUSY_LOOKS;
        }
        if let (Some(asked_at_ns), 0) = (asked_at_ns, reads) {
            self.member.has_read_until(asked_at_ns);
        }
        datagrams
    }

    fn look_at_links(&mut self, timeout_ms: i32, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let Some(socket) = &self.socket else { return 0 };
        let looked = self.member.look(
            socket,
            &mut self.transmitter,
            timeout_ms,
            &mut self.counters,
            sink,
        );
        if looked.events > 0 {
            self.busy_looks = BUSY_LOOKS;
        }
        looked.datagrams
    }
}

impl Fabric for UdpFabric {
    fn send(&mut self, batch: &mut TxBatch) {
        if let Some(socket) = &self.socket {
            self.transmitter.send(socket, batch, &mut self.counters);
            self.member.mark(socket, &mut self.transmitter, batch);
        }
    }

    fn send_as_it_is(&mut self, path: &Path, datagram: &[u8]) {
        if let Some(socket) = &self.socket {
            self.transmitter
                .send_as_it_is(socket, path, datagram, &mut self.counters);
        }
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let mut datagrams = self.read_socket(sink);
        datagrams += self.groups.receive(&mut self.counters, sink);
        self.rounds = self.rounds.wrapping_add(1);
        let is_busy = self.busy_looks > 0;
        if is_busy || self.rounds.is_multiple_of(LOOK_EVERY_ROUNDS) {
            self.busy_looks = self.busy_looks.saturating_sub(1);
            datagrams += self.look_at_links(0, sink);
        }
        datagrams
    }

    fn fds(&self) -> Vec<RawFd> {
        self.socket
            .as_ref()
            .map(AsRawFd::as_raw_fd)
            .into_iter()
            .chain(self.member.fd())
            .chain(self.groups.fd())
            .collect()
    }

    fn counters(&self) -> FabricCounters {
        self.counters
    }

    fn receive_pressure(&mut self) -> bool {
        if self.last_round == 0 {
            return false;
        }
        if self.rounds.wrapping_sub(self.pressure.measured_in_round) >= PRESSURE_ROUNDS {
            let measured = self.socket.as_ref().and_then(UdpSocket::receive_memory);
            self.pressure = Pressure {
                is_high: measured.is_some_and(|(waiting, size)| waiting > size / 2),
                measured_in_round: self.rounds,
            };
        }
        self.pressure.is_high
    }

    fn unread_bytes(&mut self) -> u64 {
        self.member.unread_bytes()
    }

    fn receive_buffer_bytes(&self) -> u32 {
        relied_on(self.receive_buffer_bytes)
    }

    fn port(&mut self) -> PortConfig {
        if let Ok(Some(interface)) = Interface::by_name(&self.interface.name) {
            if interface.index != self.interface.index {
                self.groups.interface_is(interface.index);
                let socket = self.socket.as_ref();
                let _ = socket.map(|socket| socket.send_groups_on(self.own.ip(), interface.index));
            }
            self.interface = interface;
        } else {
            self.interface.is_up = false;
            self.interface.addresses.clear();
        }
        self.interface.port(self.own.ip())
    }

    fn port_changed(&mut self) -> bool {
        self.member.take_interface_news() && self.monitor.as_ref().is_some_and(InterfaceMonitor::drain)
    }

    fn qpn_slice(&self) -> Range<u32> {
        self.member.own_slice().qpns()
    }

    fn join(&mut self, group: IpAddr) -> Result<()> {
        self.groups.join(group.to_canonical())
    }

    fn leave(&mut self, group: IpAddr) -> Result<()> {
        self.groups.leave(group.to_canonical());
        Ok(())
    }

    fn has_multicast(&self) -> bool {
        self.groups.are_reachable()
    }

    fn is_on_this_machine(&self, address: IpAddr) -> bool {
        if address.is_loopback() || address == self.own.ip() {
            return true;
        }
        // A socket cannot be had on addresses of others, unless the system is told to give any; then the list of
        // interfaces decides, which takes longer.
        std::net::UdpSocket::bind((address, 0)).is_ok()
            && Interface::by_address(address).is_ok_and(|interface| interface.is_some())
    }

    fn claim_service(&mut self, service: ServiceId) -> Result<()> {
        self.member.claim_service(service)
    }

    fn release_service(&mut self, service: ServiceId) {
        self.member.release_service(service);
    }

    fn report_header_fields(&mut self) {
        // A kernel that does not tell them (there is none that we run on) leaves them 0.
        let socket = self.socket.as_ref();
        let _ = socket.map(|socket| socket.report_header_fields(self.own.is_ipv4()));
    }

    fn depart(&mut self) {
        if self.process != std::process::id() {
            return;
        }
        // After another member has left, packets of others may come here until the table is repaired; so ours is no
        // address for them before the last read. Refused by old kernels, and when it was done before.
        let _ = self.socket.as_ref().map(UdpSocket::leave_address);
        let mut nobody = |_: &RxMeta, _: &[u8]| {};
        for _ in 0..LAST_LOOKS {
            for _ in 0..LAST_READS {
                self.last_round = 0;
                self.read_socket(&mut nobody);
                if self.last_round == 0 {
                    break;
                }
            }
            // Another processor may be about to put a packet here for which it chose this socket before.
            std::thread::yield_now();
        }
    }

    fn close_in_child(&mut self) {
        self.groups.close();
        self.member.close();
        self.socket = None;
        self.monitor = None;
    }
}

impl Drop for UdpFabric {
    fn drop(&mut self) {
        self.depart();
        // The socket goes before the links: who sees a link end finds the kernel's numbering changed already.
        self.socket = None;
    }
}

/// How much of a receive buffer of this size may be filled with what was asked for.
fn relied_on(buffer_bytes: u32) -> u32 {
    let part = (buffer_bytes / PART_RELIED_ON).clamp(USUAL_BYTES, RELIED_ON_BYTES_MAX);
    buffer_bytes.min(part)
}

/// Every packet has an ICRC, so the first fabric of a process finds out how this machine computes them faster.
fn find_faster_icrc() {
    static IS_FOUND: AtomicBool = AtomicBool::new(false);
    if !IS_FOUND.swap(true, Ordering::Relaxed) {
        roce_wire::icrc::choose_faster_way(monotonic_ns);
    }
}

/// A steward whose rounds nobody else uses.
fn new_steward(links: &Links) -> Steward {
    Steward::new(links.own(), sys::random_u64() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_large_receive_buffer_a_part_is_relied_on_and_of_a_usual_one_all() {
        assert_eq!(relied_on(4_608), 4_608, "the smallest that Linux gives");
        assert_eq!(relied_on(USUAL_BYTES), USUAL_BYTES);
        assert_eq!(
            relied_on(2 * USUAL_BYTES),
            USUAL_BYTES,
            "rmem_max as it usually is"
        );
        assert_eq!(relied_on(2 << 20), 1 << 19);
        assert_eq!(relied_on(8 << 20), RELIED_ON_BYTES_MAX);
    }
}
