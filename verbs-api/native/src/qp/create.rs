//! Creating queue pairs: by the builder's functions, the extended function, or the plain one.

use std::ffi::c_int;
use std::ptr::null_mut;

use verbs_api::{Error, QpCap, QpInit, QpType, Result, SqSigType};
use verbs_sys::convert::{cap_from_c, cap_to_c};
use verbs_sys::*;

use super::{Keep, Qp};
use crate::tables::extended_op;
use crate::{Context, Cq, Interface, Native, Pd, Srq, builder};

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
}

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
