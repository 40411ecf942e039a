//! Protection domains.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use softroce_engine::PdId;
use verbs_api::{Access, Buffer, Error, Object, QpInit, Refused, Result};

use crate::context::ContextInner;
use crate::handle;
use crate::mr::Mr;
use crate::provider::Softroce;
use crate::qp::Qp;

/// A protection domain. Clones are the same domain.
#[derive(Clone)]
pub struct Pd {
    pub(crate) inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    pub(crate) context: Arc<ContextInner>,
    pub(crate) id: PdId,
}

impl Pd {
    pub(crate) fn alloc(context: &Arc<ContextInner>) -> Result<Pd> {
        let id = context.device.verb(|card, _| card.engine.alloc_pd())?;
        Ok(Pd {
            inner: Arc::new(PdInner {
                context: context.clone(),
                id,
            }),
        })
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        // Children own their domain, so none is left; in a forked child there is nothing to free.
        let _ = self
            .context
            .device
            .verb(|card, _| card.engine.dealloc_pd(self.id));
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd").field("id", &self.inner.id).finish()
    }
}

impl Object for Pd {
    /// EBUSY while a region, a queue pair, or a clone of this handle uses it.
    fn destroy(self) -> Result<(), Refused<Self>> {
        handle::into_sole_owner(self.inner, "protection domain", "a memory region, a queue pair")
            .map(drop)
            .map_err(|refused| refused.map(|inner| Pd { inner }))
    }
}

impl verbs_api::ProtectionDomain for Pd {
    type P = Softroce;

    fn reg_mr_iova(&self, buffer: &Buffer, range: Range<usize>, iova: u64, access: Access) -> Result<Mr> {
        if range.start > range.end || range.end > buffer.len() {
            return Err(Error::invalid(format!(
                "the range {}..{} is not within the buffer of {} bytes",
                range.start,
                range.end,
                buffer.len()
            )));
        }
        Mr::register_buffer(self, buffer, range, iova, access)
    }

    unsafe fn reg_mr_raw(&self, addr: *mut u8, length: usize, iova: u64, access: Access) -> Result<Mr> {
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { Mr::register_raw(self, addr, length, iova, access) }
    }

    fn alloc_null_mr(&self) -> Result<Mr> {
        Mr::null(self)
    }

    fn create_qp(&self, init: &QpInit<'_, Softroce>) -> Result<Qp> {
        Qp::create(self, init)
    }
}
