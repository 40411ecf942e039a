//! Device memory.

use std::fmt;
use std::sync::Arc;

use softroce_engine::DmId;
use verbs_api::{Object, Refused, Result};

use crate::context::ContextInner;
use crate::faults::{self, Verb};
use crate::handle;
use crate::provider::Softroce;

/// Device memory.
pub struct Dm {
    pub(crate) inner: Arc<DmInner>,
}

pub(crate) struct DmInner {
    pub(crate) context: Arc<ContextInner>,
    pub(crate) id: DmId,
    length: usize,
}

impl Dm {
    pub(crate) fn alloc(context: &Arc<ContextInner>, length: usize, log_align: u32) -> Result<Dm> {
        context.device.faults.verb(Verb::AllocDm)?;
        let id = context
            .device
            .verb(|card, _| card.engine.alloc_dm(length, log_align))?;
        Ok(Dm {
            inner: Arc::new(DmInner {
                context: context.clone(),
                id,
                length,
            }),
        })
    }
}

impl Drop for DmInner {
    fn drop(&mut self) {
        let id = self.id;
        // Regions own their memory, so none stands on it; in a forked child there is nothing to free.
        let _ = self.context.device.verb(|card, _| card.engine.free_dm(id));
    }
}

impl fmt::Debug for Dm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dm")
            .field("id", &self.inner.id)
            .field("length", &self.inner.length)
            .finish()
    }
}

impl Object for Dm {
    /// EBUSY while a region stands on it.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.inner.context.device.is_owned() {
            return Ok(());
        }
        let this = faults::admit(self, Verb::FreeDm, |dm| &dm.inner.context.device.faults)?;
        handle::into_sole_owner(this.inner, "device memory", "a memory region")
            .map(drop)
            .map_err(|refused| refused.map(|inner| Dm { inner }))
    }
}

impl verbs_api::DeviceMemory for Dm {
    type P = Softroce;

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let id = self.inner.id;
        let device = &self.inner.context.device;
        device.verb(|card, _| card.engine.write_dm(id, offset, bytes))
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let id = self.inner.id;
        let device = &self.inner.context.device;
        device.look(|card| card.engine.read_dm(id, offset, bytes))?
    }
}
