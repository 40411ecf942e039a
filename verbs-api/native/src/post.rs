//! Posting by lists: work requests as C takes them.

use std::ffi::{c_int, c_uint};
use std::ptr::null_mut;

use verbs_api::{Error, Payload, PostError, QpType, RecvWr, Result, SendOp, SendWr, Sge};
use verbs_sys::convert::opcode_to_c;
use verbs_sys::*;

use crate::window::bind_info;
use crate::{Interface, Native, Qp, builder};

/// Post one after another, up to the first that is refused.
pub(crate) fn post_each<T>(requests: &[T], mut post: impl FnMut(&T) -> Result<()>) -> Result<(), PostError> {
    for (posted, request) in requests.iter().enumerate() {
        post(request).map_err(|error| PostError { posted, error })?;
    }
    Ok(())
}

const _: () = assert!(size_of::<ibv_sge>() == size_of::<Sge>());

/// A list of entries for C, which does not change them.
pub(crate) fn entries(sges: &[Sge]) -> Result<(*mut ibv_sge, c_int)> {
    let count = c_int::try_from(sges.len())
        .map_err(|_| Error::invalid(format!("{} entries are too many", sges.len())))?;
    Ok((sges.as_ptr().cast::<ibv_sge>().cast_mut(), count))
}

/// A receive request for C.
pub(crate) fn recv_request(request: &RecvWr<'_>) -> Result<ibv_recv_wr> {
    let (sg_list, num_sge) = entries(request.sges)?;
    Ok(ibv_recv_wr {
        wr_id: request.wr_id,
        next: null_mut(),
        sg_list,
        num_sge,
    })
}

/// The members of a send request's unions.
struct Unions {
    imm_data: u32,
    wr: ibv_send_wr_op,
    bind_mw: ibv_send_wr_bind_mw,
}

impl Default for Unions {
    fn default() -> Self {
        Unions {
            imm_data: 0,
            wr: atomic(0, 0, 0, 0),
            bind_mw: ibv_send_wr_bind_mw {
                mw: null_mut(),
                rkey: 0,
                bind_info: ibv_mw_bind_info {
                    mr: null_mut(),
                    addr: 0,
                    length: 0,
                    mw_access_flags: 0,
                },
            },
        }
    }
}

fn atomic(remote_addr: u64, rkey: u32, compare_add: u64, swap: u64) -> ibv_send_wr_op {
    ibv_send_wr_op {
        atomic: ibv_send_wr_atomic {
            remote_addr,
            compare_add,
            swap,
            rkey,
        },
    }
}

/// C has an immediate in network order.
pub(crate) fn network(imm: &Option<u32>) -> u32 {
    imm.unwrap_or_default().to_be()
}

fn unions(op: &SendOp<'_, Native>) -> Result<Unions> {
    let rdma = |remote: &verbs_api::RemoteAddr| ibv_send_wr_op {
        rdma: ibv_send_wr_rdma {
            remote_addr: remote.addr,
            rkey: remote.rkey.0,
        },
    };
    let mut out = Unions::default();
    match op {
        SendOp::Send { imm } => out.imm_data = network(imm),
        SendOp::SendWithInvalidate { rkey } | SendOp::LocalInvalidate { rkey } => out.imm_data = rkey.0,
        SendOp::SendTo {
            ah,
            remote_qpn,
            remote_qkey,
            imm,
        } => {
            out.imm_data = network(imm);
            out.wr = ibv_send_wr_op {
                ud: ibv_send_wr_ud {
                    ah: ah.as_ptr(),
                    remote_qpn: *remote_qpn,
                    remote_qkey: *remote_qkey,
                },
            };
        }
        SendOp::Write { remote, imm } => {
            out.imm_data = network(imm);
            out.wr = rdma(remote);
        }
        SendOp::Read { remote } | SendOp::AtomicWrite { remote } => out.wr = rdma(remote),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => out.wr = atomic(remote.addr, remote.rkey.0, *compare, *swap),
        SendOp::FetchAdd { remote, add } => out.wr = atomic(remote.addr, remote.rkey.0, *add, 0),
        SendOp::BindMw { mw, rkey, bind } => {
            out.bind_mw = ibv_send_wr_bind_mw {
                mw: mw.as_ptr(),
                rkey: rkey.0,
                bind_info: bind_info(bind),
            }
        }
        SendOp::Flush { .. } => return Err(Error::unsupported("FLUSH by ibv_post_send")),
    }
    Ok(out)
}

