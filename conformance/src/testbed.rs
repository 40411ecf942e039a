//! What a case runs on: two ends of one provider, joined by a network, and a clock.

use std::time::Duration;

use roce_wire::{Headers, ICRC_LEN, pad_len};
use verbs_api::{ConnectionManager, Gid, Provider};

use crate::outcome::{Failure, Verdict};

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The end that acts first in most cases.
    Left,
    /// Its peer.
    Right,
}

impl Side {
    /// Both.
    pub const BOTH: [Side; 2] = [Side::Left, Side::Right];

    /// The other one.
    pub fn peer(self) -> Side {
        match self {
            Side::Left => Side::Right,
            Side::Right => Side::Left,
        }
    }

    /// 0 for left, 1 for right.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Something that not every bed has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Control over the packets between the ends (see [`Network`]).
    Network,
    /// Ports that the bed can take down and up again.
    PortControl,
    /// A second pair of addresses, of the other IP family.
    BothFamilies,
    /// Unreliable connections.
    Uc,
    /// Unreliable datagrams.
    Ud,
    /// Multicast.
    Multicast,
    /// Multicast in the other IP family too.
    MulticastInBothFamilies,
    /// Extended reliable connections.
    Xrc,
    /// Shared receive queues.
    Srq,
    /// Atomics.
    Atomics,
    /// ATOMIC WRITE.
    AtomicWrite,
    /// FLUSH.
    Flush,
    /// Re-registration of memory.
    Rereg,
    /// The null memory region.
    NullMr,
    /// Regions whose addresses count from zero.
    ZeroBased,
    /// Regions whose memory comes in when it is touched.
    OnDemand,
    /// Device memory.
    DeviceMemory,
    /// Memory windows of type 1.
    MwType1,
    /// Memory windows of type 2, which local and remote invalidation come with.
    MwType2,
    /// Automatic path migration.
    PathMigration,
    /// Completion queues that can be resized.
    ResizeCq,
    /// Completion queues that hold events back.
    ModerateCq,
    /// Completions with the time of the device.
    Timestamps,
    /// Connections by address and port.
    ConnectionManager,
    /// Sockets whose room the bed can bound.
    ReceiveRoom,
    /// Packets whose IPv4 identification the device does not see, though their ICRC covers it.
    UnseenIdentification,
    /// Keys of memory that nobody can guess who knows others.
    SecretKeys,
    /// Counters of what a device has sent, received and dropped.
    Counters,
    /// Time that passes at once.
    VirtualTime,
}

impl Need {
    /// What is missing, in words.
    pub fn lacking(self) -> &'static str {
        match self {
            Need::Network => "this bed cannot drop, delay, see or forge packets",
            Need::PortControl => "this bed cannot take a port down",
            Need::BothFamilies => "this bed has addresses of one IP family only",
            Need::Uc => "the device offers no unreliable connections",
            Need::Ud => "the device offers no unreliable datagrams",
            Need::Multicast => "the device offers no multicast",
            Need::MulticastInBothFamilies => {
                "no multicast between this bed's addresses of the other IP family"
            }
            Need::Xrc => "the device offers no XRC",
            Need::Srq => "the device offers no shared receive queues",
            Need::Atomics => "the device offers no atomics",
            Need::AtomicWrite => "the device offers no ATOMIC WRITE",
            Need::Flush => "the device offers no FLUSH",
            Need::Rereg => "the provider cannot re-register memory",
            Need::NullMr => "the device offers no null memory region",
            Need::ZeroBased => "the device offers no zero-based regions",
            Need::OnDemand => "the device offers no paging on demand",
            Need::DeviceMemory => "the device has no memory of its own",
            Need::MwType1 => "the device offers no memory windows of type 1",
            Need::MwType2 => "the device offers no memory windows of type 2",
            Need::PathMigration => "the device offers no path migration",
            Need::ResizeCq => "the provider cannot resize completion queues",
            Need::ModerateCq => "the provider cannot moderate completion queues",
            Need::Timestamps => "the device offers no completion timestamps",
            Need::ReceiveRoom => "this bed cannot bound what may wait to be read at a device",
            Need::UnseenIdentification => "the device sees IP headers, and need not guess the identification",
            Need::SecretKeys => "the device says nothing of its keys being hard to guess",
            Need::Counters => "this bed does not show what its devices count",
            Need::ConnectionManager => {
                "the provider has no connection manager, or the device no IP address among its GIDs"
            }
            Need::VirtualTime => "it waits for minutes, which pass at once in virtual time only",
        }
    }
}

