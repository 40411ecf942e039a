//! Buffers that one side has mapped for the other to write to directly.
//!
//! Each side has a table, in memory that the peer writes to. An entry says which offsets a buffer of the peer's stands
//! for. Since the peer writes it by RDMA ahead of its data on the same queue pair, it is there when later data is.
//!
//! | entry, 4 words of 8 bytes, big endian | |
//! |---|---|
//! | 0 | first offset |
//! | 1 | address |
//! | 2 | bytes |
//! | 3 | key in the upper half; 1: valid, 0: not |
//!
//! The last word is written last and read first.

use verbs_api::{Buffer, RKey, RemoteAddr};

use crate::message::part;

/// Bytes of an entry.
pub const ENTRY_BYTES: usize = 32;

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The first offset.
    pub offset: u64,
    /// Where that lies.
    pub target: RemoteAddr,
    /// How many offsets there are.
    pub bytes: u64,
}

impl Entry {
    /// As it stands in the table.
    pub fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[0..8].copy_from_slice(&self.offset.to_be_bytes());
        bytes[8..16].copy_from_slice(&self.target.addr.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.bytes.to_be_bytes());
        bytes[24..28].copy_from_slice(&self.target.rkey.0.to_be_bytes());
        bytes[28..32].copy_from_slice(&1_u32.to_be_bytes());
        bytes
    }

    /// Where `bytes` bytes from `offset` lie, if this entry holds them all. None of them is beyond the last address: a peer
    /// may write any numbers here.
    fn find(&self, offset: u64, bytes: u64) -> Option<RemoteAddr> {
        let skipped = offset.checked_sub(self.offset)?;
        let is_within = skipped.checked_add(bytes)? <= self.bytes;
        let addr = self.target.addr.checked_add(skipped)?;
        addr.checked_add(bytes.saturating_sub(1))?;
        is_within.then_some(RemoteAddr {
            addr,
            rkey: self.target.rkey,
        })
    }
}

/// Our table, which the peer writes to.
#[derive(Debug)]
pub struct Table {
    memory: Buffer,
}

impl Table {
    /// A table for so many entries.
    pub fn new(entries: u16) -> Table {
        Table {
            memory: Buffer::new(usize::from(entries) * ENTRY_BYTES),
        }
    }

    /// Its memory, for registration.
    pub fn memory(&self) -> &Buffer {
        &self.memory
    }

    /// Where `bytes` bytes from `offset` lie at the peer; `None`: it has mapped nothing there.
    pub fn find(&self, offset: u64, bytes: u64) -> Option<RemoteAddr> {
        (0..self.memory.len() / ENTRY_BYTES).find_map(|position| self.entry(position)?.find(offset, bytes))
    }

    fn entry(&self, position: usize) -> Option<Entry> {
        let at = position * ENTRY_BYTES;
        let last = self.memory.load_u64(at + 24).to_ne_bytes();
        if u32::from_be_bytes(part(&last, 4)) != 1 {
            return None;
        }
        let word = |number: usize| u64::from_be_bytes(self.memory.load_u64(at + 8 * number).to_ne_bytes());
        Some(Entry {
            offset: word(0),
            target: RemoteAddr {
                addr: word(1),
                rkey: RKey(u32::from_be_bytes(part(&last, 0))),
            },
            bytes: word(2),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(offset: u64, addr: u64, bytes: u64) -> Entry {
        Entry {
            offset,
            target: RemoteAddr { addr, rkey: RKey(7) },
            bytes,
        }
    }

    #[test]
    fn offsets_are_found_in_the_entry_that_holds_them_all() {
        let table = Table::new(3);
        table
            .memory()
            .write(ENTRY_BYTES, &entry(100, 0x1000, 50).to_bytes());
        table
            .memory()
            .write(2 * ENTRY_BYTES, &entry(150, 0x9000, 10).to_bytes());
        let at = |addr| Some(RemoteAddr { addr, rkey: RKey(7) });
        assert_eq!(table.find(100, 50), at(0x1000));
        assert_eq!(table.find(149, 1), at(0x1031));
        assert_eq!(table.find(155, 5), at(0x9005));
        assert_eq!(table.find(149, 2), None);
        assert_eq!(table.find(99, 1), None);
        assert_eq!(table.find(160, 1), None);
        table.memory().write(ENTRY_BYTES, &[0; ENTRY_BYTES]);
        assert_eq!(table.find(100, 50), None);
    }

    #[test]
    fn entries_with_absurd_numbers_lead_nowhere() {
        let table = Table::new(2);
        table.memory().write(0, &entry(5, u64::MAX, u64::MAX).to_bytes());
        assert_eq!(table.find(5, 1).map(|found| found.addr), Some(u64::MAX));
        assert_eq!(table.find(6, 1), None);
        // The second byte would lie beyond all addresses, where the sum of both overflows.
        assert_eq!(table.find(5, 2), None);
        assert_eq!(table.find(u64::MAX, u64::MAX), None);
        assert_eq!(Table::new(0).find(0, 0), None);
    }
}
