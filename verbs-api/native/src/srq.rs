//! Shared receive queues.

use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;

use verbs_api::{Object, PostError, RecvWr, Refused, Result, SharedReceiveQueue, SrqAttr, SrqInit};
use verbs_sys::*;

use crate::library::check;
use crate::post::{post_each, recv_request};
use crate::raw::{Raw, destroy_shared};
use crate::tables::{extended_op, op};
use crate::{Cq, Native, Pd};

type XrcParents = (Arc<Raw<ibv_xrcd, Arc<crate::context::Inner>>>, Cq);
type RawSrq = Raw<ibv_srq, (Pd, Option<XrcParents>)>;

#[derive(Debug)]
pub(crate) struct SrqInner {
    raw: Arc<RawSrq>,
    srqn: u32,
}

/// A shared receive queue.
#[derive(Clone, Debug)]
pub struct Srq(pub(crate) Arc<SrqInner>);

impl Srq {
    pub(crate) fn create(pd: &Pd, init: &SrqInit<'_, Native>) -> Result<Srq> {
        let context = pd.context();
        let attr = ibv_srq_attr {
            max_wr: init.max_wr,
            max_sge: init.max_sge,
            srq_limit: 0,
        };
        let cookie = init.cookie as *mut c_void;
        let srq = match init.xrc {
            None => {
                let create = context.library.ibv_create_srq()?;
                let mut init = ibv_srq_init_attr {
                    srq_context: cookie,
                    attr,
                };
                // SAFETY: the domain is alive, the attributes valid. The cookie is never followed.
                unsafe { create(pd.as_ptr(), &mut init) }
            }
            Some((domain, cq)) => {
                let create = extended_op!(context.as_ptr(), create_srq_ex)?;
                let mut init = ibv_srq_init_attr_ex {
                    srq_context: cookie,
                    attr,
                    comp_mask: IBV_SRQ_INIT_ATTR_TYPE
                        | IBV_SRQ_INIT_ATTR_PD
                        | IBV_SRQ_INIT_ATTR_XRCD
                        | IBV_SRQ_INIT_ATTR_CQ,
                    srq_type: IBV_SRQT_XRC,
                    pd: pd.as_ptr(),
                    xrcd: domain.0.as_ptr(),
                    cq: cq.as_ptr(),
                    tm_cap: ibv_tm_cap {
                        max_num_tags: 0,
                        max_ops: 0,
                    },
                };
                // SAFETY: as above, and so are XRC domain and completion queue.
                unsafe { create(context.as_ptr(), &mut init) }
            }
        };
        let xrc = init.xrc.map(|(domain, cq)| (domain.0.clone(), cq.clone()));
        let is_xrc = xrc.is_some();
        let destroy = context.library.ibv_destroy_srq()?;
        // SAFETY: what it stands on is kept; the queue is ours from here on.
        let raw = unsafe {
            Raw::new(
                "shared receive queue",
                &context.objects,
                srq,
                destroy,
                (pd.clone(), xrc),
            )?
        };
        let srqn = match is_xrc {
            true => number(&raw)?,
            false => 0,
        };
        let srq = Srq(Arc::new(SrqInner {
            raw: raw.share(),
            srqn,
        }));
        if init.limit != 0 {
            srq.modify(None, Some(init.limit))?;
        }
        Ok(srq)
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_srq {
        self.0.raw.as_ptr()
    }

    fn library(&self) -> &crate::library::Library {
        &self.0.raw.keep.0.context().library
    }
}

fn number(raw: &RawSrq) -> Result<u32> {
    let number_of = extended_op!(raw.keep.0.context().as_ptr(), get_srq_num)?;
    let mut number = 0;
    // SAFETY: the queue is alive, the place valid.
    check("asking for the number of a shared receive queue", unsafe {
        number_of(raw.as_ptr(), &mut number)
    })?;
    Ok(number)
}

impl Object for Srq {
    fn destroy(self) -> Result<(), Refused<Self>> {
        destroy_shared(self.0, "shared receive queue", |inner| inner.raw.destroy()).map_err(|refused| {
            Refused {
                object: Srq(refused.object),
                error: refused.error,
            }
        })
    }
}

impl SharedReceiveQueue for Srq {
    type P = Native;

    fn srqn(&self) -> u32 {
        self.0.srqn
    }

    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        post_each(requests, |request| {
            let post = op!(self.0.raw.keep.0.context().as_ptr(), post_srq_recv)?;
            let (mut request, mut bad) = (recv_request(request)?, null_mut());
            // SAFETY: the queue is alive, the request and its entries until the call returns.
            check("posting a receive", unsafe {
                post(self.as_ptr(), &mut request, &mut bad)
            })
        })
    }

    fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<()> {
        let modify = self.library().ibv_modify_srq()?;
        let mut attr = ibv_srq_attr {
            max_wr: max_wr.unwrap_or_default(),
            max_sge: 0,
            srq_limit: limit.unwrap_or_default(),
        };
        let bit = |is_set: bool, bit: c_int| if is_set { bit } else { 0 };
        let mask = bit(max_wr.is_some(), IBV_SRQ_MAX_WR) | bit(limit.is_some(), IBV_SRQ_LIMIT);
        // SAFETY: the queue is alive, the attributes valid.
        check("modifying a shared receive queue", unsafe {
            modify(self.as_ptr(), &mut attr, mask)
        })
    }

    fn query(&self) -> Result<SrqAttr> {
        let query = self.library().ibv_query_srq()?;
        let mut attr = ibv_srq_attr {
            max_wr: 0,
            max_sge: 0,
            srq_limit: 0,
        };
        // SAFETY: the queue is alive, the place valid.
        check("querying a shared receive queue", unsafe {
            query(self.as_ptr(), &mut attr)
        })?;
        Ok(SrqAttr {
            max_wr: attr.max_wr,
            max_sge: attr.max_sge,
            limit: attr.srq_limit,
        })
    }
}
