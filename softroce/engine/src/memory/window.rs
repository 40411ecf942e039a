//! Memory windows: keys of their own for a part of a region (IBA 10.6.7).
//!
//! A window of type 1 belongs to its protection domain: every queue pair there may bind it again and every one's peer
//! may use it. Each bind gives it the next key, which is told when the bind is posted; length 0 unbinds. A window of
//! type 2 is of kind 2B: it is open through the queue pair that bound it, within the same protection domain. Its owner
//! chooses the key's lowest byte, and it must be invalidated, from here or by the peer, before it is bound again. It
//! is unbound, too, when that queue pair is destroyed.
#![forbid(unsafe_code)]

use roce_wire::Qpn;
use verbs_api::{Access, Error, ErrorKind, MwType, RKey, Result};

use super::{ID_BITS, MAX_MW, Memory, PLACE_BITS, WINDOW};
use crate::mutants::{Mutant, is_on};
use crate::pd::ProtectionDomains;
use crate::slots::SlotTable;
use crate::{MwId, PdId};

mod bind;

pub(crate) use bind::{Bind, WindowFault, check_access};

/// The byte of a key that counts binds (type 1) or is its owner's (type 2).
const TAG: u32 = 0xff;

/// A window.
#[derive(Debug)]
pub(super) struct Window {
    /// The key that it has: of its binding, or of its last one.
    key: u32,
    pub(super) pd: PdId,
    kind: Kind,
    binding: Option<Binding>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// `promised` is the key that was told last: of the newest bind that was posted.
    Type1 {
        promised: u32,
    },
    Type2,
}

/// What a window is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct Binding {
    /// Id of the region, which stays while this lasts.
    pub(super) region: u32,
    /// Where in the region's memory it begins.
    pub(super) offset: u64,
    /// The address that peers give to its first byte.
    pub(super) first: u64,
    /// Bytes.
    pub(super) length: u64,
    pub(super) access: Access,
    opening: Opening,
}

/// Through what a window is open.
#[derive(Clone, Copy, Debug)]
enum Opening {
    /// Every queue pair of the protection domain.
    Domain,
    /// One queue pair. `place` is that in the list of such windows.
    QueuePair { qpn: Qpn, place: usize },
}

impl Binding {
    pub(super) fn is_open_to(&self, through: Qpn) -> bool {
        match self.opening {
            Opening::Domain => true,
            Opening::QueuePair { qpn, .. } => qpn == through,
        }
    }
}

/// All windows of an engine.
#[derive(Debug)]
pub(super) struct Windows {
    table: SlotTable<Window, PLACE_BITS, ID_BITS>,
    /// Ids of the windows that are open through one queue pair. It has room for all of type 2.
    through_queue_pairs: Vec<u32>,
    /// Windows of type 2.
    of_type2: usize,
}

