//! The buffers that this side has mapped for its peer, or for itself.

use std::collections::VecDeque;

use verbs_api::{MemoryRegion, Provider, RemoteAddr, Result};

use crate::errors::{Errno, error};
use crate::link::Link;
use crate::mapping::Entry;

/// Offsets that we choose are multiples of this.
const OFFSET_STEP: u64 = 4096;
/// Offsets are of C's `off_t`.
const OFFSET_MAX: u64 = i64::MAX as u64;

/// Who may write to a mapped buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapFor {
    /// The peer (`PROT_WRITE`).
    Peer,
    /// Nobody: it is a source of direct writes (`PROT_NONE`).
    Source,
}

/// One buffer.
#[derive(Debug)]
struct Mapping<P: Provider> {
    region: P::Mr,
    offset: u64,
    /// Its entry in the peer's table.
    position: Option<u16>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Mappings<P: Provider> {
    mapped: Vec<Mapping<P>>,
    /// Entries of the peer's table that are to be written; at most one an entry.
    untold: VecDeque<(u16, Option<Entry>)>,
}

impl<P: Provider> Default for Mappings<P> {
    fn default() -> Self {
        Mappings {
            mapped: Vec::new(),
            untold: VecDeque::new(),
        }
    }
}

impl<P: Provider> Mappings<P> {
    /// Map a region, at `offset` or where there is room; where.
    pub(crate) fn map(
        &mut self,
        region: P::Mr,
        offset: Option<u64>,
        purpose: MapFor,
        entries: u16,
    ) -> Result<u64> {
        let bytes = region.length();
        let offset = match offset {
            Some(offset) => offset,
            None => self.free_offset(),
        };
        let end = offset.checked_add(bytes).filter(|end| *end <= OFFSET_MAX);
        let Some(end) = end else {
            return Err(error(
                Errno::EINVAL,
                format!("{bytes} bytes from offset {offset} end beyond all offsets"),
            ));
        };
        let is_in_the_way = |mapping: &&Mapping<P>| mapping.offset < end && offset < mapping.end();
        if purpose == MapFor::Peer
            && let Some(other) = self
                .mapped
                .iter()
                .filter(|m| m.position.is_some())
                .find(is_in_the_way)
        {
            return Err(error(
                Errno::EEXIST,
                format!("offsets {}..{} are mapped already", other.offset, other.end()),
            ));
        }
        let position = match purpose {
            MapFor::Source => None,
            MapFor::Peer => Some(self.free_position(entries)?),
        };
        if let Some(position) = position {
            let target = RemoteAddr {
                addr: region.addr(),
                rkey: region.rkey(),
            };
            self.tell_later(
                position,
                Some(Entry {
                    offset,
                    target,
                    bytes,
                }),
            );
        }
        self.mapped.push(Mapping {
            region,
            offset,
            position,
        });
        Ok(offset)
    }

    /// Undo a mapping, named by its memory.
    pub(crate) fn unmap(&mut self, addr: u64, bytes: u64) -> Result<()> {
        let is_meant =
            |mapping: &Mapping<P>| mapping.region.addr() == addr && mapping.region.length() == bytes;
        let Some(found) = self.mapped.iter().position(is_meant) else {
            return Err(error(
                Errno::EINVAL,
                format!("{bytes} bytes at {addr:#x} are not mapped"),
            ));
        };
        if let Some(position) = self.mapped.swap_remove(found).position {
            self.tell_later(position, None);
        }
        Ok(())
    }

    /// Write what the peer does not know yet, as far as that goes now.
    pub(crate) fn tell(&mut self, link: &mut Link<P>) -> Result<()> {
        while let Some((position, entry)) = self.untold.front().copied() {
            if !link.tell_mapping(position, entry)? {
                break;
            }
            self.untold.pop_front();
        }
        Ok(())
    }

    /// Whether the peer knows all: data must not overtake it.
    pub(crate) fn are_told(&self) -> bool {
        self.untold.is_empty()
    }

    fn tell_later(&mut self, position: u16, entry: Option<Entry>) {
        self.untold.retain(|(other, _)| *other != position);
        self.untold.push_back((position, entry));
    }

    fn free_offset(&self) -> u64 {
        let ends = self.mapped.iter().map(Mapping::end);
        ends.max().unwrap_or(0).next_multiple_of(OFFSET_STEP)
    }

    fn free_position(&self, entries: u16) -> Result<u16> {
        let is_free = |position: &u16| {
            self.mapped
                .iter()
                .all(|mapping| mapping.position != Some(*position))
        };
        (0..entries).find(is_free).ok_or_else(|| {
            error(
                Errno::ENOMEM,
                format!("the peer takes {entries} mappings (its RDMA_IOMAPSIZE), and all are in use"),
            )
        })
    }
}

impl<P: Provider> Mapping<P> {
    fn end(&self) -> u64 {
        self.offset + self.region.length()
    }
}
