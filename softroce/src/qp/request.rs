//! Work requests on their way to the engine.

use std::sync::Arc;

use softroce_engine::{SendOperation, SendRequest};
use verbs_api::{Error, Payload, Result, SendOp, SendWr};

use crate::device::Shared;
use crate::pd::Pd;
use crate::provider::Softroce;

/// Bytes that a request moves.
pub(super) fn length(payload: &Payload<'_>) -> u64 {
    match payload {
        Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        Payload::Inline(bytes) => bytes.len() as u64,
    }
}

/// A request in the engine's terms, for a queue pair of `device`.
///
/// # Errors
/// EINVAL: an object that the request names belongs to another device.
pub(super) fn in_engine_terms<'a>(
    request: &SendWr<'a, Softroce>,
    device: &Arc<Shared>,
) -> Result<SendRequest<'a>> {
    let op = match request.op {
        SendOp::Send { imm } => SendOperation::Send { imm },
        SendOp::SendWithInvalidate { rkey } => SendOperation::SendWithInvalidate { rkey },
        SendOp::SendTo {
            ah,
            remote_qpn,
            remote_qkey,
            imm,
        } => {
            same_device("the address handle", &ah.pd, device)?;
            SendOperation::SendTo {
                ah: ah.handle,
                remote_qpn,
                remote_qkey,
                imm,
            }
        }
        SendOp::Write { remote, imm } => SendOperation::Write { remote, imm },
        SendOp::Read { remote } => SendOperation::Read { remote },
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => SendOperation::CompareSwap {
            remote,
            compare,
            swap,
        },
        SendOp::FetchAdd { remote, add } => SendOperation::FetchAdd { remote, add },
        SendOp::AtomicWrite { remote } => SendOperation::AtomicWrite { remote },
        SendOp::Flush {
            remote,
            length,
            placement,
            whole_mr,
        } => SendOperation::Flush {
            remote,
            length,
            placement,
            whole_mr,
        },
        SendOp::LocalInvalidate { rkey } => SendOperation::LocalInvalidate { rkey },
        SendOp::BindMw { mw, rkey, bind } => {
            same_device("the memory window", &mw.pd, device)?;
            same_device("the memory region", bind.mr.pd(), device)?;
            SendOperation::BindMw {
                mw: mw.id,
                rkey,
                mr: bind.mr.id(),
                addr: bind.addr,
                length: bind.length,
                access: bind.access,
            }
        }
    };
    Ok(SendRequest {
        wr_id: request.wr_id,
        op,
        payload: request.payload,
        flags: request.flags,
        xrc_srqn: request.xrc_srqn,
    })
}

/// EINVAL unless what stands in `pd` is an object of `device`: to any other its id would name another object.
pub(super) fn same_device(what: &str, pd: &Pd, device: &Arc<Shared>) -> Result<()> {
    if Arc::ptr_eq(&pd.inner.context.device, device) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{what} belongs to another device than the queue pair"
    )))
}
