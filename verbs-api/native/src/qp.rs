//! Queue pairs.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Arc;

use verbs_api::{
    Access, BindInfo, DataOp, Error, Gid, Object, PostError, QpAttr, QpAttrMask, QpCap, QpInit, QpState,
    QpType, RKey, RecvWr, Refused, Result, SendFlags, SendWr, SqSigType,
};
use verbs_sys::convert::{cap_from_c, cap_to_c, qp_attr_from_c, qp_attr_to_c};
use verbs_sys::*;

use crate::context::Inner;
use crate::library::{Library, check};
use crate::post::{post_each, recv_request, send_either_way};
use crate::raw::Raw;
use crate::tables::{extended_op, op};
use crate::window::bind_info;
use crate::{Context, Cq, Interface, Mw, Native, Pd, Srq, Transport, builder};

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

/// Refuse what lacks a completion queue or domain that its type needs: libibverbs follows the pointers.
fn complete(init: &QpInit<'_, Native>) -> Result<()> {
    let (sends, receives, target) = match init.qp_type {
        QpType::XrcInitiator => (true, false, false),
        QpType::XrcTarget => (false, false, true),
        QpType::Gsi | QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket => (true, true, false),
    };
    let missing = [
        (sends && init.send_cq.is_none(), "a completion queue for sends"),
        (
            receives && init.recv_cq.is_none(),
            "a completion queue for receives",
        ),
        (target && init.xrc_domain.is_none(), "an XRC domain"),
    ];
    match missing.iter().find(|(is_missing, _)| *is_missing) {
        Some((_, what)) => Err(Error::invalid(format!(
            "a queue pair of type {:?} needs {what}",
            init.qp_type
        ))),
        None => Ok(()),
    }
}

/// The attributes of creation, for C.
fn init_attr(pd: &Pd, init: &QpInit<'_, Native>, operations: Option<u64>) -> ibv_qp_init_attr_ex {
    // SAFETY: zeroes are valid in every member: numbers and NULL pointers.
    let mut attr: ibv_qp_init_attr_ex = unsafe { std::mem::zeroed() };
    attr.send_cq = init.send_cq.map_or(null_mut(), Cq::as_ptr);
    attr.recv_cq = init.recv_cq.map_or(null_mut(), Cq::as_ptr);
    attr.srq = init.srq.map_or(null_mut(), Srq::as_ptr);
    attr.cap = cap_to_c(&init.cap);
    attr.qp_type = init.qp_type as c_int;
    attr.sq_sig_all = c_int::from(init.sq_sig == SqSigType::All);
    match init.xrc_domain {
        Some(domain) => {
            attr.xrcd = domain.0.as_ptr();
            attr.comp_mask |= IBV_QP_INIT_ATTR_XRCD;
        }
        None => {
            attr.pd = pd.as_ptr();
            attr.comp_mask |= IBV_QP_INIT_ATTR_PD;
        }
    }
    if let Some(operations) = operations {
        attr.send_ops_flags = operations;
        attr.comp_mask |= IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    }
    attr
}

/// A new queue pair and its granted sizes.
type Created = (*mut ibv_qp, ibv_qp_cap);

/// Create with the extended function.
fn create_extended(pd: &Pd, init: &QpInit<'_, Native>, operations: Option<u64>) -> Result<Created> {
    let create = extended_op!(pd.context().as_ptr(), create_qp_ex)?;
    let mut attr = init_attr(pd, init, operations);
    // SAFETY: context and all that the attributes name are alive.
    let qp = unsafe { create(pd.context().as_ptr(), &mut attr) };
    match qp.is_null() {
        true => Err(crate::library::last_error("creating a queue pair")),
        false => Ok((qp, attr.cap)),
    }
}

/// Create with the builder's functions, as many as the driver offers.
fn create_with_builder(pd: &Pd, init: &QpInit<'_, Native>) -> Result<(Created, u64)> {
    let mut refusal = Error::unsupported("the builder of work requests (ibv_wr_*)");
    for operations in builder::operations(init.qp_type) {
        match create_extended(pd, init, Some(*operations)) {
            Ok(created) => return Ok((created, *operations)),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

fn create_plain(pd: &Pd, init: &QpInit<'_, Native>) -> Result<Created> {
    let create = pd.context().library.ibv_create_qp()?;
    let attr = init_attr(pd, init, None);
    let mut attr = ibv_qp_init_attr {
        qp_context: attr.qp_context,
        send_cq: attr.send_cq,
        recv_cq: attr.recv_cq,
        srq: attr.srq,
        cap: attr.cap,
        qp_type: attr.qp_type,
        sq_sig_all: attr.sq_sig_all,
    };
    // SAFETY: the domain and all that the attributes name are alive.
    let qp = unsafe { create(pd.as_ptr(), &mut attr) };
    match qp.is_null() {
        true => Err(crate::library::last_error("creating a queue pair")),
        false => Ok((qp, attr.cap)),
    }
}

impl Qp {
    pub(crate) fn create(pd: &Pd, init: &QpInit<'_, Native>) -> Result<Qp> {
        let context = pd.context();
        complete(init)?;
        let is_xrc = matches!(init.qp_type, QpType::XrcInitiator | QpType::XrcTarget);
        let wants_builder = match context.interface {
            Interface::Extended => init.qp_type != QpType::XrcTarget,
            // FLUSH is nowhere else.
            Interface::Lists => matches!(init.qp_type, QpType::Rc | QpType::XrcInitiator),
        };
        let by_builder = match wants_builder {
            true => create_with_builder(pd, init),
            false => Err(Error::unsupported("the builder")),
        };
        let ((qp, cap), operations) = match by_builder {
            Ok(created) => created,
            // Where the lists serve as well, a driver without builder is as good.
            Err(error) if context.interface == Interface::Extended && wants_builder => return Err(error),
            Err(_) if is_xrc => (create_extended(pd, init, None)?, 0),
            Err(_) => (create_plain(pd, init)?, 0),
        };
        let keep = Keep {
            context: context.clone(),
            _pd: Some(pd.clone()),
            _cqs: [init.send_cq.cloned(), init.recv_cq.cloned()],
            _srq: init.srq.cloned(),
            _xrc: init.xrc_domain.map(|domain| domain.0.clone()),
        };
        Qp::own(qp, init.qp_type, cap_from_c(&cap), operations, keep)
    }

    pub(crate) fn open_target(context: &Context, domain: &crate::XrcDomain, qpn: u32) -> Result<Qp> {
        let open = extended_op!(context.as_ptr(), open_qp)?;
        let mut attr = ibv_qp_open_attr {
            comp_mask: IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE,
            qp_num: qpn,
            xrcd: domain.0.as_ptr(),
            qp_context: null_mut(),
            qp_type: QpType::XrcTarget as c_int,
        };
        // SAFETY: context and domain are alive, and kept so.
        let qp = unsafe { open(context.as_ptr(), &mut attr) };
        let keep = Keep {
            context: context.0.clone(),
            _pd: None,
            _cqs: [None, None],
            _srq: None,
            _xrc: Some(domain.0.clone()),
        };
        Qp::own(qp, QpType::XrcTarget, QpCap::default(), 0, keep)
    }

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
        match self.raw.destroy() {
            Ok(()) => Ok(()),
            Err(error) => Err(Refused { object: self, error }),
        }
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
