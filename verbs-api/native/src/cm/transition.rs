//! The transitions of the queue pair that is bound to an id.
//!
//! librdmacm would make them itself for a queue pair that it has made, or finds in the public member `qp` of the id; from then
//! on it follows that pointer at any event. Here queue pairs are the program's own, and may be destroyed at any time, so that
//! the library is told their numbers only, as it provides for, and the transitions are made on this side, with the attributes
//! that it tells (`rdma_init_qp_attr`) and at the moments at which it would make them.

use std::ffi::c_int;

use verbs_api::{Error, QpAttr, QpAttrMask, QpState, QpType, Result};
use verbs_sys::convert::qp_attr_to_c;
use verbs_sys::ibv_qp_attr;

use super::manager::{RawId, Turn};
use crate::qp::Bound;

/// READs and atomics that the two sides have agreed on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Depths {
    pub(super) responder_resources: u8,
    pub(super) initiator_depth: u8,
}

/// The attributes that the library tells, as far as this library and the type of queue pair know them. Some kernels set bits of
/// their own in the mask; and an id of connections speaks of reliable ones, whatever is connected.
pub(super) fn told(
    turn: &Turn<'_>,
    id: RawId,
    qp_type: QpType,
    state: QpState,
) -> Result<(ibv_qp_attr, c_int)> {
    use QpAttrMask as M;
    let (values, mask) = turn.qp_attr(id, state)?;
    let mut mask = M::from_bits_truncate(mask as u32);
    if qp_type == QpType::Uc {
        let reliable = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        mask -= reliable | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
    }
    Ok((values, mask.bits() as c_int))
}

/// When it is bound: to INIT, and on to RTS with one that needs no connection.
pub(super) fn prepare(turn: &Turn<'_>, id: RawId, qp: &Bound) -> Result<()> {
    go(turn, id, qp, QpState::Init)?;
    if qp.qp_type != QpType::Ud {
        return Ok(());
    }
    let to_rtr = QpAttr {
        state: Some(QpState::Rtr),
        ..QpAttr::default()
    };
    let to_rts = QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(0),
        ..QpAttr::default()
    };
    set(qp, &to_rtr)?;
    set(qp, &to_rts)
}

fn go(turn: &Turn<'_>, id: RawId, qp: &Bound, state: QpState) -> Result<()> {
    let (mut values, mask) = told(turn, id, qp.qp_type, state)?;
    qp.modify(&mut values, mask)
}

fn set(qp: &Bound, attr: &QpAttr) -> Result<()> {
    let (mut values, mask) = qp_attr_to_c(attr);
    qp.modify(&mut values, mask)
}

/// To RTS, as the peer's message has it; `depths` when this side has said something else.
pub(super) fn bring_up(turn: &Turn<'_>, id: RawId, qp: &Bound, depths: Option<Depths>) -> Result<()> {
    // Once more: what the peer may do follows from its message.
    go(turn, id, qp, QpState::Init)?;
    let (mut values, mask) = told(turn, id, qp.qp_type, QpState::Rtr)?;
    if let Some(depths) = depths {
        values.max_dest_rd_atomic = depths.responder_resources;
    }
    qp.modify(&mut values, mask)?;
    let (mut values, mask) = told(turn, id, qp.qp_type, QpState::Rts)?;
    if let Some(depths) = depths {
        values.max_rd_atomic = depths.initiator_depth;
    }
    qp.modify(&mut values, mask)
}

/// To ERR: what was posted comes back. One that its owner has destroyed needs nothing any more.
pub(super) fn fail(qp: &Bound) {
    let to_err = QpAttr {
        state: Some(QpState::Err),
        ..QpAttr::default()
    };
    let _ = set(qp, &to_err);
}

/// Whether ids of librdmacm have queue pairs of this type.
pub(super) fn fits(qp_type: QpType, is_datagram: bool) -> Result<()> {
    match (qp_type, is_datagram) {
        (QpType::Rc | QpType::Uc, false) | (QpType::Ud, true) => Ok(()),
        (QpType::XrcInitiator | QpType::XrcTarget, false) => Err(Error::unsupported(
            "binding a queue pair of XRC to an id of librdmacm",
        )),
        (QpType::Rc | QpType::Uc | QpType::XrcInitiator | QpType::XrcTarget, true)
        | (QpType::Ud, false)
        | (QpType::Gsi | QpType::RawPacket, _) => Err(Error::invalid(format!(
            "a queue pair of type {qp_type:?} is not for a port space of {}",
            if is_datagram { "datagrams" } else { "connections" }
        ))),
    }
}