/// Which of a bed's two pairs of addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Family {
    /// Those that most cases use, of whichever IP family.
    #[default]
    Usual,
    /// Those of the other IP family ([`Need::BothFamilies`]).
    Other,
}

/// Whether anything can still happen by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Time passed, or something was done.
    Going,
    /// No packet is in flight and no timer runs, so that waiting is in vain. Only a simulator knows.
    Dead,
}

/// Two ends, a network, a clock.
pub trait Testbed: Sized {
    /// The provider under test.
    type P: Provider;
    /// Its connection manager; [`verbs_api::NoConnectionManager`] where there is none.
    type Cm: ConnectionManager<P = Self::P>;

    /// The device of one end.
    fn context(&self, side: Side) -> &<Self::P as Provider>::Context;

    /// The device of one end that has an address of this family; the same for both, unless the bed says otherwise.
    fn device(&self, side: Side, family: Family) -> &<Self::P as Provider>::Context {
        let _ = family;
        self.context(side)
    }

    /// A connection manager, as of one program, where [`Testbed::has`] says so for [`Need::ConnectionManager`].
    ///
    /// # Errors
    /// EOPNOTSUPP: there is none.
    fn connection_manager(&self) -> verbs_api::Result<Self::Cm> {
        Err(verbs_api::Error::unsupported("connection management"))
    }

    /// Which port and GID of that device to use: (port, index in the GID table).
    fn gid_index(&self, side: Side, family: Family) -> (u8, u32) {
        let _ = (side, family);
        (1, 0)
    }

    /// Time on the bed's clock since an arbitrary start.
    fn now(&self) -> Duration;

    /// Let the ends work and time pass, but not beyond `until`. A real bed sleeps for a moment.
    fn advance(&mut self, until: Duration) -> Activity;

    /// Whether the bed has what a case needs.
    fn has(&self, need: Need) -> bool;

    /// How long a case may wait for something that must come, in the bed's time.
    fn patience(&self) -> Duration {
        Duration::from_secs(20)
    }

    /// How much later than the specification permits things may be noticed here: nothing in virtual time, a while on a
    /// machine that has other things to do.
    fn slack(&self) -> Duration {
        Duration::ZERO
    }

    /// The least ACK timeout code within which an answer comes here; of a machine that has other things to do, mostly.
    fn least_timeout(&self) -> u8 {
        0
    }

    /// How long packets on their way may take to arrive, and to be dealt with: nobody looks whether something has come of
    /// them before. Nothing in virtual time, where that is known.
    fn settling(&self) -> Duration {
        Duration::ZERO
    }

    /// The reason for which this provider is known, and documented, to answer as `seen` says in the case `id`.
    fn tolerance(&self, id: &str, seen: &str) -> Option<String> {
        let _ = (id, seen);
        None
    }

    /// The verdict on the case `id`, which shows `requirements` and has failed.
    fn verdict(&self, id: &str, requirements: &[&str], failure: &Failure) -> Verdict {
        let _ = (id, requirements);
        Verdict::Fail(failure.to_string())
    }

    /// Control over packets, where [`Testbed::has`] says so for [`Need::Network`].
    fn network(&mut self) -> Option<&mut dyn Network> {
        None
    }

    /// Tell the bed that queue pairs at this end will join a multicast group. Some devices leave joining it at the IP
    /// layer to others.
    fn expect_group(&mut self, side: Side, group: Gid) {
        let _ = (side, group);
    }

