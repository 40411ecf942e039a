//! Protection domains.

use std::ops::Range;
use std::ptr::null_mut;
use std::sync::Arc;

use verbs_api::{
    Access, AddressVector, Advice, Buffer, Error, MwType, Object, QpInit, Refused, Result, Sge, SrqInit, Wc,
};
use verbs_sys::{ibv_parent_domain_init_attr, ibv_pd};

use crate::context::Inner;
use crate::library::check;
use crate::raw::{Raw, destroy_shared};
use crate::tables::extended_op;
use crate::{Ah, Context, Dm, Mr, Mw, Native, Qp, Srq};

#[derive(Debug)]
pub(crate) struct PdInner {
    raw: Raw<ibv_pd, Arc<Inner>>,
    /// The domain beneath a parent domain.
    _below: Option<Pd>,
}

/// A protection domain.
#[derive(Clone, Debug)]
pub struct Pd(pub(crate) Arc<PdInner>);

impl Pd {
    pub(crate) fn alloc(context: &Context) -> Result<Pd> {
        let inner = &context.0;
        let alloc = inner.library.ibv_alloc_pd()?;
        // SAFETY: the context is alive.
        let pd = unsafe { alloc(inner.as_ptr()) };
        Pd::own(inner, pd, None)
    }

    fn own(context: &Arc<Inner>, pd: *mut ibv_pd, below: Option<Pd>) -> Result<Pd> {
        let destroy = context.library.ibv_dealloc_pd()?;
        // SAFETY: the context is kept alive; the domain is ours from here on.
        let raw = unsafe {
            Raw::new(
                "protection domain",
                &context.objects,
                pd,
                destroy,
                context.clone(),
            )?
        };
        Ok(Pd(Arc::new(PdInner { raw, _below: below })))
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_pd {
        self.0.raw.as_ptr()
    }

    pub(crate) fn context(&self) -> &Arc<Inner> {
        &self.0.raw.keep
    }
}

impl Object for Pd {
    fn destroy(self) -> Result<(), Refused<Self>> {
        destroy_shared(self.0, "protection domain", |inner| inner.raw.destroy()).map_err(|refused| Refused {
            object: Pd(refused.object),
            error: refused.error,
        })
    }
}

impl verbs_api::ProtectionDomain for Pd {
    type P = Native;

    fn reg_mr_iova(&self, buffer: &Buffer, range: Range<usize>, iova: u64, access: Access) -> Result<Mr> {
        Mr::register_buffer(self, buffer, range, iova, access)
    }

    unsafe fn reg_mr_raw(&self, addr: *mut u8, length: usize, iova: u64, access: Access) -> Result<Mr> {
        // SAFETY: the caller's promise.
        unsafe { Mr::register(self, addr, length, iova, access) }
    }

    fn alloc_null_mr(&self) -> Result<Mr> {
        Mr::null(self)
    }

    fn reg_dm_mr(&self, dm: &Dm, offset: u64, length: usize, access: Access) -> Result<Mr> {
        Mr::of_device_memory(self, dm, offset, length, access)
    }

    fn alloc_mw(&self, mw_type: MwType) -> Result<Mw> {
        Mw::alloc(self, mw_type)
    }

    fn create_qp(&self, init: &QpInit<'_, Native>) -> Result<Qp> {
        Qp::create(self, init)
    }

    fn create_srq(&self, init: &SrqInit<'_, Native>) -> Result<Srq> {
        Srq::create(self, init)
    }

    fn create_ah(&self, av: &AddressVector) -> Result<Ah> {
        Ah::create(self, av)
    }

    fn create_ah_from_wc(&self, wc: &Wc, grh: &[u8; 40], port: u8) -> Result<Ah> {
        Ah::from_wc(self, wc, grh, port)
    }

    fn advise_mr(&self, advice: Advice, sges: &[Sge]) -> Result<()> {
        let advise = extended_op!(self.context().as_ptr(), advise_mr)?;
        let count = u32::try_from(sges.len())
            .map_err(|_| Error::invalid(format!("{} ranges are too many", sges.len())))?;
        // SAFETY: the domain is alive, the entries during the call, which does not change them.
        check("advising on memory", unsafe {
            advise(
                self.as_ptr(),
                advice as i32,
                0,
                sges.as_ptr().cast_mut().cast(),
                count,
            )
        })
    }

    fn parent_domain(&self) -> Result<Self> {
        let alloc = extended_op!(self.context().as_ptr(), alloc_parent_domain)?;
        let mut attr = ibv_parent_domain_init_attr {
            pd: self.as_ptr(),
            td: null_mut(),
            comp_mask: 0,
            alloc: None,
            free: None,
            pd_context: null_mut(),
        };
        // SAFETY: the domain is alive, and kept so.
        let parent = unsafe { alloc(self.context().as_ptr(), &mut attr) };
        Pd::own(self.context(), parent, Some(self.clone()))
    }
}
