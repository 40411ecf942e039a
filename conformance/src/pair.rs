//! Queue pairs and memory, ready to use.

use std::ops::Range;

use verbs_api::{
    Access, AddressVector, Buffer, Context, CqInit, GidEntry, MemoryRegion, Mtu, ProtectionDomain, Provider,
    QpAttr, QpCap, QpInit, QpState, QueuePair, RKey, RecvWr, RemoteAddr, SendOp, SendWr, Sge, SqSigType,
};

use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};

/// How two queue pairs are set up. By default a try lasts at least 268 ms, which a busy machine can keep to; cases that
/// lose packets have shorter ones.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Path MTU.
    pub mtu: Mtu,
    /// Local ACK timeout code.
    pub timeout: u8,
    /// Retry count.
    pub retry_cnt: u8,
    /// RNR retry count.
    pub rnr_retry: u8,
    /// RNR timer code.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding, both ways.
    pub rd_atomic: u8,
    /// First PSN that left and right send.
    pub psn: [u32; 2],
    /// What the peer may do.
    pub access: Access,
    /// Sizes of the queues.
    pub cap: QpCap,
    /// Which sends complete visibly.
    pub sq_sig: SqSigType,
    /// Completions that each queue holds.
    pub cqe: u32,
}

/// Everything that a peer can be allowed.
pub fn all_remote() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Everything that a region can allow.
pub fn full_access() -> Access {
    Access::LOCAL_WRITE | all_remote()
}

impl Default for Setup {
    fn default() -> Self {
        Setup {
            mtu: Mtu::Mtu1024,
            timeout: 16,
            retry_cnt: 3,
            rnr_retry: 3,
            min_rnr_timer: 12,
            rd_atomic: 4,
            psn: [0, 0xAB_CDEF],
            access: all_remote(),
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 64,
            },
            sq_sig: SqSigType::OnRequest,
            cqe: 256,
        }
    }
}

impl Setup {
    /// A setup in which an unanswered request fails soon: timeout code 10 (4.2 ms), one retry.
    pub fn impatient() -> Self {
        Setup {
            timeout: 10,
            retry_cnt: 1,
            ..Setup::default()
        }
    }

    /// The attributes for RESET to INIT.
    pub fn to_init(&self, port: u8) -> QpAttr {
        QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(port),
            access: Some(self.access),
            ..QpAttr::default()
        }
    }

    /// The attributes for INIT to RTR.
    pub fn to_rtr(&self, own: &Endpoint, peer: &Endpoint) -> QpAttr {
        QpAttr {
            state: Some(QpState::Rtr),
            av: Some(AddressVector {
                dgid: Some(peer.gid.gid),
                sgid_index: own.gid.index as u8,
                hop_limit: 64,
                port: own.gid.port,
                ..AddressVector::default()
            }),
            path_mtu: Some(self.mtu),
            dest_qpn: Some(peer.qpn),
            rq_psn: Some(self.psn[peer.side.index()]),
            max_dest_rd_atomic: Some(self.rd_atomic),
            min_rnr_timer: Some(self.min_rnr_timer),
            ..QpAttr::default()
        }
    }

    /// The attributes for RTR to RTS.
    pub fn to_rts(&self, own: &Endpoint) -> QpAttr {
        QpAttr {
            state: Some(QpState::Rts),
            timeout: Some(self.timeout),
            retry_cnt: Some(self.retry_cnt),
            rnr_retry: Some(self.rnr_retry),
            sq_psn: Some(self.psn[own.side.index()]),
            max_rd_atomic: Some(self.rd_atomic),
            ..QpAttr::default()
        }
    }
}

/// What a peer must know of a queue pair.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Which end.
    pub side: Side,
    /// Its number.
    pub qpn: u32,
    /// Its address.
    pub gid: GidEntry,
}

/// One end: a queue pair with its own domain and completion queues.
#[derive(Debug)]
pub struct Node<P: Provider> {
    /// The queue pair. It stands first because it must go first when the node is dropped.
    pub qp: P::Qp,
    /// Where its sends complete.
    pub send_cq: P::Cq,
    /// Where its receives complete.
    pub recv_cq: P::Cq,
    /// Its domain.
    pub pd: P::Pd,
    /// How a peer finds it.
    pub endpoint: Endpoint,
}