    /// Take the port of one end down, or up again, where [`Testbed::has`] says so for [`Need::PortControl`].
    fn set_port_up(&mut self, side: Side, up: bool) {
        let _ = (side, up);
    }

    /// Bound the bytes that may wait to be read at one end, or no longer, where [`Testbed::has`] says so for
    /// [`Need::ReceiveRoom`].
    fn set_receive_room(&mut self, side: Side, bytes: Option<u64>) {
        let _ = (side, bytes);
    }

    /// What the device of one end has counted, by the names of the kernel's soft RDMA and in a fixed order, where
    /// [`Testbed::has`] says so for [`Need::Counters`].
    fn counters(&self, side: Side) -> Vec<(&'static str, u64)> {
        let _ = side;
        Vec::new()
    }

    /// The objects that exist on the devices, in words, where the bed can tell and there are any. A case has destroyed
    /// all that it made.
    fn leftovers(&self) -> Option<String> {
        None
    }

    /// Write the packets seen so far to a file, where the bed has seen them.
    fn save_capture(&self, path: &std::path::Path) -> Option<std::io::Result<()>> {
        let _ = path;
        None
    }
}

/// A packet on its way, as a rule sees it.
#[derive(Clone, Debug)]
pub struct Passing {
    /// When it was sent.
    pub at: Duration,
    /// Who sent it.
    pub from: Side,
    /// Its headers.
    pub headers: Headers,
    /// Payload bytes, pad excluded.
    pub payload: Vec<u8>,
    /// How often this PSN, in this direction, has been sent for this purpose (request or response) to this queue
    /// pair: 1 is the first time.
    pub transmission: u32,
    /// Everything between UDP header and end, ICRC included.
    pub bytes: Vec<u8>,
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It arrives.
    Deliver,
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives so much later, perhaps behind others.
    Delay(Duration),
    /// It arrives with one bit flipped, counted from the first bit of the BTH modulo its length.
    Corrupt {
        /// Which.
        bit: u32,
    },
}

/// A rule: asked for every packet.
pub type Rule = Box<dyn FnMut(&Passing) -> Fate + Send>;

/// Control over the packets between the ends.
pub trait Network {
    /// Ask `rule` what becomes of each packet from now on; it replaces the rule before it.
    fn set_rule(&mut self, rule: Rule);
    /// Deliver everything again.
    fn clear_rule(&mut self);
    /// Lose, duplicate and reorder at random; each value is per mille of the packets.
    fn set_weather(&mut self, loss: u32, duplication: u32, reordering: u32);
    /// The packets sent since the last call, lost ones included.
    fn take_trace(&mut self) -> Vec<Passing>;
    /// Forge a packet: it arrives at `to` as if its peer had sent it, with a right ICRC.
    fn inject(&mut self, to: Side, headers: &Headers, payload: &[u8]) {
        let mut headers = *headers;
        headers.bth.pad = pad_len(payload.len());
        let headers_len = headers.len();
        let mut bytes = vec![0; headers_len + payload.len() + usize::from(headers.bth.pad) + ICRC_LEN];
        headers
            .emit(&mut bytes)
            .expect("a case forges packets with all headers that their opcode calls for");
        bytes[headers_len..headers_len + payload.len()].copy_from_slice(payload);
        self.inject_sealed(to, &bytes);
    }
    /// The same from bytes: the last four become a right ICRC of those before.
    fn inject_sealed(&mut self, to: Side, udp_payload: &[u8]) {
        self.inject_numbered(to, udp_payload, 0);
    }
    /// The same, with an ICRC that is right if the IPv4 header has this identification.
    fn inject_numbered(&mut self, to: Side, udp_payload: &[u8], identification: u16);
    /// The same from bytes as they are (BTH to ICRC).
    fn inject_raw(&mut self, to: Side, udp_payload: &[u8]);
}
