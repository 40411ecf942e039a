//! Device memory.

use std::sync::Arc;

use verbs_api::{DeviceMemory, Object, Refused, Result};
use verbs_sys::{ibv_alloc_dm_attr, ibv_dm};

use crate::context::Inner;
use crate::library::check;
use crate::raw::{Raw, destroy_shared};
use crate::tables::{extended_op, lacking};
use crate::{Context, Native};

/// Device memory. Regions of it keep it.
#[derive(Clone, Debug)]
pub struct Dm(Arc<Raw<ibv_dm, Arc<Inner>>>);

impl Dm {
    pub(crate) fn alloc(context: &Context, length: usize, log_align: u32) -> Result<Dm> {
        let inner = &context.0;
        let alloc = extended_op!(inner.as_ptr(), alloc_dm)?;
        let free = extended_op!(inner.as_ptr(), free_dm)?;
        let mut attr = ibv_alloc_dm_attr {
            length,
            log_align_req: log_align,
            comp_mask: 0,
        };
        // SAFETY: the context is alive, and kept so; the memory is ours from here on.
        let raw = unsafe {
            let dm = alloc(inner.as_ptr(), &mut attr);
            Raw::new("device memory", &inner.objects, dm, free, inner.clone())?
        };
        Ok(Dm(Arc::new(raw)))
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_dm {
        self.0.as_ptr()
    }
}

impl Object for Dm {
    fn destroy(self) -> Result<(), Refused<Self>> {
        destroy_shared(self.0, "device memory", Raw::destroy).map_err(|refused| Refused {
            object: Dm(refused.object),
            error: refused.error,
        })
    }
}

impl DeviceMemory for Dm {
    type P = Native;

    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        // SAFETY: the memory is alive.
        let copy = unsafe { (*self.as_ptr()).memcpy_to_dm }.ok_or_else(|| lacking("ibv_memcpy_to_dm"))?;
        // SAFETY: the memory is alive, the bytes valid for reads.
        check("writing device memory", unsafe {
            copy(self.as_ptr(), offset, bytes.as_ptr().cast(), bytes.len())
        })
    }

    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        // SAFETY: the memory is alive.
        let copy = unsafe { (*self.as_ptr()).memcpy_from_dm }.ok_or_else(|| lacking("ibv_memcpy_from_dm"))?;
        // SAFETY: the memory is alive, the bytes valid for writes.
        check("reading device memory", unsafe {
            copy(bytes.as_mut_ptr().cast(), self.as_ptr(), offset, bytes.len())
        })
    }
}
