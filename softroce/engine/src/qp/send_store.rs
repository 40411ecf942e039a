//! The memory of send queues.
#![forbid(unsafe_code)]

use std::collections::TryReserveError;

use verbs_api::{SendFlags, Sge};

use super::operation::{Operation, SendTail};
use super::send_queue::{Destination, SendWqe, Source};
use crate::pool::{Pools, Store, make_room};
use crate::psn::Seq;

/// The send queues' pools of an engine.
pub(crate) type SendPools = Pools<SendStore>;

/// What a request of a queue may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendShape {
    pub(super) max_sge: usize,
    /// Bytes.
    pub(super) max_inline: usize,
    /// Each goes somewhere of its own: datagrams.
    pub(super) has_destinations: bool,
}

/// Requests, and for each its room for entries, for inline bytes, and for a destination.
#[derive(Debug)]
pub(crate) struct SendStore {
    pub(super) shape: SendShape,
    pub(super) wqes: Vec<SendWqe>,
    sges: Vec<Sge>,
    inline: Vec<u8>,
    /// Empty where none has one.
    pub(super) destinations: Vec<Destination>,
}

const EMPTY: SendWqe = SendWqe {
    wr_id: 0,
    op: Operation::Send {
        tail: SendTail::Plain,
    },
    flags: SendFlags::empty(),
    is_signaled: false,
    length: 0,
    srq: None,
    source: Source::Sges(0),
    first: Seq::ZERO,
    last: Seq::ZERO,
    is_asked_again: false,
};

impl Store for SendStore {
    type Shape = SendShape;

    fn new(shape: SendShape) -> Self {
        SendStore {
            shape,
            wqes: Vec::new(),
            sges: Vec::new(),
            inline: Vec::new(),
            destinations: Vec::new(),
        }
    }

    fn shape(&self) -> SendShape {
        self.shape
    }

    fn reserve(&mut self, entries: usize) -> Result<(), TryReserveError> {
        make_room(&mut self.wqes, entries)?;
        make_room(&mut self.sges, entries * self.shape.max_sge)?;
        make_room(&mut self.inline, entries * self.shape.max_inline)?;
        let destinations = self.destinations_of(entries);
        make_room(&mut self.destinations, destinations)
    }

    fn extend_to(&mut self, entries: usize) {
        self.wqes.resize(entries, EMPTY);
        self.sges.resize(entries * self.shape.max_sge, Sge::default());
        self.inline.resize(entries * self.shape.max_inline, 0);
        let destinations = self.destinations_of(entries);
        self.destinations.resize(destinations, Destination::default());
    }
}

impl SendStore {
    fn destinations_of(&self, entries: usize) -> usize {
        if self.shape.has_destinations { entries } else { 0 }
    }

    pub(super) fn sges(&self, slot: usize) -> &[Sge] {
        &self.sges[slot * self.shape.max_sge..][..self.shape.max_sge]
    }

    pub(super) fn sges_mut(&mut self, slot: usize) -> &mut [Sge] {
        &mut self.sges[slot * self.shape.max_sge..][..self.shape.max_sge]
    }

    pub(super) fn inline(&self, slot: usize) -> &[u8] {
        &self.inline[slot * self.shape.max_inline..][..self.shape.max_inline]
    }

    pub(super) fn inline_mut(&mut self, slot: usize) -> &mut [u8] {
        &mut self.inline[slot * self.shape.max_inline..][..self.shape.max_inline]
    }
}
