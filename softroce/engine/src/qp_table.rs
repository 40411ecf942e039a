//! All queue pairs of an engine, by number and by slot.
//!
//! A *slot* is a small index for lists and timers; a QPN is drawn from the engine's slice of the 24-bit space, in
//! turn, so that a number comes back only after all others. From QPN to slot is one look into a lazily filled table.
#![forbid(unsafe_code)]

use roce_wire::Qpn;

use crate::prefetch::prefetch;
use crate::qp::Qp;

const PAGE: usize = 256;
const ABSENT: u32 = u32::MAX;

/// The table.
#[derive(Debug)]
pub(crate) struct QpTable {
    base: u32,
    count: u32,
    /// Where the search for a free number goes on.
    cursor: u32,
    /// QPN − base → slot, in pages that appear when first used.
    pages: Vec<Option<Box<[u32; PAGE]>>>,
    slots: Vec<Option<Box<Qp>>>,
    free_slots: Vec<u32>,
    /// Slot of queue pair 1, which no slice of the numbers has.
    gsi: Option<u32>,
    live: u32,
    /// The slot that was asked for last: its queue pair is in the cache.
    last: u32,
}

impl QpTable {
    /// For the numbers `base .. base + count`; `start` is the offset of the first one to be given out.
    pub(crate) fn new(base: u32, count: u32, start: u32) -> Self {
        // 0xffffff is the multicast QPN.
        let count = count.min(0xff_ffff_u32.saturating_sub(base));
        QpTable {
            base,
            count,
            cursor: start % count.max(1),
            pages: vec![None; (count as usize).div_ceil(PAGE)],
            slots: Vec::new(),
            free_slots: Vec::new(),
            gsi: None,
            live: 0,
            last: ABSENT,
        }
    }

    /// Numbers that it may give out. 0 and 1 are not for anybody to have.
    pub(crate) fn limit(&self) -> u32 {
        self.count - 2_u32.saturating_sub(self.base).min(self.count)
    }

    /// Queue pairs that exist.
    pub(crate) fn len(&self) -> usize {
        self.live as usize
    }

    /// Slots in use, and holes between them.
    pub(crate) fn slot_count(&self) -> usize {
        self.slots.len()
    }

    /// Whether all numbers are in use.
    pub(crate) fn is_full(&self) -> bool {
        self.live >= self.limit()
    }

    /// Store the queue pair that `make` builds for a number and a slot. `None` when all numbers are in use.
    pub(crate) fn insert(&mut self, make: impl FnOnce(Qpn, u32) -> Qp) -> Option<&mut Qp> {
        if self.is_full() {
            return None;
        }
        let offset = self.free_offset();
        let slot = self.free_slot();
        let page = self.pages[offset as usize / PAGE].get_or_insert_with(|| Box::new([ABSENT; PAGE]));
        page[offset as usize % PAGE] = slot;
        self.live += 1;
        let qpn = Qpn::new(self.base + offset)?;
        Some(self.slots[slot as usize].insert(Box::new(make(qpn, slot))))
    }

    /// Store queue pair 1, the general service interface. `None` when there is one.
    pub(crate) fn insert_gsi(&mut self, make: impl FnOnce(Qpn, u32) -> Qp) -> Option<&mut Qp> {
        if self.gsi.is_some() {
            return None;
        }
        let slot = self.free_slot();
        self.gsi = Some(slot);
        Some(self.slots[slot as usize].insert(Box::new(make(Qpn::GSI, slot))))
    }

    fn free_slot(&mut self) -> u32 {
        self.free_slots.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // So that removing never allocates.
            self.free_slots.reserve(self.slots.len());
            self.slots.len() as u32 - 1
        })
    }

    fn free_offset(&mut self) -> u32 {
        loop {
            let offset = self.cursor;
            self.cursor = (self.cursor + 1) % self.count;
            let is_reserved = self.base + offset <= Qpn::GSI.value();
            if !is_reserved && self.slot_at(offset).is_none() {
                return offset;
            }
        }
    }

    fn slot_at(&self, offset: u32) -> Option<u32> {
        let page = self.pages.get(offset as usize / PAGE)?.as_ref()?;
        Some(page[offset as usize % PAGE]).filter(|slot| *slot != ABSENT)
    }

    fn slot_of(&self, qpn: u32) -> Option<u32> {
        let own = qpn.checked_sub(self.base).and_then(|offset| self.slot_at(offset));
        own.or_else(|| self.gsi.filter(|_| qpn == Qpn::GSI.value()))
    }

    /// The queue pair of this number.
    pub(crate) fn get(&self, qpn: u32) -> Option<&Qp> {
        let slot = self.slot_of(qpn)?;
        self.slots[slot as usize].as_deref()
    }

    /// The queue pair of this number.
    pub(crate) fn get_mut(&mut self, qpn: u32) -> Option<&mut Qp> {
        let slot = self.slot_of(qpn)?;
        let qp = self.slots[slot as usize].as_deref_mut()?;
        if std::mem::replace(&mut self.last, slot) != slot {
            prefetch(qp);
        }
        Some(qp)
    }

    /// The queue pair in this slot.
    pub(crate) fn in_slot(&mut self, slot: u32) -> Option<&mut Qp> {
        self.slots.get_mut(slot as usize)?.as_deref_mut()
    }

    /// All queue pairs. For the control path.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Qp> {
        self.slots.iter_mut().filter_map(Option::as_deref_mut)
    }

    /// Take a queue pair out.
    pub(crate) fn remove(&mut self, qpn: u32) -> Option<Box<Qp>> {
        let slot = self.slot_of(qpn)?;
        if qpn == Qpn::GSI.value() {
            self.gsi = None;
        } else {
            let offset = (qpn - self.base) as usize;
            if let Some(Some(page)) = self.pages.get_mut(offset / PAGE) {
                page[offset % PAGE] = ABSENT;
            }
            self.live -= 1;
        }
        self.free_slots.push(slot);
        self.slots[slot as usize].take()
    }
}
