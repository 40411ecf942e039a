//! How many objects of each kind there are.
#![forbid(unsafe_code)]

use super::Engine;

/// The objects that exist; all zero once everything was destroyed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectCounts {
    /// Protection domains.
    pub pds: usize,
    /// Memory regions.
    pub mrs: usize,
    /// Memory windows.
    pub mws: usize,
    /// Completion queues.
    pub cqs: usize,
    /// Queue pairs.
    pub qps: usize,
    /// Shared receive queues.
    pub srqs: usize,
    /// XRC domains.
    pub xrc_domains: usize,
    /// Address handles.
    pub ahs: usize,
    /// Pieces of device memory.
    pub dms: usize,
    /// Queue pairs in multicast groups, one a pair of both.
    pub memberships: usize,
}

impl ObjectCounts {
    /// Whether there are none.
    pub fn is_zero(&self) -> bool {
        *self == ObjectCounts::default()
    }
}

impl Engine {
    /// How many objects of each kind there are.
    pub fn objects(&self) -> ObjectCounts {
        let (mrs, mws, dms) = self.shared.memory.counts();
        ObjectCounts {
            pds: self.pds.len(),
            mrs,
            mws,
            dms,
            cqs: self.shared.cqs.len(),
            qps: self.qps.len(),
            ahs: self.address_handles.len(),
            memberships: self.groups.attachments(),
            srqs: self.shared.srqs.len(),
            xrc_domains: self.xrc_domains.len(),
        }
    }
}
