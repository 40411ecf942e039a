//! Regions whose handles were dropped while a memory window was still bound to them.
//!
//! The order in which handles are dropped must not matter, but the engine does not let go of a region beneath a window.
//! So the region waits here, with its memory, until its windows are gone.

use softroce_engine::{Engine, MrId};

use crate::mr::Backing;
use crate::pd::Pd;

/// A region without a handle.
pub(crate) struct Orphan {
    pub(crate) id: MrId,
    pub(crate) _backing: Backing,
    pub(crate) _pd: Pd,
}

/// All of a device.
#[derive(Default)]
pub(crate) struct Orphans {
    waiting: Vec<Orphan>,
}

impl Orphans {
    /// Let it wait.
    pub(crate) fn add(&mut self, orphan: Orphan) {
        self.waiting.push(orphan);
    }

    /// Deregister those that nothing is bound to any more. What they held must be dropped outside the gate.
    pub(crate) fn free(&mut self, engine: &mut Engine) -> Vec<Orphan> {
        let free = self
            .waiting
            .extract_if(.., |orphan| engine.dereg_mr(orphan.id).is_ok());
        free.collect()
    }
}
