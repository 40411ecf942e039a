//! Posting by the builder of `ibv_qp_ex`: start, make a request, complete.

use std::ffi::c_void;

use verbs_api::{Error, Payload, QpType, Result, SendFlags, SendOp, SendWr};
use verbs_sys::*;

use crate::Native;
use crate::library::check;
use crate::post::{entries, network};
use crate::tables::lacking;
use crate::window::bind_info;

const DATAGRAM_OPS: u64 = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
const UNRELIABLE_OPS: u64 = DATAGRAM_OPS | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
const RELIABLE_OPS: u64 = UNRELIABLE_OPS
    | IBV_QP_EX_WITH_RDMA_READ
    | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP
    | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
const KEY_OPS: u64 = IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV | IBV_QP_EX_WITH_BIND_MW;
const NEWER_OPS: u64 = IBV_QP_EX_WITH_FLUSH | IBV_QP_EX_WITH_ATOMIC_WRITE;

/// Which operations to ask for, most first: a driver refuses those that it does not know.
pub(crate) fn operations(qp_type: QpType) -> &'static [u64] {
    match qp_type {
        QpType::Rc | QpType::XrcInitiator => &[
            RELIABLE_OPS | KEY_OPS | NEWER_OPS,
            RELIABLE_OPS | KEY_OPS,
            RELIABLE_OPS,
        ],
        QpType::Uc => &[UNRELIABLE_OPS | KEY_OPS, UNRELIABLE_OPS],
        QpType::Ud | QpType::Gsi | QpType::RawPacket => &[DATAGRAM_OPS],
        QpType::XrcTarget => &[],
    }
}

/// The function, or `Unsupported` with its name. The queue pair must be alive. Of a driver whose struct is shorter, which
/// has refused the operations beyond it when the queue pair was created, they are not asked for (`Qp::offers`).
macro_rules! function {
    ($ex:expr, $name:ident) => {
        (*$ex)
            .$name
            .ok_or_else(|| lacking(concat!("ibv_", stringify!($name))))
    };
}

/// Post one request. `ex` must be alive.
pub(crate) fn send(ex: *mut ibv_qp_ex, qp_type: QpType, request: &SendWr<'_, Native>) -> Result<()> {
    // SAFETY: the queue pair is alive.
    let (start, complete, abort) = unsafe {
        (
            function!(ex, wr_start)?,
            function!(ex, wr_complete)?,
            function!(ex, wr_abort)?,
        )
    };
    // SAFETY: the queue pair is alive.
    unsafe {
        start(ex);
        (*ex).wr_id = request.wr_id;
        (*ex).wr_flags = flags(request);
    }
    let made = operation(ex, &request.op, &request.payload)
        .and_then(|()| set_target(ex, qp_type, request))
        .and_then(|()| match needs_no_data(&request.op) {
            true => Ok(()),
            false => set_data(ex, &request.payload),
        });
    match made {
        // SAFETY: between start and end.
        Ok(()) => check("posting a send", unsafe { complete(ex) }),
        Err(error) => {
            // SAFETY: as above.
            unsafe { abort(ex) };
            Err(error)
        }
    }
}

/// The flag for inline data is not needed, as there is a call for that; but rxe's library forgets it there.
fn flags(request: &SendWr<'_, Native>) -> std::ffi::c_uint {
    let flags = request.flags.intersection(SendFlags::all()).bits();
    match request.payload {
        Payload::Inline(_) => flags | IBV_SEND_INLINE,
        Payload::Sges(_) => flags,
    }
}

fn needs_no_data(op: &SendOp<'_, Native>) -> bool {
    matches!(
        op,
        SendOp::LocalInvalidate { .. }
            | SendOp::BindMw { .. }
            | SendOp::Flush { .. }
            | SendOp::AtomicWrite { .. }
    )
}

