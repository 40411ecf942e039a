//! One process among those that share an address: keeps its own packets, passes on those of others.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::RawFd;

use roce_wire::cm::ServiceId;
use softroce_engine::RxMeta;
use verbs_api::Result;

use super::super::FabricCounters;
use super::super::control::{self, LinkMessage, MESSAGE_BYTES_MAX, PACKET_BYTES};
use super::super::links::{Event, Links, NotSent};
use super::super::roll_call::{Call, RollCall};
use super::super::slice::{Destination, SLICE_COUNT, Slice, destination};
use super::super::steering::Program;
use super::super::steward::Steward;
use super::super::sys::{self, Datagram, UdpSocket};
use super::super::unread::Unread;
use super::new_steward;
use super::transmit::Transmitter;
use crate::clock::monotonic_ns;
use adoption::{Adoption, adopted};
use stewardship::hear;

mod adoption;
mod marks;
mod stewardship;

/// Events taken in one look at the links.
const EVENTS_A_LOOK_MAX: usize = 64;
/// A whole train with what goes before it.
const LINK_BUFFER_BYTES: usize = (1 << 16) + control::ADOPT_HEAD_BYTES;

/// What lies in the own socket is no older than this, also where it is never found empty.
const BACKLOG_NS: u64 = 20_000_000;

type Sink<'a> = &'a mut dyn FnMut(&RxMeta, &[u8]);

/// What a look at the links found.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Looked {
    pub(super) events: usize,
    /// Datagrams handed to the engine.
    pub(super) datagrams: usize,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Member {
    own: SocketAddr,
    links: Links,
    steward: Steward,
    roll_call: RollCall,
    unread: Unread,
    /// Tells own control packets from what others may send.
    nonce: u64,
    program: Box<Program>,
    link_buffer: Box<[u8]>,
    probe_buffer: Box<[u8]>,
    has_interface_news: bool,
    /// When the own socket was last found empty, as far as somebody wanted to know.
    read_until_ns: u64,
    /// This member has slept, and what lies in its socket may have lain there for as long.
    is_behind: bool,
}

impl Member {
    pub(super) fn new(own: SocketAddr, links: Links) -> Self {
        Member {
            own,
            steward: new_steward(&links),
            roll_call: RollCall::new(),
            unread: Unread::new(),
            links,
            nonce: sys::random_u64(),
            program: Box::new(Program::new()),
            link_buffer: vec![0; LINK_BUFFER_BYTES].into_boxed_slice(),
            probe_buffer: vec![0; SLICE_COUNT * PACKET_BYTES].into_boxed_slice(),
            has_interface_news: false,
            read_until_ns: 0,
            is_behind: false,
        }
    }

    pub(super) fn own_slice(&self) -> Slice {
        self.links.own()
    }

    pub(super) fn fd(&self) -> Option<RawFd> {
        self.links.fd()
    }

    pub(super) fn is_settled(&self) -> bool {
        self.steward.is_settled()
    }

    /// Whether the descriptor that watches the interfaces was found readable since the last call.
    pub(super) fn take_interface_news(&mut self) -> bool {
        std::mem::take(&mut self.has_interface_news)
    }

    /// Whether it matters that the own socket is found empty.
    pub(super) fn is_waiting(&self) -> bool {
        self.steward.is_waiting()
    }

    /// All that had reached the own socket by then has been taken.
    pub(super) fn has_read_until(&mut self, at_ns: u64) {
        self.read_until_ns = at_ns;
    }

    /// The own socket is empty. Whether it held what may have lain there for long.
    pub(super) fn has_caught_up(&mut self) -> bool {
        std::mem::take(&mut self.is_behind)
    }

    /// Link up with everybody, and begin to find out how the kernel numbers us.
    pub(super) fn join(
        &mut self,
        socket: &UdpSocket,
        transmitter: &mut Transmitter,
        counters: &mut FabricCounters,
    ) {
        let now_ns = monotonic_ns();
        let (steward, roll_call) = (&mut self.steward, &mut self.roll_call);
        self.links.connect_all(|slice| {
            steward.member_joined(now_ns, slice);
            roll_call.joined(now_ns, slice);
        });
        self.steward.join(now_ns);
        self.act(socket, transmitter, counters);
    }