/// Post one request with `ibv_post_send`.
pub(crate) fn send(qp: &Qp, request: &SendWr<'_, Native>) -> Result<()> {
    let mut inline = ibv_sge {
        addr: 0,
        length: 0,
        lkey: 0,
    };
    let (sg_list, num_sge, inline_flag): (_, _, c_uint) = match &request.payload {
        Payload::Sges(sges) => {
            let (list, count) = entries(sges)?;
            (list, count, 0)
        }
        Payload::Inline(bytes) => {
            let length = u32::try_from(bytes.len())
                .map_err(|_| Error::invalid(format!("{} inline bytes are too many", bytes.len())))?;
            inline.addr = bytes.as_ptr() as u64;
            inline.length = length;
            (&raw mut inline, 1, IBV_SEND_INLINE)
        }
    };
    let Unions {
        imm_data,
        wr,
        bind_mw,
    } = unions(&request.op)?;
    let mut c_request = ibv_send_wr {
        wr_id: request.wr_id,
        next: null_mut(),
        sg_list,
        num_sge,
        opcode: opcode_to_c(&request.op),
        send_flags: request.flags.bits() | inline_flag,
        imm_data,
        wr,
        qp_type: ibv_send_wr_qp_type {
            remote_srqn: request.xrc_srqn.unwrap_or_default(),
        },
        bind_mw,
    };
    let post = crate::tables::op!(qp.context().as_ptr(), post_send)?;
    let mut bad = null_mut();
    // SAFETY: the queue pair is alive, the request, its entries and what it names until the call returns.
    crate::library::check("posting a send", unsafe {
        post(qp.as_ptr(), &mut c_request, &mut bad)
    })
}

/// Refuse a SEND without address on a datagram queue pair, whose driver would follow a pointer that is not there, and an
/// address on others, where C has none.
fn fits(kind: QpType, op: &SendOp<'_, Native>) -> Result<()> {
    let takes_address = matches!(kind, QpType::Ud | QpType::Gsi);
    match (takes_address, op) {
        (true, SendOp::SendTo { .. }) => Ok(()),
        (true, _) => Err(Error::invalid(format!(
            "a queue pair of type {kind:?} takes nothing but a SEND to an address"
        ))),
        (false, SendOp::SendTo { .. }) => Err(Error::invalid(format!(
            "a SEND to an address is not for a queue pair of type {kind:?}"
        ))),
        (false, _) => Ok(()),
    }
}

/// Post one request, by the builder when that is asked for, or when lists do not have it.
pub(crate) fn send_either_way(qp: &Qp, request: &SendWr<'_, Native>) -> Result<()> {
    fits(qp.kind(), &request.op)?;
    let by_builder = match (&request.op, &request.payload) {
        (SendOp::Flush { .. }, _) => qp.offers(IBV_QP_EX_WITH_FLUSH),
        // The builder takes the word itself, lists take an entry that names it.
        (SendOp::AtomicWrite { .. }, Payload::Inline(word)) if word.len() == 8 => {
            qp.offers(IBV_QP_EX_WITH_ATOMIC_WRITE)
        }
        (SendOp::AtomicWrite { .. }, _) => false,
        _ => qp.context().interface == Interface::Extended,
    };
    match (by_builder, qp.builder()) {
        (true, Some(ex)) => builder::send(ex, qp.kind(), request)?,
        _ => send(qp, request)?,
    }
    if let SendOp::BindMw { mw, rkey, .. } = &request.op {
        mw.choose(*rkey);
    }
    Ok(())
}