fn operation(ex: *mut ibv_qp_ex, op: &SendOp<'_, Native>, payload: &Payload<'_>) -> Result<()> {
    // SAFETY: the queue pair is alive and its builder started; what is named is alive during the call.
    unsafe {
        match op {
            SendOp::Send { imm: None } | SendOp::SendTo { imm: None, .. } => function!(ex, wr_send)?(ex),
            SendOp::Send { imm } | SendOp::SendTo { imm, .. } => {
                function!(ex, wr_send_imm)?(ex, network(imm))
            }
            SendOp::SendWithInvalidate { rkey } => function!(ex, wr_send_inv)?(ex, rkey.0),
            SendOp::Write { remote, imm: None } => {
                function!(ex, wr_rdma_write)?(ex, remote.rkey.0, remote.addr)
            }
            SendOp::Write { remote, imm } => {
                function!(ex, wr_rdma_write_imm)?(ex, remote.rkey.0, remote.addr, network(imm))
            }
            SendOp::Read { remote } => function!(ex, wr_rdma_read)?(ex, remote.rkey.0, remote.addr),
            SendOp::CompareSwap {
                remote,
                compare,
                swap,
            } => function!(ex, wr_atomic_cmp_swp)?(ex, remote.rkey.0, remote.addr, *compare, *swap),
            SendOp::FetchAdd { remote, add } => {
                function!(ex, wr_atomic_fetch_add)?(ex, remote.rkey.0, remote.addr, *add)
            }
            SendOp::LocalInvalidate { rkey } => function!(ex, wr_local_inv)?(ex, rkey.0),
            SendOp::BindMw { mw, rkey, bind } => {
                function!(ex, wr_bind_mw)?(ex, mw.as_ptr(), rkey.0, &bind_info(bind))
            }
            SendOp::Flush {
                remote,
                length,
                placement,
                whole_mr,
            } => {
                let placement = u8::try_from(*placement)
                    .map_err(|_| Error::invalid(format!("{placement:#x} is no placement of a FLUSH")))?;
                function!(ex, wr_flush)?(
                    ex,
                    remote.rkey.0,
                    remote.addr,
                    *length as usize,
                    placement,
                    u8::from(*whole_mr),
                )
            }
            SendOp::AtomicWrite { remote } => match payload {
                Payload::Inline(word) if word.len() == 8 => {
                    function!(ex, wr_atomic_write)?(ex, remote.rkey.0, remote.addr, word.as_ptr().cast())
                }
                Payload::Inline(_) | Payload::Sges(_) => {
                    return Err(Error::invalid("the builder's ATOMIC WRITE takes 8 bytes inline"));
                }
            },
        }
    }
    Ok(())
}

fn set_target(ex: *mut ibv_qp_ex, qp_type: QpType, request: &SendWr<'_, Native>) -> Result<()> {
    if let SendOp::SendTo {
        ah,
        remote_qpn,
        remote_qkey,
        ..
    } = &request.op
    {
        // SAFETY: queue pair and handle are alive, the builder has a request.
        unsafe { function!(ex, wr_set_ud_addr)?(ex, ah.as_ptr(), *remote_qpn, *remote_qkey) };
    }
    if qp_type == QpType::XrcInitiator {
        // SAFETY: the queue pair is alive, the builder has a request.
        unsafe { function!(ex, wr_set_xrc_srqn)?(ex, request.xrc_srqn.unwrap_or_default()) };
    }
    Ok(())
}

fn set_data(ex: *mut ibv_qp_ex, payload: &Payload<'_>) -> Result<()> {
    // SAFETY: the queue pair is alive, the builder has a request; bytes and lists are copied, and not changed.
    unsafe {
        match payload {
            Payload::Inline(bytes) => {
                let start = bytes.as_ptr().cast::<c_void>().cast_mut();
                function!(ex, wr_set_inline_data)?(ex, start, bytes.len());
            }
            Payload::Sges([one]) => function!(ex, wr_set_sge)?(ex, one.lkey.0, one.addr, one.length),
            Payload::Sges(sges) => {
                let (list, count) = entries(sges)?;
                function!(ex, wr_set_sge_list)?(ex, count as usize, list.cast_const());
            }
        }
    }
    Ok(())
}