impl<P: Provider> Node<P> {
    /// To INIT.
    pub fn init(&self, setup: &Setup) -> CaseResult {
        Ok(self.qp.modify(&setup.to_init(self.endpoint.gid.port))?)
    }

    /// From INIT to RTR.
    pub fn rtr(&self, setup: &Setup, peer: &Endpoint) -> CaseResult {
        Ok(self.qp.modify(&setup.to_rtr(&self.endpoint, peer))?)
    }

    /// From RTR to RTS.
    pub fn rts(&self, setup: &Setup) -> CaseResult {
        Ok(self.qp.modify(&setup.to_rts(&self.endpoint))?)
    }

    /// From RESET to RTS.
    pub fn connect(&self, setup: &Setup, peer: &Endpoint) -> CaseResult {
        self.init(setup)?;
        self.rtr(setup, peer)?;
        self.rts(setup)
    }

    /// To another state, with no other attribute.
    pub fn go(&self, state: QpState) -> CaseResult {
        Ok(self.qp.modify(&QpAttr {
            state: Some(state),
            ..QpAttr::default()
        })?)
    }

    /// The state must be this one.
    pub fn is_in(&self, state: QpState) -> CaseResult {
        crate::same!(
            self.qp.state()?,
            state,
            "state of the {:?} queue pair",
            self.endpoint.side
        );
        Ok(())
    }

    /// Post one signalled send.
    pub fn send(&self, wr_id: u64, op: SendOp<'_, P>, sges: &[Sge]) -> CaseResult {
        Ok(self.qp.post_send(&[SendWr::new(wr_id, op, sges)])?)
    }

    /// Post one receive.
    pub fn recv(&self, wr_id: u64, sges: &[Sge]) -> CaseResult {
        Ok(self.qp.post_recv(&[RecvWr { wr_id, sges }])?)
    }

    /// Registered memory of `length` zero bytes.
    pub fn region(&self, length: usize, access: Access) -> Result<Region<P>, Failure> {
        Region::new(&self.pd, Buffer::new(length), access)
    }
}

/// Two connected ends.
#[derive(Debug)]
pub struct Pair<P: Provider> {
    /// Left.
    pub left: Node<P>,
    /// Right.
    pub right: Node<P>,
    /// How they were set up.
    pub setup: Setup,
}

impl<P: Provider> Pair<P> {
    /// One of them.
    pub fn node(&self, side: Side) -> &Node<P> {
        match side {
            Side::Left => &self.left,
            Side::Right => &self.right,
        }
    }
}

/// Registered memory.
#[derive(Debug)]
pub struct Region<P: Provider> {
    /// The region.
    pub mr: P::Mr,
    /// The bytes.
    pub buffer: Buffer,
}

impl<P: Provider> Region<P> {
    /// Register the whole of `buffer`.
    pub fn new(pd: &P::Pd, buffer: Buffer, access: Access) -> Result<Self, Failure> {
        Ok(Region {
            mr: pd.reg_mr(&buffer, access)?,
            buffer,
        })
    }

    /// The entry for a range of it.
    pub fn sge(&self, range: Range<usize>) -> Sge {
        Sge {
            addr: self.mr.addr() + range.start as u64,
            length: range.len() as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// The entry for all of it.
    pub fn whole(&self) -> Sge {
        self.sge(0..self.buffer.len())
    }

    /// The remote address of the byte at `offset`.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.mr.addr() + offset as u64,
            rkey: self.mr.rkey(),
        }
    }

    /// The same with another key.
    pub fn remote_with(&self, offset: usize, rkey: RKey) -> RemoteAddr {
        RemoteAddr {
            rkey,
            ..self.remote(offset)
        }
    }

    /// Fill it with a pattern that differs by `seed` and by position.
    pub fn scribble(&self, seed: u64) {
        self.buffer.write(0, &pattern(seed, self.buffer.len()));
    }
}