impl Windows {
    pub(super) fn new() -> Self {
        Windows {
            table: SlotTable::new(MAX_MW),
            through_queue_pairs: Vec::new(),
            of_type2: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.table.len()
    }

    /// The window of this id, if its key is this one and it is bound.
    pub(super) fn bound(&self, id: u32, rkey: RKey) -> Option<(&Window, &Binding)> {
        let window = self.table.get(id).filter(|window| window.key == rkey.0)?;
        Some((window, window.binding.as_ref()?))
    }
}

impl Memory {
    /// A new window, not bound, and its key. EINVAL: no such protection domain. ENOMEM: the device's limit.
    pub(crate) fn alloc_mw(
        &mut self,
        pds: &mut ProtectionDomains,
        pd: PdId,
        mw_type: MwType,
    ) -> Result<(MwId, RKey)> {
        pds.retain(pd)?;
        let kind = match mw_type {
            MwType::Type1 => Kind::Type1 { promised: 0 },
            MwType::Type2 => Kind::Type2,
        };
        let inserted = self.windows.table.insert(Window {
            key: 0,
            pd,
            kind,
            binding: None,
        });
        let Ok(id) = inserted else {
            pds.release(pd);
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("all {MAX_MW} memory windows of the device are in use; free some first"),
            ));
        };
        let id = match self.permutation.index_of(WINDOW | id) {
            0 => self.windows.table.renew(id).expect("it was just inserted"),
            _ => id,
        };
        let key = self.permutation.index_of(WINDOW | id) << 8;
        let window = self.windows.table.get_mut(id).expect("it was just inserted");
        window.key = key;
        match &mut window.kind {
            Kind::Type1 { promised } => *promised = key,
            Kind::Type2 => self.windows.make_room(),
        }
        Ok((MwId(id), RKey(key)))
    }

    /// Unbind a window and forget it: its keys are dead.
    pub(crate) fn dealloc_mw(&mut self, pds: &mut ProtectionDomains, mw: MwId) -> Result<()> {
        self.window(mw)?;
        self.unbind(mw.0);
        let window = self.windows.table.remove(mw.0).expect("it was there");
        self.windows.of_type2 -= usize::from(window.kind == Kind::Type2);
        pds.release(window.pd);
        Ok(())
    }

    /// The key that the window has: the last bind that was carried out gave it.
    pub(crate) fn mw_rkey(&self, mw: MwId) -> Result<RKey> {
        Ok(RKey(self.window(mw)?.key))
    }

    /// The key that the next bind of a window of type 1 gives. EINVAL: type 2, whose owner chooses.
    pub(crate) fn next_key(&self, mw: MwId) -> Result<RKey> {
        match self.window(mw)?.kind {
            Kind::Type1 { promised } => Ok(RKey(promised & !TAG | promised.wrapping_add(1) & TAG)),
            Kind::Type2 => Err(Error::invalid(
                "a memory window of type 2 is bound by a send request (BIND_MW), not by bind_mw",
            )),
        }
    }

    /// A bind of a window of type 1 was posted, and this key told.
    pub(crate) fn note_promised(&mut self, mw: MwId, rkey: RKey) {
        if let Some(Window {
            kind: Kind::Type1 { promised },
            ..
        }) = self.windows.table.get_mut(mw.0)
        {
            *promised = rkey.0;
        }
    }

    /// A queue pair is destroyed: windows that are open through it alone are open no more.
    pub(crate) fn release_windows_of(&mut self, qpn: Qpn) {
        for place in (0..self.windows.through_queue_pairs.len()).rev() {
            let id = self.windows.through_queue_pairs[place];
            let binding = self.windows.table.get(id).and_then(|window| window.binding);
            if binding.is_some_and(|binding| binding.is_open_to(qpn)) {
                self.unbind(id);
            }
        }
    }

    /// Take a window off its region, if it is on one.
    fn unbind(&mut self, id: u32) {
        let window = self.windows.table.get_mut(id).expect("the window exists");
        let Some(binding) = window.binding.take() else {
            return;
        };
        if let Opening::QueuePair { place, .. } = binding.opening {
            self.windows.forget_place(place);
        }
        let region = self.regions.get_mut(binding.region);
        let region = region.expect("a region with windows on it stays");
        if is_on(Mutant::UnbindKeepsRegionInUse) {
            return;
        }
        region.windows = region.windows.checked_sub(1).expect("this window was on it");
    }

    fn window(&self, mw: MwId) -> Result<&Window> {
        self.windows.table.get(mw.0).ok_or_else(|| {
            Error::invalid(format!(
                "there is no memory window {:#x} (freed already, or of another device)",
                mw.0
            ))
        })
    }
}

impl Windows {
    /// One window more is of type 2: the list of those bound shall not have to grow when one is bound.
    fn make_room(&mut self) {
        self.of_type2 += 1;
        let list = &mut self.through_queue_pairs;
        list.reserve(self.of_type2 - list.len());
    }

    /// Take out of the list what stands at `place`; the last one comes there.
    fn forget_place(&mut self, place: usize) {
        self.through_queue_pairs.swap_remove(place);
        let Some(moved) = self.through_queue_pairs.get(place) else {
            return;
        };
        let window = self.table.get_mut(*moved).expect("a listed window exists");
        if let Some(Binding {
            opening: Opening::QueuePair { place: listed, .. },
            ..
        }) = &mut window.binding
        {
            *listed = place;
        }
    }
}