    /// Take one datagram or train from the socket; returns how many packets went to `sink`.
    pub(super) fn take(
        &mut self,
        socket: &UdpSocket,
        transmitter: &mut Transmitter,
        datagram: &Datagram<'_>,
        counters: &mut FabricCounters,
        sink: Sink<'_>,
    ) -> usize {
        if datagram.is_cut_off || datagram.bytes.is_empty() {
            counters.malformed += 1;
            return 0;
        }
        counters.received_trains += u64::from(datagram.bytes.len() > datagram.segment_bytes);
        let mut delivered = 0;
        let mut at = 0;
        while at < datagram.bytes.len() {
            let packet = segment(datagram, at);
            match destination(packet) {
                Destination::QueuePair(slice) if slice != self.links.own() => {
                    at += self.pass_on(slice, datagram, at, counters);
                    continue;
                }
                Destination::Service(service) if self.pass_request_on(service, datagram, at, counters) => {}
                Destination::Nowhere => counters.malformed += 1,
                Destination::Reserved if self.is_mark(datagram, packet) => {
                    if let Some(answer) = self.take_mark(datagram.from.ip(), packet) {
                        transmitter.send_control(socket, datagram.from, &answer.to_bytes());
                    }
                }
                Destination::Reserved if self.is_control(datagram, packet) => {
                    self.take_control(packet);
                    self.act(socket, transmitter, counters);
                }
                Destination::QueuePair(_) | Destination::Service(_) | Destination::Reserved => {
                    sink(&meta(datagram, self.own.ip(), at), packet);
                    counters.received_datagrams += 1;
                    counters.received_bytes += packet.len() as u64;
                    delivered += 1;
                }
            }
            at += packet.len();
        }
        delivered
    }

    /// See what the other members say; waits `timeout_ms` at most.
    pub(super) fn look(
        &mut self,
        socket: &UdpSocket,
        transmitter: &mut Transmitter,
        timeout_ms: i32,
        counters: &mut FabricCounters,
        sink: Sink<'_>,
    ) -> Looked {
        let mut looked = Looked::default();
        let mut is_time = false;
        self.links.look(timeout_ms);
        while looked.events < EVENTS_A_LOOK_MAX {
            let Some(event) = self.links.next_event(&mut self.link_buffer) else {
                break;
            };
            looked.events += 1;
            match event {
                Event::Message(from, LinkMessage::Adopt(adopted)) => {
                    self.roll_call.heard(from);
                    let adoption = Adoption {
                        own: self.own,
                        slice: self.links.own(),
                    };
                    looked.datagrams += adoption.deliver(&adopted, counters, sink);
                    self.steward.packets_went_astray(monotonic_ns());
                }
                Event::Request(adopted) => {
                    let adoption = Adoption {
                        own: self.own,
                        slice: self.links.own(),
                    };
                    looked.datagrams += adoption.deliver(&adopted, counters, sink);
                }
                Event::Message(from, LinkMessage::Question) => {
                    self.roll_call.heard(from);
                    self.steward.heard(monotonic_ns(), from);
                    let mut out = [0; MESSAGE_BYTES_MAX];
                    // One that is lost is asked for again.
                    let _ = self
                        .links
                        .send(from, LinkMessage::SignOfLife.write(&mut out), &[]);
                }
                Event::Message(from, message) => {
                    self.roll_call.heard(from);
                    hear(&mut self.steward, from, &message);
                }
                Event::Joined(slice) => {
                    let now_ns = monotonic_ns();
                    self.steward.member_joined(now_ns, slice);
                    self.roll_call.joined(now_ns, slice);
                    let table = control::encode_table(self.steward.table());
                    let mut out = [0; MESSAGE_BYTES_MAX];
                    // Without it the newcomer has to find out by itself.
                    let _ = self
                        .links
                        .send(slice, LinkMessage::Table(&table).write(&mut out), &[]);
                }
                Event::Left(slice) => {
                    self.roll_call.left(slice);
                    self.steward.member_left(monotonic_ns(), slice);
                }
                // First come the answers that lie here.
                Event::Timer => is_time = true,
                Event::Other => self.has_interface_news = true,
                Event::Noise => {}
            }
        }
        if is_time {
            let now_ns = monotonic_ns();
            self.is_behind |= self.roll_call.has_overslept(now_ns);
            let read_until_ns = self.read_until_ns.max(now_ns.saturating_sub(BACKLOG_NS));
            self.steward.timeout(now_ns, read_until_ns);
            match self.roll_call.timeout(now_ns) {
                Some(Call::Ask(members)) => self.links.send_to(members, &LinkMessage::Question),
                Some(Call::Silent(members)) => self.steward.are_asleep(now_ns, members),
                None => {}
            }
        }
        if looked.events > 0 {
            self.act(socket, transmitter, counters);
        }
        looked
    }

