//! One direction between two devices, and rules for single packets.

use roce_wire::Headers;
use softroce_engine::{Path, Time};

/// How packets travel in one direction. The default is a link without faults and without a limit of rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Time from one end to the other, ns.
    pub latency_ns: u64,
    /// Up to so much more, at random, ns. Order is kept.
    pub jitter_ns: u64,
    /// Bits a second; `None` has no limit.
    pub rate_bps: Option<u64>,
    /// With a rate: bytes that may wait to be sent; what comes on top is lost.
    pub queue_bytes: u64,
    /// Packets lost, per mille.
    pub loss_per_mille: u32,
    /// Packets that arrive twice, per mille.
    pub duplication_per_mille: u32,
    /// Packets that are held back and so arrive behind later ones, per mille.
    pub reordering_per_mille: u32,
    /// How long such packets are held back at most, ns.
    pub hold_ns: u64,
    /// Packets of which one bit flips, per mille.
    pub corruption_per_mille: u32,
    /// Whether anything arrives at all.
    pub up: bool,
}

impl Default for Link {
    fn default() -> Self {
        Link {
            latency_ns: 2_000,
            jitter_ns: 0,
            rate_bps: None,
            queue_bytes: 1 << 20,
            loss_per_mille: 0,
            duplication_per_mille: 0,
            reordering_per_mille: 0,
            hold_ns: 50_000,
            corruption_per_mille: 0,
            up: true,
        }
    }
}

/// A packet that a device has just sent, as a [`Rule`] sees it.
#[derive(Debug)]
pub struct Transit<'a> {
    /// When.
    pub at: Time,
    /// Index of the sending device.
    pub from: usize,
    /// Index of the device that it goes to.
    pub to: usize,
    /// Addresses and IP header fields.
    pub path: &'a Path,
    /// Its headers, where they can be read.
    pub headers: Option<&'a Headers>,
    /// How often this PSN has been sent this way, for the same purpose (request or response) and to the same queue
    /// pair: 1 is the first time.
    pub transmission: u32,
    /// BTH to ICRC.
    pub bytes: &'a [u8],
}

/// What becomes of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fate {
    /// It travels as the link says.
    #[default]
    Deliver,
    /// It is lost.
    Drop,
    /// It arrives twice.
    Duplicate,
    /// It arrives so many ns later than it would, perhaps behind others.
    Delay(u64),
    /// It arrives with this bit flipped, counted from the first of the BTH, modulo its length.
    Corrupt(u32),
}

/// Asked about every packet, before chance is.
pub type Rule = Box<dyn FnMut(&Transit<'_>) -> Fate + Send>;
