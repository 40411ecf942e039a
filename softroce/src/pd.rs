//! Protection domains.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use softroce_engine::PdId;
use verbs_api::{
    Access, AddressVector, Advice, Buffer, Error, MwType, Object, QpInit, Refused, Result, Sge, SrqInit, Wc,
};

use crate::ah::Ah;
use crate::context::ContextInner;
use crate::dm::Dm;
use crate::faults::{self, Verb};
use crate::handle;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::probe::{self, Reach};
use crate::provider::Softroce;
use crate::qp::Qp;
use crate::room;
use crate::srq::Srq;

/// A protection domain. Clones are the same domain.
#[derive(Clone)]
pub struct Pd {
    pub(crate) inner: Arc<PdInner>,
}

pub(crate) struct PdInner {
    pub(crate) context: Arc<ContextInner>,
    pub(crate) id: PdId,
    /// A parent domain stands above this one, and is the same to the engine.
    below: Option<Arc<PdInner>>,
}

impl Pd {
    pub(crate) fn alloc(context: &Arc<ContextInner>) -> Result<Pd> {
        context.device.faults.verb(Verb::AllocPd)?;
        let id = context.device.verb(|card, _| card.engine.alloc_pd())?;
        Ok(Pd {
            inner: Arc::new(PdInner {
                context: context.clone(),
                id,
                below: None,
            }),
        })
    }
}

impl Drop for PdInner {
    fn drop(&mut self) {
        if self.below.is_some() {
            return;
        }
        // Children own their domain, but for an XRC target with further handles, which the domain waits for. In a
        // forked child there is nothing to free.
        let _ = self.context.device.verb(|card, _| {
            if card.engine.dealloc_pd(self.id).is_err() {
                card.orphans.add_domain(self.id);
            }
            Ok(())
        });
    }
}

impl fmt::Debug for Pd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pd").field("id", &self.inner.id).finish()
    }
}

impl Object for Pd {
    /// EBUSY while something stands in it, a parent domain above it, or a clone of this handle uses it.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.inner.context.device.is_owned() {
            return Ok(());
        }
        let this = faults::admit(self, Verb::DeallocPd, |pd| &pd.inner.context.device.faults)?;
        handle::into_sole_owner(this.inner, "protection domain", "an object that stands in it")
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
        room::for_small_object()?;
        // SAFETY: the caller's promise is the one that is asked for.
        unsafe { Mr::register_raw(self, addr, length, iova, access) }
    }

    fn alloc_null_mr(&self) -> Result<Mr> {
        room::for_small_object()?;
        Mr::null(self)
    }

    fn reg_dm_mr(&self, dm: &Dm, offset: u64, length: usize, access: Access) -> Result<Mr> {
        room::for_small_object()?;
        Mr::of_device_memory(self, dm, offset, length, access)
    }

    /// Faults the pages in. What is not mapped is an error for [`Advice::Prefetch`] and [`Advice::PrefetchWrite`]; to
    /// the other advice nothing is to be done.
    fn advise_mr(&self, advice: Advice, sges: &[Sge]) -> Result<()> {
        self.inner.context.device.faults.verb(Verb::AdviseMr)?;
        let reach = match advice {
            Advice::Prefetch => Some(Reach::Read),
            Advice::PrefetchWrite => Some(Reach::Write),
            Advice::PrefetchNoFault => None,
        };
        // All are right, or nothing is done. Pages come in outside of the gate: that may take long.
        let device = &self.inner.context.device;
        let advised = |sge| device.look(|card| card.engine.advised(self.inner.id, advice, sge))?;
        let ranges: Vec<Range<usize>> = sges.iter().map(advised).collect::<Result<_>>()?;
        let Some(reach) = reach else { return Ok(()) };
        ranges
            .iter()
            .try_for_each(|range| probe::check(range.start, range.len(), reach))
    }

    fn alloc_mw(&self, mw_type: MwType) -> Result<Mw> {
        room::for_small_object()?;
        Mw::alloc(self, mw_type)
    }

    fn create_srq(&self, init: &SrqInit<'_, Softroce>) -> Result<Srq> {
        Srq::create(self, init)
    }

    fn create_ah(&self, av: &AddressVector) -> Result<Ah> {
        room::for_small_object()?;
        Ah::create(self, av)
    }

    fn create_ah_from_wc(&self, wc: &Wc, grh: &[u8; 40], port: u8) -> Result<Ah> {
        Ah::create(self, &self.inner.context.sender_of(wc, grh, port)?)
    }

    /// Objects made in the parent are those of this domain: the card has no resources for a caller to choose.
    fn parent_domain(&self) -> Result<Pd> {
        self.inner.context.device.faults.verb(Verb::AllocParentDomain)?;
        self.inner.context.device.check_owner()?;
        Ok(Pd {
            inner: Arc::new(PdInner {
                context: self.inner.context.clone(),
                id: self.inner.id,
                below: Some(self.inner.clone()),
            }),
        })
    }

    fn create_qp(&self, init: &QpInit<'_, Softroce>) -> Result<Qp> {
        Qp::create(self, init)
    }
}
