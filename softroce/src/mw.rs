//! Memory windows.

use std::fmt;

use softroce_engine::MwId;
use verbs_api::{MwType, Object, RKey, Refused, Result};

use crate::faults::{self, Verb};
use crate::pd::Pd;
use crate::provider::Softroce;

/// A memory window. It keeps its domain alive.
pub struct Mw {
    pub(crate) pd: Pd,
    pub(crate) id: MwId,
    mw_type: MwType,
    /// The key at first, for when the engine cannot be asked any more.
    first_rkey: RKey,
    destroyed: bool,
}

impl Mw {
    pub(crate) fn alloc(pd: &Pd, mw_type: MwType) -> Result<Mw> {
        pd.inner.context.device.faults.verb(Verb::AllocMw)?;
        let domain = pd.inner.id;
        let (id, first_rkey) = pd
            .inner
            .context
            .device
            .verb(|card, _| card.engine.alloc_mw(domain, mw_type))?;
        Ok(Mw {
            pd: pd.clone(),
            id,
            mw_type,
            first_rkey,
            destroyed: false,
        })
    }

    fn remove(&mut self) -> Result<()> {
        let id = self.id;
        let freed = self.pd.inner.context.device.verb(|card, _| {
            card.engine.dealloc_mw(id)?;
            Ok(card.free_orphans())
        })?;
        self.destroyed = true;
        // Outside the gate: domains go with them.
        drop(freed);
        Ok(())
    }
}

impl Drop for Mw {
    fn drop(&mut self) {
        if !self.destroyed {
            // In a forked child there is nothing to free.
            let _ = self.remove();
        }
    }
}

impl fmt::Debug for Mw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mw")
            .field("id", &self.id)
            .field("mw_type", &self.mw_type)
            .finish()
    }
}

impl Object for Mw {
    /// Its key is dead afterwards, bound or not.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.pd.inner.context.device.is_owned() {
            return Ok(());
        }
        let mut this = faults::admit(self, Verb::DeallocMw, |mw| &mw.pd.inner.context.device.faults)?;
        match this.remove() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: this, error }),
        }
    }
}

impl verbs_api::MemoryWindow for Mw {
    type P = Softroce;

    fn rkey(&self) -> RKey {
        let device = &self.pd.inner.context.device;
        let current = device.look(|card| card.engine.mw_rkey(self.id));
        current.and_then(|rkey| rkey).unwrap_or(self.first_rkey)
    }

    fn mw_type(&self) -> MwType {
        self.mw_type
    }
}
