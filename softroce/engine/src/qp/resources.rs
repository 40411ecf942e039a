//! What a responder remembers of READs, atomics, ATOMIC WRITEs and FLUSHes: to answer them, and to answer them again (IBA 9.7.5.1.4).
#![forbid(unsafe_code)]

use roce_wire::RKey;

use crate::PdId;
use crate::mutants::{Mutant, is_on};
use crate::psn::Seq;

/// The last `max_dest_rd_atomic` READs and atomics, answered ones included.
#[derive(Debug, Default)]
pub(super) struct Resources {
    ring: Box<[Resource]>,
    /// How many were ever stored; the newest has number `stored - 1`.
    stored: u64,
    /// How many of them still owe packets.
    owing: u32,
}

/// A READ or an atomic.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Resource {
    pub(super) first: Seq,
    pub(super) last: Seq,
    pub(super) kind: Kind,
    /// Packets still to be sent.
    pub(super) debt: Debt,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Kind {
    #[default]
    None,
    Read {
        va: u64,
        rkey: RKey,
        length: u32,
        /// The domain that the key was good in: later requests of an XRC connection may go to another one.
        pd: PdId,
    },
    Atomic {
        original: u64,
    },
    /// ATOMIC WRITE or FLUSH: that it is done is all there is to say.
    Confirmed,
}

/// What a resource owes to the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Debt {
    #[default]
    Nothing,
    /// The packets from `next` to `end`, which belong to one request that began at `start`.
    Packets {
        start: Seq,
        next: Seq,
        end: Seq,
        reason: Reason,
    },
}

/// Why it owes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// The request came for the first time. A key that is gone by now is answered by a NAK.
    Request,
    /// It came again. What cannot be answered any more is not.
    Duplicate,
}

impl Resources {
    pub(super) fn new(count: u8) -> Self {
        Resources {
            ring: vec![Resource::default(); usize::from(count)].into_boxed_slice(),
            stored: 0,
            owing: 0,
        }
    }

    /// Remember `count` from now on; the newest of those that it remembers stay.
    pub(super) fn resize(&mut self, count: u8) {
        let mut resized = Resources::new(count);
        let kept = match is_on(Mutant::RetuningForgetsAnswers) {
            true => 0,
            false => u64::from(count).min(self.stored),
        };
        for number in self.numbers().filter(|number| self.stored - number <= kept) {
            let resource = self.ring[self.index(number)];
            resized.ring[resized.stored as usize] = resource;
            resized.stored += 1;
            resized.owing += u32::from(resource.debt != Debt::Nothing);
        }
        *self = resized;
    }

    /// Whether one more fits: the oldest has been answered. That it may be asked to answer again does not count: who
    /// sends a new request has no use for that any more.
    pub(super) fn has_room(&self) -> bool {
        match self.ring.len() as u64 {
            0 => false,
            len => match self.ring[(self.stored % len) as usize].debt {
                Debt::Nothing
                | Debt::Packets {
                    reason: Reason::Duplicate,
                    ..
                } => true,
                Debt::Packets {
                    reason: Reason::Request,
                    ..
                } => false,
            },
        }
    }

    /// Store one that owes all its packets. The caller has checked that there is room.
    pub(super) fn store(&mut self, first: Seq, last: Seq, kind: Kind) {
        let at = (self.stored % self.ring.len() as u64) as usize;
        let debt = Debt::Packets {
            start: first,
            next: first,
            end: last,
            reason: Reason::Request,
        };
        let displaced = std::mem::replace(
            &mut self.ring[at],
            Resource {
                first,
                last,
                kind,
                debt,
            },
        );
        self.stored += 1;
        // A repeated answer that the displaced one still owed is not given any more.
        self.owing += u32::from(displaced.debt == Debt::Nothing);
    }

    /// Whether anything is owed.
    pub(super) fn owes(&self) -> bool {
        self.owing > 0
    }

    /// The oldest one that owes packets.
    pub(super) fn next_owing(&mut self) -> Option<&mut Resource> {
        if self.owing == 0 {
            return None;
        }
        let at = self
            .numbers()
            .map(|number| self.index(number))
            .find(|at| self.ring[*at].debt != Debt::Nothing)?;
        Some(&mut self.ring[at])
    }

    /// The one that `psn` belongs to.
    pub(super) fn find(&self, psn: Seq) -> Option<Resource> {
        let at = self.index_of(psn)?;
        Some(self.ring[at])
    }

    /// The one that `psn` belongs to was asked for again: it owes the packets from `psn` to `end`.
    pub(super) fn owe_again(&mut self, psn: Seq, end: Seq) {
        let Some(at) = self.index_of(psn) else { return };
        let reason = match self.ring[at].debt {
            Debt::Nothing => Reason::Duplicate,
            Debt::Packets { reason, .. } => reason,
        };
        self.owe(
            psn,
            Debt::Packets {
                start: psn,
                next: psn,
                end,
                reason,
            },
        );
    }

    /// The one that `psn` belongs to owes `debt` from now on.
    pub(super) fn owe(&mut self, psn: Seq, debt: Debt) {
        if let Some(at) = self.index_of(psn) {
            let had = std::mem::replace(&mut self.ring[at].debt, debt) != Debt::Nothing;
            let has = debt != Debt::Nothing;
            self.owing = self.owing + u32::from(has) - u32::from(had);
        }
    }

    /// The first PSN of the oldest one after `psn`.
    pub(super) fn first_after(&self, psn: Seq) -> Option<Seq> {
        self.numbers()
            .map(|number| self.ring[self.index(number)].first)
            .find(|first| *first > psn)
    }

    /// Owe nothing any more.
    pub(super) fn forgive(&mut self) {
        for resource in &mut self.ring {
            resource.debt = Debt::Nothing;
        }
        self.owing = 0;
    }

    fn index_of(&self, psn: Seq) -> Option<usize> {
        self.numbers()
            .map(|number| self.index(number))
            .find(|at| self.ring[*at].first <= psn && psn <= self.ring[*at].last)
    }

    fn index(&self, number: u64) -> usize {
        (number % self.ring.len() as u64) as usize
    }

    /// The stored ones, oldest first.
    fn numbers(&self) -> std::ops::Range<u64> {
        self.stored.saturating_sub(self.ring.len() as u64)..self.stored
    }
}
