//! Address handles.

use std::fmt;

use softroce_engine::AddressHandle;
use verbs_api::{AddressVector, Object, Refused, Result};

use crate::faults::{self, Verb};
use crate::pd::Pd;

/// An address handle. It keeps its domain alive.
pub struct Ah {
    pub(crate) pd: Pd,
    pub(crate) handle: AddressHandle,
    destroyed: bool,
}

impl Ah {
    pub(crate) fn create(pd: &Pd, av: &AddressVector) -> Result<Ah> {
        pd.inner.context.device.faults.verb(Verb::CreateAh)?;
        let id = pd.inner.id;
        let handle = pd
            .inner
            .context
            .device
            .verb(|card, _| card.engine.create_ah(id, av))?;
        Ok(Ah {
            pd: pd.clone(),
            handle,
            destroyed: false,
        })
    }

    fn remove(&mut self) -> Result<()> {
        let handle = self.handle;
        self.pd
            .inner
            .context
            .device
            .verb(|card, _| card.engine.destroy_ah(handle))?;
        self.destroyed = true;
        Ok(())
    }
}

impl Drop for Ah {
    fn drop(&mut self) {
        if !self.destroyed {
            // In a forked child there is nothing to free.
            let _ = self.remove();
        }
    }
}

impl fmt::Debug for Ah {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ah").field("path", &self.handle.path()).finish()
    }
}

impl Object for Ah {
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.pd.inner.context.device.is_owned() {
            return Ok(());
        }
        let mut this = faults::admit(self, Verb::DestroyAh, |ah| &ah.pd.inner.context.device.faults)?;
        match this.remove() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: this, error }),
        }
    }
}
