//! Queue pairs.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use verbs_api::{
    Access, BindInfo, DataOp, Error, Gid, Object, PostError, QpAttr, QpAttrMask, QpCap, QpState, QpType,
    RKey, RecvWr, Refused, Result, SendFlags, SendWr,
};
use verbs_sys::convert::{qp_attr_from_c, qp_attr_to_c};
use verbs_sys::*;

use crate::context::Inner;
use crate::library::{Library, check};
use crate::post::{post_each, recv_request, send_either_way};
use crate::raw::Raw;
use crate::tables::op;
use crate::window::bind_info;
use crate::{Cq, Mw, Native, Pd, Srq, Transport};

mod bound;
mod create;

pub(crate) use bound::Bound;
use bound::Presence;

/// What a queue pair stands on.
#[derive(Debug)]
pub(crate) struct Keep {
    context: Arc<Inner>,
    _pd: Option<Pd>,
    _cqs: [Option<Cq>; 2],
    _srq: Option<Srq>,
    _xrc: Option<Arc<Raw<ibv_xrcd, Arc<Inner>>>>,
}

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    raw: Arc<Raw<ibv_qp, Keep>>,
    /// For a connection manager that it is bound to.
    presence: Presence,
    cap: QpCap,
    qp_type: QpType,
    /// The operations that the builder has, `IBV_QP_EX_WITH_*`; none when it was created without.
    operations: u64,
    /// Where the builder's functions are. It is the queue pair itself, seen larger.
    builder: Option<Builder>,
}

#[derive(Clone, Copy, Debug)]
struct Builder(*mut ibv_qp_ex);

// SAFETY: libibverbs allows every verb from every thread.
unsafe impl Send for Builder {}
// SAFETY: as above.
unsafe impl Sync for Builder {}

/// What `ibv_query_qp` can be asked for at once.
const ALL_ATTRIBUTES: c_int = (1 << 21) - 1;

