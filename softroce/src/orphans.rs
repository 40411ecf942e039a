//! Objects whose handles were dropped while the engine still needs them.
//!
//! The order in which handles are dropped must not matter, but the engine does not let go of a region beneath a window.
//! So the region waits here, with its memory, until its windows are gone; and so does the protection domain of an XRC
//! target that lives on through a further handle.

use softroce_engine::{Engine, MrId, PdId};

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
    domains: Vec<PdId>,
}

impl Orphans {
    /// Let it wait.
    pub(crate) fn add(&mut self, orphan: Orphan) {
        self.waiting.push(orphan);
    }

    /// Let it wait.
    pub(crate) fn add_domain(&mut self, id: PdId) {
        self.domains.push(id);
    }

    /// Deregister those that nothing is bound to any more. What they held must be dropped outside the gate.
    pub(crate) fn free(&mut self, engine: &mut Engine) -> Vec<Orphan> {
        self.domains.retain(|id| engine.dealloc_pd(*id).is_err());
        let free = self
            .waiting
            .extract_if(.., |orphan| engine.dereg_mr(orphan.id).is_ok());
        free.collect()
    }
}
