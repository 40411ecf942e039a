//! Rules as values.

use verbs_api::WcStatus;

use crate::{Action, Numbers, Select, VerbSet, When};

/// Rules that one set may have, all kinds together.
pub const RULES_MAX: usize = 256;

/// A set of rules. The default has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rules {
    /// Where chance comes from: the same seed gives the same.
    pub seed: u64,
    /// About packets. Every rule that hits a packet acts, in this order, until one takes the packet away.
    pub packets: Vec<PacketRule>,
    /// About verbs calls. The first that hits a call decides.
    pub verbs: Vec<VerbRule>,
    /// About completions. The first that hits one decides.
    pub completions: Vec<CompletionRule>,
    /// What happens by itself at some time.
    pub events: Vec<EventRule>,
}

impl Rules {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.packets.len() + self.verbs.len() + self.completions.len() + self.events.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// With one rule more about packets, named after its place.
    #[must_use]
    pub fn packet(mut self, select: Select, when: When, action: Action) -> Rules {
        let name = format!("packet {}", self.packets.len() + 1);
        self.packets.push(PacketRule {
            name,
            select,
            when,
            action,
        });
        self
    }

    /// With one rule more about verbs calls, named after its place.
    #[must_use]
    pub fn verb(mut self, calls: VerbSet, when: When, errno: i32) -> Rules {
        let name = format!("verb {}", self.verbs.len() + 1);
        self.verbs.push(VerbRule {
            name,
            calls,
            when,
            errno,
        });
        self
    }
}

/// Something happens to a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct PacketRule {
    /// For reports.
    pub name: String,
    /// Which packets match.
    pub select: Select,
    /// Which of them are hit.
    pub when: When,
    /// What happens to them.
    pub action: Action,
}

/// A verbs call returns an error and does nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct VerbRule {
    /// For reports.
    pub name: String,
    /// Which calls match. Of posting, every work request counts as a call.
    pub calls: VerbSet,
    /// Which of them are hit.
    pub when: When,
    /// What they return, 1 to 4095.
    pub errno: i32,
}

/// What kind of work request completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// In a send queue, of any operation.
    Send,
    /// A receive request.
    Receive,
}

/// A completion becomes an error, and its queue pair fails as by a real one.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletionRule {
    /// For reports.
    pub name: String,
    /// Of these queue pairs.
    pub qpn: Numbers,
    /// Of this kind; `None`: any.
    pub work: Option<Work>,
    /// Which of them are hit. Only requests that succeed count, in the send queue unsignalled ones too.
    pub when: When,
    /// What they complete with instead.
    pub status: WcStatus,
}

/// Something that happens to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The cable is pulled: IBV_EVENT_PORT_ERR, and nothing passes.
    PortDown,
    /// The port is as its interface is: IBV_EVENT_PORT_ACTIVE.
    PortUp,
    /// The device's GIDs vanish: IBV_EVENT_GID_CHANGE.
    GidsGone,
    /// They are back: IBV_EVENT_GID_CHANGE.
    GidsBack,
    /// Queue pairs fail with IBV_EVENT_QP_FATAL.
    QpFatal,
    /// The device fails with IBV_EVENT_DEVICE_FATAL: so do its queue pairs, and every later call, with EIO.
    DeviceFatal,
}

impl Event {
    /// All of them.
    pub const ALL: [Event; 6] = [
        Event::PortDown,
        Event::PortUp,
        Event::GidsGone,
        Event::GidsBack,
        Event::QpFatal,
        Event::DeviceFatal,
    ];

    /// Its word.
    pub const fn name(self) -> &'static str {
        match self {
            Event::PortDown => "port-down",
            Event::PortUp => "port-up",
            Event::GidsGone => "gids-gone",
            Event::GidsBack => "gids-back",
            Event::QpFatal => "qp-fatal",
            Event::DeviceFatal => "device-fatal",
        }
    }

    /// What ends it, if anything does.
    pub const fn end(self) -> Option<Event> {
        match self {
            Event::PortDown => Some(Event::PortUp),
            Event::GidsGone => Some(Event::GidsBack),
            Event::PortUp | Event::GidsBack | Event::QpFatal | Event::DeviceFatal => None,
        }
    }
}

/// Something happens at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct EventRule {
    /// For reports.
    pub name: String,
    /// What.
    pub event: Event,
    /// When, ns since the rules were loaded.
    pub at_ns: u64,
    /// It ends by itself after so long, ns, if it can end.
    pub lasts_ns: Option<u64>,
    /// To these queue pairs of the device, for those that are about queue pairs.
    pub qpn: Numbers,
}
