//! A bounded table of objects under ids that are not reused soon.
#![forbid(unsafe_code)]

use std::collections::VecDeque;

/// Freed slots wait in line until so many of them do, which keeps a freed id from coming back early.
const FREE_MIN: usize = 1024;

/// Objects under ids of `ID_BITS` bits: the low `SLOT_BITS` are the place in the table, those above count how often
/// the place was given away. A lookup is one index and one comparison; an id of an object that is gone finds
/// nothing, until its place has been given away 2^(`ID_BITS` − `SLOT_BITS`) times.
#[derive(Debug)]
pub(crate) struct SlotTable<T, const SLOT_BITS: u32, const ID_BITS: u32> {
    slots: Vec<Slot<T>>,
    free: VecDeque<u32>,
    live: usize,
    limit: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T, const SLOT_BITS: u32, const ID_BITS: u32> SlotTable<T, SLOT_BITS, ID_BITS> {
    const SLOT_MASK: u32 = (1 << SLOT_BITS) - 1;
    const GENERATION_MASK: u32 = ((1u64 << (ID_BITS - SLOT_BITS)) - 1) as u32;

    /// An empty table for at most `limit` objects, at most 2^`SLOT_BITS`.
    pub(crate) fn new(limit: usize) -> Self {
        const { assert!(SLOT_BITS < ID_BITS && ID_BITS <= 32) };
        assert!(
            limit <= 1 << SLOT_BITS,
            "{limit} objects do not fit {SLOT_BITS} bits"
        );
        SlotTable {
            slots: Vec::new(),
            free: VecDeque::new(),
            live: 0,
            limit,
        }
    }

    /// Objects in it.
    pub(crate) fn len(&self) -> usize {
        self.live
    }

    /// How many objects it may hold.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Keep `value`; its id comes back, or the value when the table is full.
    pub(crate) fn insert(&mut self, value: T) -> Result<u32, T> {
        if self.live == self.limit {
            return Err(value);
        }
        // An unused place first, unless enough freed ones wait that taking one brings no id back soon.
        let may_grow = self.slots.len() <= Self::SLOT_MASK as usize;
        let slot = if may_grow && self.free.len() < FREE_MIN {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            self.slots.len() as u32 - 1
        } else {
            self.free
                .pop_front()
                .expect("the table is not full and has all its places, so one is free")
        };
        let place = &mut self.slots[slot as usize];
        assert!(place.value.is_none(), "slot {slot} was free and holds something");
        place.value = Some(value);
        self.live += 1;
        Ok(place.generation << SLOT_BITS | slot)
    }

    fn slot(&self, id: u32) -> Option<&Slot<T>> {
        self.slots
            .get((id & Self::SLOT_MASK) as usize)
            .filter(|s| s.generation == id >> SLOT_BITS)
    }

    fn slot_mut(&mut self, id: u32) -> Option<&mut Slot<T>> {
        self.slots
            .get_mut((id & Self::SLOT_MASK) as usize)
            .filter(|s| s.generation == id >> SLOT_BITS)
    }

    /// The place of this id: small numbers, one after the other, and again those of objects that are gone.
    pub(crate) fn place(&self, id: u32) -> u32 {
        id & Self::SLOT_MASK
    }

    /// The id of what is in this place.
    pub(crate) fn id_at(&self, place: u32) -> Option<u32> {
        let slot = self.slots.get(place as usize)?;
        slot.value.as_ref()?;
        Some(slot.generation << SLOT_BITS | place)
    }

    /// The object of this id.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.slot(id)?.value.as_ref()
    }

    /// The object of this id.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.slot_mut(id)?.value.as_mut()
    }

    /// Take the object out; its id is dead from now on.
    pub(crate) fn remove(&mut self, id: u32) -> Option<T> {
        let slot = self.slot_mut(id)?;
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & Self::GENERATION_MASK;
        self.free.push_back(id & Self::SLOT_MASK);
        self.live -= 1;
        Some(value)
    }

    /// Give the object of this id a new one; the old is dead from now on.
    pub(crate) fn renew(&mut self, id: u32) -> Option<u32> {
        let slot = self.slot_mut(id)?;
        slot.value.as_ref()?;
        slot.generation = (slot.generation + 1) & Self::GENERATION_MASK;
        Some(slot.generation << SLOT_BITS | id & Self::SLOT_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Small = SlotTable<&'static str, 12, 16>;

    #[test]
    fn an_id_finds_its_object_until_it_is_removed_and_nothing_afterwards() {
        let mut table = Small::new(2);
        let a = table.insert("a").unwrap();
        let b = table.insert("b").unwrap();
        assert_eq!(table.insert("c"), Err("c"));
        assert_eq!((table.get(a), table.get(b)), (Some(&"a"), Some(&"b")));
        assert_eq!(table.remove(a), Some("a"));
        assert_eq!(table.get(a), None);
        assert_eq!((table.remove(a), table.renew(a)), (None, None));
        assert_eq!((table.get(b), table.len()), (Some(&"b"), 1));
    }

    #[test]
    fn a_renewed_id_finds_the_object_and_the_old_one_does_not() {
        let mut table = Small::new(4);
        let old = table.insert("a").unwrap();
        let new = table.renew(old).unwrap();
        assert_ne!(old, new);
        assert_eq!((table.get(old), table.get(new)), (None, Some(&"a")));
    }

    #[test]
    fn an_id_does_not_come_back_within_a_thousand_rounds_of_insert_and_remove() {
        let mut table = Small::new(1 << 12);
        let mut last_seen = std::collections::BTreeMap::new();
        let mut shortest = usize::MAX;
        for round in 0..100_000 {
            let id = table.insert("x").unwrap();
            if let Some(before) = last_seen.insert(id, round) {
                shortest = shortest.min(round - before);
            }
            table.remove(id).unwrap();
        }
        assert!(
            shortest >= FREE_MIN * 16,
            "an id came back after {shortest} rounds"
        );
    }
}
