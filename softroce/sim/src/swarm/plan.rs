//! What a run is made of.

use serde::{Deserialize, Serialize};
use verbs_api::Mtu;

use crate::Link;

mod draw;

/// Everything that is drawn before a run begins. It is kept as JSON: the same plan gives the same run, always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Devices, each with an address of its own.
    pub devices: usize,
    /// Reliable conversations.
    pub conversations: Vec<Setup>,
    /// Unreliable ones.
    #[serde(default)]
    pub streams: Vec<Stream>,
    /// How packets travel until the faults stop.
    pub weather: Weather,
    /// Bytes that a device's socket holds; `None` has no limit.
    pub inbox_bytes: Option<u64>,
    /// When the faults stop.
    pub faults_ns: u64,
    /// In the order of their time.
    pub outages: Vec<Outage>,
    /// What the faults of the network follow from.
    pub world_seed: u64,
    /// What the delays of the programs follow from.
    pub work_seed: u64,
}

/// The chances of a link, as in [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are those of Link.
pub struct Weather {
    pub latency_ns: u64,
    pub jitter_ns: u64,
    pub rate_bps: Option<u64>,
    pub queue_bytes: u64,
    pub loss_per_mille: u32,
    pub duplication_per_mille: u32,
    pub reordering_per_mille: u32,
    pub hold_ns: u64,
    pub corruption_per_mille: u32,
}

impl Weather {
    /// As a link.
    pub fn link(&self) -> Link {
        Link {
            latency_ns: self.latency_ns,
            jitter_ns: self.jitter_ns,
            rate_bps: self.rate_bps,
            queue_bytes: self.queue_bytes,
            loss_per_mille: self.loss_per_mille,
            duplication_per_mille: self.duplication_per_mille,
            reordering_per_mille: self.reordering_per_mille,
            hold_ns: self.hold_ns,
            corruption_per_mille: self.corruption_per_mille,
            up: true,
        }
    }

    /// Whether every packet arrives once, in order.
    pub fn is_fair(&self) -> bool {
        let chances = self.loss_per_mille
            + self.duplication_per_mille
            + self.reordering_per_mille
            + self.corruption_per_mille;
        chances == 0 && self.rate_bps.is_none()
    }
}

/// A link goes down or comes up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Outage {
    pub at_ns: u64,
    pub from: usize,
    pub to: usize,
    pub up: bool,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Kind {
    Send,
    Write,
    WriteWithImmediate,
    Read,
    FetchAdd,
}

/// A request. Each has a slot of its own at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Message {
    pub kind: Kind,
    pub size: usize,
    pub is_signaled: bool,
    pub is_fenced: bool,
}

/// One pair of reliably connected queue pairs; codes are those of `verbs_api::QpAttr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Setup {
    /// Devices of requester and responder; they may be one.
    pub ends: [usize; 2],
    pub mtu: usize,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
    pub psn: [u32; 2],
    pub messages: Vec<Message>,
    pub longest: usize,
    /// Requests outstanding at most.
    pub depth: usize,
    /// Per mille of the chances in which receives are posted late.
    pub late_receives: u32,
}

/// The service of a [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Unreliable {
    Uc,
    Ud,
}

/// One pair of queue pairs that promise nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Stream {
    pub service: Unreliable,
    pub ends: [usize; 2],
    pub mtu: usize,
    pub psn: u32,
    /// The bytes of each message.
    pub sizes: Vec<usize>,
    pub depth: usize,
    pub late_receives: u32,
}

impl Plan {
    /// What is wrong with a plan that somebody wrote, if anything.
    ///
    /// # Errors
    /// A sentence that names the value.
    pub fn check(&self) -> Result<(), String> {
        const MOST: usize = 64;
        let within = |what: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{what} is {value}; it must be from {least} to {most}"))
            }
        };
        within("the number of devices", self.devices, 1, 16)?;
        within("the number of conversations", self.conversations.len(), 0, MOST)?;
        within("the number of streams", self.streams.len(), 0, MOST)?;
        let mtu = |bytes: usize| match Mtu::from_bytes(bytes) {
            Some(_) => Ok(()),
            None => Err(format!("{bytes} is no path MTU")),
        };
        let ends = |ends: [usize; 2]| match ends.into_iter().find(|end| *end >= self.devices) {
            Some(end) => Err(format!("there is no device {end}")),
            None => Ok(()),
        };
        for setup in &self.conversations {
            ends(setup.ends)?;
            mtu(setup.mtu)?;
            within("the depth", setup.depth, 1, 1024)?;
            within("the number of messages", setup.messages.len(), 1, 10_000)?;
            within("the longest message", setup.longest, 8, 1 << 20)?;
            for message in &setup.messages {
                within("the size of a message", message.size, 0, setup.longest)?;
            }
        }
        for stream in &self.streams {
            ends(stream.ends)?;
            mtu(stream.mtu)?;
            within("the depth", stream.depth, 1, 1024)?;
            within("the number of messages", stream.sizes.len(), 1, 10_000)?;
            for size in &stream.sizes {
                within("the size of a message", *size, 0, stream.longest())?;
            }
        }
        for outage in &self.outages {
            ends([outage.from, outage.to])?;
        }
        Ok(())
    }
}

impl Setup {
    /// The path MTU.
    pub(super) fn mtu(&self) -> Mtu {
        Mtu::from_bytes(self.mtu).unwrap_or(Mtu::Mtu1024)
    }
}

impl Stream {
    /// The path MTU.
    pub(super) fn mtu(&self) -> Mtu {
        Mtu::from_bytes(self.mtu).unwrap_or(Mtu::Mtu1024)
    }

    /// The longest message that the service carries here.
    pub fn longest(&self) -> usize {
        match self.service {
            Unreliable::Uc => 1 << 16,
            // A datagram is one packet of the port's MTU.
            Unreliable::Ud => 4096,
        }
    }
}