impl Qp {
    fn own(qp: *mut ibv_qp, qp_type: QpType, cap: QpCap, operations: u64, keep: Keep) -> Result<Qp> {
        let (library, objects) = (keep.context.library.clone(), keep.context.objects.clone());
        let destroy = library.ibv_destroy_qp()?;
        // SAFETY: what it stands on is kept; the queue pair is ours from here on.
        let raw = unsafe { Raw::new("queue pair", &objects, qp, destroy, keep)? }.share();
        let with_builder = library.ibv_qp_to_qp_ex().ok().filter(|_| operations != 0);
        let builder = with_builder.and_then(|larger| {
            // SAFETY: the queue pair is alive.
            let ex = unsafe { larger(raw.as_ptr()) };
            (!ex.is_null()).then_some(Builder(ex))
        });
        Ok(Qp {
            raw,
            presence: Presence::default(),
            cap,
            qp_type,
            operations,
            builder,
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut ibv_qp {
        self.raw.as_ptr()
    }

    pub(crate) fn context(&self) -> &Inner {
        &self.raw.keep.context
    }

    fn library(&self) -> &Library {
        &self.context().library
    }

    pub(crate) fn kind(&self) -> QpType {
        self.qp_type
    }

    /// Whether the builder has this operation (`IBV_QP_EX_WITH_*`).
    pub(crate) fn offers(&self, operation: u64) -> bool {
        self.builder.is_some() && self.operations & operation != 0
    }

    pub(crate) fn builder(&self) -> Option<*mut ibv_qp_ex> {
        self.builder.map(|builder| builder.0)
    }
}

impl Object for Qp {
    fn destroy(self) -> Result<(), Refused<Self>> {
        self.presence.ends();
        match self.raw.destroy() {
            Ok(()) => Ok(()),
            Err(error) => {
                self.presence.stays();
                Err(Refused { object: self, error })
            }
        }
    }
}

impl Drop for Qp {
    fn drop(&mut self) {
        self.presence.ends();
    }
}

/// The attributes that a queue pair of this type has, in this state, among those that C fills in for all.
fn attributes(qp_type: QpType, state: QpState) -> QpAttrMask {
    use QpAttrMask as M;
    let every = M::STATE | M::CUR_STATE | M::CAP;
    if state == QpState::Reset {
        return every;
    }
    let ready = every | M::PKEY_INDEX | M::PORT;
    let connected = M::ACCESS_FLAGS;
    let path = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN | M::PATH_MIG_STATE;
    let answers = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    let requests = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
    let (from_init, from_rtr) = match qp_type {
        QpType::Ud | QpType::Gsi | QpType::RawPacket => (M::QKEY, M::SQ_PSN),
        QpType::Uc => (connected, path | M::SQ_PSN),
        QpType::Rc => (connected, path | answers | requests | M::SQ_PSN),
        QpType::XrcInitiator => (connected, path | requests | M::SQ_PSN),
        QpType::XrcTarget => (connected, path | answers | M::TIMEOUT | M::SQ_PSN),
    };
    match state {
        QpState::Init => ready | from_init,
        _ => ready | from_init | from_rtr,
    }
}

impl verbs_api::QueuePair for Qp {
    type P = Native;

    fn qpn(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.as_ptr()).qp_num }
    }

    fn qp_type(&self) -> QpType {
        self.qp_type
    }

    fn cap(&self) -> QpCap {
        self.cap
    }

    fn modify(&self, attr: &QpAttr) -> Result<()> {
        if self.context().transport == Transport::Iwarp && attr.state == Some(QpState::Rtr) {
            return Err(Error::unsupported("connecting an iWARP queue pair without CM"));
        }
        let modify = self.library().ibv_modify_qp()?;
        let (mut values, mask) = qp_attr_to_c(attr);
        // SAFETY: the queue pair is alive, the values valid.
        check("modifying a queue pair", unsafe {
            modify(self.as_ptr(), &mut values, mask)
        })
    }

    fn query(&self) -> Result<QpAttr> {
        let query = self.library().ibv_query_qp()?;
        let mut values = MaybeUninit::<ibv_qp_attr>::zeroed();
        let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair is alive, the places valid.
        check("querying a queue pair", unsafe {
            query(
                self.as_ptr(),
                values.as_mut_ptr(),
                ALL_ATTRIBUTES,
                init.as_mut_ptr(),
            )
        })?;
        // SAFETY: zeroed at least, and filled in by the library.
        let mut values = unsafe { values.assume_init() };
        values.qp_access_flags &= Access::all().bits();
        values.cur_qp_state = values.qp_state;
        let state = QpState::from_code(values.qp_state as u32)
            .ok_or_else(|| Error::invalid(format!("{} is no queue pair state", values.qp_state)))?;
        let mut mask = attributes(self.qp_type, state);
        if values.path_mtu == 0 {
            // To ERR from where there was no path yet.
            mask -= QpAttrMask::PATH_MTU | QpAttrMask::AV;
        }
        qp_attr_from_c(&values, mask.bits() as c_int)
    }

    fn post_send(&self, requests: &[SendWr<'_, Native>]) -> Result<(), PostError> {
        post_each(requests, |request| send_either_way(self, request))
    }

    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        post_each(requests, |request| {
            let post = op!(self.context().as_ptr(), post_recv)?;
            let (mut request, mut bad) = (recv_request(request)?, null_mut());
            // SAFETY: the queue pair is alive, the request and its entries until the call returns.
            check("posting a receive", unsafe {
                post(self.as_ptr(), &mut request, &mut bad)
            })
        })
    }

    fn data_in_order(&self, op: DataOp) -> bool {
        let Ok(query) = self.library().ibv_query_qp_data_in_order() else {
            return false;
        };
        let op = match op {
            DataOp::Recv => IBV_WR_SEND,
            DataOp::Write => IBV_WR_RDMA_WRITE,
            DataOp::Read => IBV_WR_RDMA_READ,
        };
        // SAFETY: the queue pair is alive.
        unsafe { query(self.as_ptr(), op, 0) != 0 }
    }

    fn bind_mw(&self, mw: &mut Mw, wr_id: u64, bind: &BindInfo<'_, Native>, signaled: bool) -> Result<RKey> {
        let post = op!(self.context().as_ptr(), bind_mw)?;
        let flags = match signaled {
            true => SendFlags::SIGNALED,
            false => SendFlags::empty(),
        };
        let mut request = ibv_mw_bind {
            wr_id,
            send_flags: flags.bits(),
            bind_info: bind_info(bind),
        };
        // SAFETY: queue pair, window and region are alive, the request during the call.
        check("binding a memory window", unsafe {
            post(self.as_ptr(), mw.as_ptr(), &mut request)
        })?;
        Ok(verbs_api::MemoryWindow::rkey(mw))
    }

    fn attach_mcast(&self, group: Gid, lid: u16) -> Result<()> {
        let attach = self.library().ibv_attach_mcast()?;
        let group = ibv_gid { raw: group.0 };
        // SAFETY: the queue pair and the GID are alive.
        check("joining a multicast group", unsafe {
            attach(self.as_ptr(), &group, lid)
        })
    }

    fn detach_mcast(&self, group: Gid, lid: u16) -> Result<()> {
        let detach = self.library().ibv_detach_mcast()?;
        let group = ibv_gid { raw: group.0 };
        // SAFETY: as above.
        check("leaving a multicast group", unsafe {
            detach(self.as_ptr(), &group, lid)
        })
    }
}
