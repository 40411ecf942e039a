//! Queue pairs.

use std::ffi::{c_int, c_uint};
use std::mem::MaybeUninit;
use std::ptr::null_mut;

use verbs_api::{
    Error, Gid, Object, Payload, PostError, QpAttr, QpAttrMask, QpCap, QpInit, QpType, RecvWr, Refused,
    Result, SendOp, SendWr, Sge, SqSigType,
};
use verbs_sys::convert::{cap_from_c, cap_to_c, opcode_to_c, qp_attr_from_c, qp_attr_to_c};
use verbs_sys::*;

use crate::library::check;
use crate::raw::Raw;
use crate::{Cq, Native, Pd};

/// A queue pair.
#[derive(Debug)]
pub struct Qp {
    raw: Raw<ibv_qp>,
    cap: QpCap,
    qp_type: QpType,
    pd: Pd,
    /// Its queues, kept alive beneath it.
    _cqs: [Cq; 2],
}

/// What `ibv_query_qp` can be asked for at once.
const ALL_ATTRIBUTES: c_int = (1 << 21) - 1;

impl Qp {
    pub(crate) fn create(pd: &Pd, init: &QpInit<'_, Native>) -> Result<Qp> {
        // Of UD only receiving: address handles are not offered.
        if !matches!(init.qp_type, QpType::Rc | QpType::Uc | QpType::Ud) {
            return Err(Error::unsupported("a queue pair that is neither RC, UC nor UD"));
        }
        let (Some(send_cq), Some(recv_cq)) = (init.send_cq, init.recv_cq) else {
            return Err(Error::invalid(
                "an RC, UC or UD queue pair needs a completion queue for sends and one for receives",
            ));
        };
        let mut attr = ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: send_cq.0.raw.as_ptr(),
            recv_cq: recv_cq.0.raw.as_ptr(),
            srq: null_mut(),
            cap: cap_to_c(&init.cap),
            qp_type: init.qp_type as c_int,
            sq_sig_all: c_int::from(init.sq_sig == SqSigType::All),
        };
        let library = &pd.0.context.library;
        // SAFETY: the domain and the queues are alive; the queue pair is ours from here on.
        let raw = unsafe {
            let qp = (library.ibv_create_qp)(pd.0.raw.as_ptr(), &mut attr);
            Raw::new("creating a queue pair", qp, library.ibv_destroy_qp)?
        };
        Ok(Qp {
            raw,
            cap: cap_from_c(&attr.cap),
            qp_type: init.qp_type,
            pd: pd.clone(),
            _cqs: [send_cq.clone(), recv_cq.clone()],
        })
    }

    fn ops(&self) -> ibv_context_ops {
        // SAFETY: the queue pair is alive, and its context before it.
        unsafe { (*(*self.raw.as_ptr()).context).ops }
    }
}

impl Object for Qp {
    fn destroy(self) -> Result<(), Refused<Self>> {
        let Qp {
            raw,
            cap,
            qp_type,
            pd,
            _cqs,
        } = self;
        raw.destroy().map_err(|refused| Refused {
            object: Qp {
                raw: refused.object,
                cap,
                qp_type,
                pd,
                _cqs,
            },
            error: refused.error,
        })
    }
}

/// One entry with the inline bytes, or the entries as they are.
fn entries(payload: &Payload<'_>, inline: &mut ibv_sge) -> (*mut ibv_sge, c_int, c_uint) {
    match payload {
        Payload::Sges(sges) => (sges.as_ptr().cast::<ibv_sge>().cast_mut(), sges.len() as c_int, 0),
        Payload::Inline(bytes) => {
            *inline = ibv_sge {
                addr: bytes.as_ptr() as u64,
                length: bytes.len() as u32,
                lkey: 0,
            };
            (inline, 1, IBV_SEND_INLINE)
        }
    }
}

const _: () = assert!(size_of::<ibv_sge>() == size_of::<Sge>());

/// Which member of the union an operation uses, with its values, and the immediate in network order.
fn operation(op: &SendOp<'_, Native>) -> Result<(ibv_send_wr_op, u32)> {
    let rdma = |remote: &verbs_api::RemoteAddr| ibv_send_wr_op {
        rdma: ibv_send_wr_rdma {
            remote_addr: remote.addr,
            rkey: remote.rkey.0,
        },
    };
    let atomic = |remote: &verbs_api::RemoteAddr, compare_add, swap| ibv_send_wr_op {
        atomic: ibv_send_wr_atomic {
            remote_addr: remote.addr,
            compare_add,
            swap,
            rkey: remote.rkey.0,
        },
    };
    let none = ibv_send_wr_op {
        atomic: ibv_send_wr_atomic {
            remote_addr: 0,
            compare_add: 0,
            swap: 0,
            rkey: 0,
        },
    };
    let network = |imm: &Option<u32>| imm.unwrap_or_default().to_be();
    Ok(match op {
        SendOp::Send { imm } => (none, network(imm)),
        SendOp::SendWithInvalidate { rkey } | SendOp::LocalInvalidate { rkey } => (none, rkey.0),
        SendOp::Write { remote, imm } => (rdma(remote), network(imm)),
        SendOp::Read { remote } => (rdma(remote), 0),
        SendOp::CompareSwap {
            remote,
            compare,
            swap,
        } => (atomic(remote, *compare, *swap), 0),
        SendOp::FetchAdd { remote, add } => (atomic(remote, *add, 0), 0),
        SendOp::AtomicWrite { .. } => return Err(Error::unsupported("ATOMIC WRITE")),
        SendOp::Flush { .. } => return Err(Error::unsupported("FLUSH")),
        SendOp::SendTo { ah, .. } => match **ah {},
        SendOp::BindMw { mw, .. } => match **mw {},
    })
}