/// `length` bytes that differ by `seed` and by position.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Fails unless both are equal, naming the first byte that differs.
pub fn same_bytes(what: &str, seen: &[u8], expected: &[u8]) -> CaseResult {
    crate::same!(seen.len(), expected.len(), "{what}: length");
    if let Some(at) = seen.iter().zip(expected).position(|(a, b)| a != b) {
        return Err(Failure::new(format!(
            "{what}: byte {at} of {} is {:#04x}, must be {:#04x}",
            seen.len(),
            seen[at],
            expected[at]
        )));
    }
    Ok(())
}

impl<B: Testbed> Scene<B> {
    /// The GID in use at one end.
    pub fn gid(&self, side: Side) -> Result<GidEntry, Failure> {
        let (port, index) = self.bed.gid_index(side);
        Ok(self.context(side).query_gid(port, index)?)
    }

    /// A queue pair in RESET.
    pub fn node(&self, side: Side, setup: &Setup) -> Result<Node<B::P>, Failure> {
        let context = self.context(side);
        let pd = context.alloc_pd()?;
        let send_cq = context.create_cq(&CqInit::new(setup.cqe))?;
        let recv_cq = context.create_cq(&CqInit::new(setup.cqe))?;
        let init = QpInit {
            send_cq: Some(&send_cq),
            recv_cq: Some(&recv_cq),
            cap: setup.cap,
            sq_sig: setup.sq_sig,
            ..QpInit::rc(&send_cq)
        };
        let qp = pd.create_qp(&init)?;
        let endpoint = Endpoint {
            side,
            qpn: qp.qpn(),
            gid: self.gid(side)?,
        };
        Ok(Node {
            qp,
            send_cq,
            recv_cq,
            pd,
            endpoint,
        })
    }

    /// A queue pair in RESET in an existing domain and with existing completion queues.
    pub fn node_with(
        &self,
        side: Side,
        setup: &Setup,
        pd: &<B::P as Provider>::Pd,
        send_cq: &<B::P as Provider>::Cq,
        recv_cq: &<B::P as Provider>::Cq,
    ) -> Result<Node<B::P>, Failure> {
        let init = QpInit {
            send_cq: Some(send_cq),
            recv_cq: Some(recv_cq),
            cap: setup.cap,
            sq_sig: setup.sq_sig,
            ..QpInit::rc(send_cq)
        };
        let qp = pd.create_qp(&init)?;
        let endpoint = Endpoint {
            side,
            qpn: qp.qpn(),
            gid: self.gid(side)?,
        };
        Ok(Node {
            qp,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            pd: pd.clone(),
            endpoint,
        })
    }

    /// Two queue pairs in RTS.
    pub fn pair(&self, setup: &Setup) -> Result<Pair<B::P>, Failure> {
        let pair = self.unconnected(setup)?;
        pair.left.connect(setup, &pair.right.endpoint)?;
        pair.right.connect(setup, &pair.left.endpoint)?;
        Ok(pair)
    }

    /// Two queue pairs in RESET.
    pub fn unconnected(&self, setup: &Setup) -> Result<Pair<B::P>, Failure> {
        let left = self.node(Side::Left, setup)?;
        let right = self.node(Side::Right, setup)?;
        Ok(Pair {
            left,
            right,
            setup: setup.clone(),
        })
    }

    /// One SEND from left to right and one back arrive: the connection still works.
    pub fn still_works(&mut self, pair: &Pair<B::P>) -> CaseResult {
        for side in Side::BOTH {
            let (from, to) = (pair.node(side), pair.node(side.peer()));
            let (source, sink) = (
                from.region(8, Access::empty())?,
                to.region(8, Access::LOCAL_WRITE)?,
            );
            source.scribble(77);
            to.recv(9001, &[sink.whole()])?;
            from.send(9002, SendOp::Send { imm: None }, &[source.whole()])?;
            self.ends_with(&from.send_cq, 9002, verbs_api::WcStatus::Success)
                .and_then(|_| self.ends_with(&to.recv_cq, 9001, verbs_api::WcStatus::Success))
                .map_err(|e| {
                    e.during(format!(
                        "a last SEND from the {side:?} end, to see that all still works"
                    ))
                })?;
            same_bytes("the last SEND", &sink.buffer.to_vec(0..8), &pattern(77, 8))?;
        }
        Ok(())
    }
}