    /// In a forked child: close every descriptor.
    pub(super) fn close(&mut self) {
        self.links.close();
    }

    pub(super) fn claim_service(&mut self, service: ServiceId) -> Result<()> {
        self.links.claim_service(service)
    }

    pub(super) fn release_service(&mut self, service: ServiceId) {
        self.links.release_service(service);
    }

    /// Pass the request at `at` on to who listens; false when nobody else does, so that it is for us, to refuse most
    /// often. One that has lain here while we slept is dropped if its sender is on this machine: it was sent again long
    /// since, and may be over by now.
    fn pass_request_on(
        &mut self,
        service: ServiceId,
        datagram: &Datagram<'_>,
        at: usize,
        counters: &mut FabricCounters,
    ) -> bool {
        if self.is_on_this_machine(datagram.from.ip()) && self.links.may_be_anothers(service) {
            self.is_behind |= self.roll_call.has_overslept(monotonic_ns());
            if self.is_behind {
                counters.forward_dropped += 1;
                return true;
            }
        }
        let adopted = adopted(datagram, at, segment(datagram, at).len());
        let passed = self
            .links
            .send_to_service(service, &adopted.head(), adopted.bytes);
        counters.forwarded += u64::from(passed.is_ok());
        passed.is_ok()
    }

    /// Pass the packets from `at` on that belong to `slice` together; returns their bytes.
    fn pass_on(
        &mut self,
        slice: Slice,
        datagram: &Datagram<'_>,
        at: usize,
        counters: &mut FabricCounters,
    ) -> usize {
        let rest = &datagram.bytes[at..];
        let belongs = |packet: &&[u8]| destination(packet) == Destination::QueuePair(slice);
        let packets = rest.chunks(datagram.segment_bytes).take_while(belongs);
        let (count, length) = packets.fold((0u64, 0), |(count, length), packet| {
            (count + 1, length + packet.len())
        });
        let adopted = adopted(datagram, at, length);
        let head = adopted.head();
        let mut sent = self.links.send(slice, &head, adopted.bytes);
        if sent == Err(NotSent::NotLinked) {
            // It may have come a moment ago, and we have not heard its hello yet.
            let now_ns = monotonic_ns();
            if self.links.seek(slice, now_ns) {
                self.steward.member_joined(now_ns, slice);
                self.roll_call.joined(now_ns, slice);
                sent = self.links.send(slice, &head, adopted.bytes);
            }
        }
        match sent {
            Ok(()) => counters.forwarded += count,
            Err(_) => counters.forward_dropped += count,
        }
        length
    }
}

/// The packet that begins at byte `at` of a datagram or train.
pub(super) fn segment<'a>(datagram: &Datagram<'a>, at: usize) -> &'a [u8] {
    let end = (at + datagram.segment_bytes).min(datagram.bytes.len());
    &datagram.bytes[at..end]
}

/// What is known of the packet that begins at byte `at`, sent to `dst`.
pub(super) fn meta(datagram: &Datagram<'_>, dst: IpAddr, at: usize) -> RxMeta {
    RxMeta {
        src: datagram.from.ip(),
        dst,
        source_port: datagram.from.port(),
        segment: (at / datagram.segment_bytes) as u16,
        traffic_class: datagram.traffic_class,
        hop_limit: datagram.hop_limit,
    }
}