impl Qp {
    fn post_one_send(&self, request: &SendWr<'_, Native>) -> Result<()> {
        if request.xrc_srqn.is_some() {
            return Err(Error::unsupported("XRC"));
        }
        let mut inline = ibv_sge {
            addr: 0,
            length: 0,
            lkey: 0,
        };
        let (sg_list, num_sge, inline_flag) = entries(&request.payload, &mut inline);
        let (wr, imm_data) = operation(&request.op)?;
        let none = ibv_mw_bind_info {
            mr: null_mut(),
            addr: 0,
            length: 0,
            mw_access_flags: 0,
        };
        let mut c_request = ibv_send_wr {
            wr_id: request.wr_id,
            next: null_mut(),
            sg_list,
            num_sge,
            opcode: opcode_to_c(&request.op),
            send_flags: request.flags.bits() | inline_flag,
            imm_data,
            wr,
            qp_type: ibv_send_wr_qp_type { remote_srqn: 0 },
            bind_mw: ibv_send_wr_bind_mw {
                mw: null_mut(),
                rkey: 0,
                bind_info: none,
            },
        };
        let post = self
            .ops()
            .post_send
            .ok_or_else(|| Error::unsupported("posting sends"))?;
        let mut bad = null_mut();
        // SAFETY: the queue pair is alive, the request and its entries until the call returns.
        check("posting a send", unsafe {
            post(self.raw.as_ptr(), &mut c_request, &mut bad)
        })
    }

    fn post_one_recv(&self, request: &RecvWr<'_>) -> Result<()> {
        let mut c_request = ibv_recv_wr {
            wr_id: request.wr_id,
            next: null_mut(),
            sg_list: request.sges.as_ptr().cast::<ibv_sge>().cast_mut(),
            num_sge: request.sges.len() as c_int,
        };
        let post = self
            .ops()
            .post_recv
            .ok_or_else(|| Error::unsupported("posting receives"))?;
        let mut bad = null_mut();
        // SAFETY: as above.
        check("posting a receive", unsafe {
            post(self.raw.as_ptr(), &mut c_request, &mut bad)
        })
    }
}

impl verbs_api::QueuePair for Qp {
    type P = Native;

    fn qpn(&self) -> u32 {
        // SAFETY: the queue pair is alive.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    fn qp_type(&self) -> QpType {
        self.qp_type
    }

    fn cap(&self) -> QpCap {
        self.cap
    }

    fn modify(&self, attr: &QpAttr) -> Result<()> {
        let (mut values, mask) = qp_attr_to_c(attr);
        // SAFETY: the queue pair is alive, the values valid.
        check("modifying a queue pair", unsafe {
            (self.pd.0.context.library.ibv_modify_qp)(self.raw.as_ptr(), &mut values, mask)
        })
    }

    fn query(&self) -> Result<QpAttr> {
        let mut values = MaybeUninit::<ibv_qp_attr>::zeroed();
        let mut init = MaybeUninit::<ibv_qp_init_attr>::zeroed();
        // SAFETY: the queue pair is alive, the places valid.
        check("querying a queue pair", unsafe {
            (self.pd.0.context.library.ibv_query_qp)(
                self.raw.as_ptr(),
                values.as_mut_ptr(),
                ALL_ATTRIBUTES,
                init.as_mut_ptr(),
            )
        })?;
        // SAFETY: zeroed at least, and filled in by the library.
        let values = unsafe { values.assume_init_ref() };
        let mut mask =
            QpAttrMask::from_bits_truncate(ALL_ATTRIBUTES as u32) - QpAttrMask::QKEY - QpAttrMask::ALT_PATH;
        if values.path_mtu == 0 {
            // Not connected yet: there is no path.
            mask -= QpAttrMask::PATH_MTU | QpAttrMask::AV;
        }
        qp_attr_from_c(values, mask.bits() as c_int)
    }

    fn post_send(&self, requests: &[SendWr<'_, Native>]) -> Result<(), PostError> {
        for (posted, request) in requests.iter().enumerate() {
            self.post_one_send(request)
                .map_err(|error| PostError { posted, error })?;
        }
        Ok(())
    }

    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError> {
        for (posted, request) in requests.iter().enumerate() {
            self.post_one_recv(request)
                .map_err(|error| PostError { posted, error })?;
        }
        Ok(())
    }

    fn attach_mcast(&self, group: Gid, lid: u16) -> Result<()> {
        let group = ibv_gid { raw: group.0 };
        // SAFETY: the queue pair and the GID are alive.
        check("joining a multicast group", unsafe {
            (self.pd.0.context.library.ibv_attach_mcast)(self.raw.as_ptr(), &group, lid)
        })
    }

    fn detach_mcast(&self, group: Gid, lid: u16) -> Result<()> {
        let group = ibv_gid { raw: group.0 };
        // SAFETY: as above.
        check("leaving a multicast group", unsafe {
            (self.pd.0.context.library.ibv_detach_mcast)(self.raw.as_ptr(), &group, lid)
        })
    }
}
