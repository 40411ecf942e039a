//! XRC domains.

use std::os::fd::RawFd;
use std::sync::Arc;

use verbs_api::{Object, Refused, Result};
use verbs_sys::{IBV_XRCD_INIT_ATTR_FD, IBV_XRCD_INIT_ATTR_OFLAGS, ibv_xrcd, ibv_xrcd_init_attr};

use crate::Context;
use crate::context::Inner;
use crate::raw::{Raw, destroy_shared};
use crate::tables::extended_op;

/// An XRC domain.
#[derive(Debug)]
pub struct XrcDomain(pub(crate) Arc<Raw<ibv_xrcd, Arc<Inner>>>);

impl XrcDomain {
    pub(crate) fn open(context: &Context, fd: Option<RawFd>) -> Result<XrcDomain> {
        let inner = &context.0;
        let open = extended_op!(inner.as_ptr(), open_xrcd)?;
        let close = extended_op!(inner.as_ptr(), close_xrcd)?;
        let mut init = ibv_xrcd_init_attr {
            comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
            fd: fd.unwrap_or(-1),
            oflags: libc::O_CREAT,
        };
        // SAFETY: the context is alive, and kept so; the domain is ours from here on.
        let raw = unsafe {
            let domain = open(inner.as_ptr(), &mut init);
            Raw::new("XRC domain", &inner.objects, domain, close, inner.clone())?
        };
        Ok(XrcDomain(Arc::new(raw)))
    }
}

impl Object for XrcDomain {
    fn destroy(self) -> Result<(), Refused<Self>> {
        destroy_shared(self.0, "XRC domain", Raw::destroy).map_err(|refused| Refused {
            object: XrcDomain(refused.object),
            error: refused.error,
        })
    }
}
