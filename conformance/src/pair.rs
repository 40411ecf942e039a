//! Queue pairs and memory, ready to use.

mod datagram;
mod operations;
mod pool;
mod region;
mod setup;

pub use datagram::{Inbox, datagram};
pub use operations::{read, send, write};
pub use pool::{POOL_COOKIE, ReceivePool};
pub use region::{Region, all_remote, full_access, same_bytes};
pub use setup::{Endpoint, Setup};
pub use verbs_api::pattern;

use verbs_api::{
    Access, Buffer, Context as _, CqInit, GidEntry, ProtectionDomain, Provider, QpAttr, QpInit, QpState,
    QpType, QueuePair, RecvWr, SendOp, SendWr, Sge, WcStatus,
};

use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};

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

    /// Post one signalled send of inline data.
    pub fn send_inline(&self, wr_id: u64, op: SendOp<'_, P>, bytes: &[u8]) -> CaseResult {
        Ok(self.qp.post_send(&[SendWr::inline(wr_id, op, bytes)])?)
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

/// What a queue pair shares with others.
#[derive(Debug)]
pub struct Shared<'a, P: Provider> {
    /// Its receive queue.
    pub srq: Option<&'a P::Srq>,
    /// Its XRC domain.
    pub xrc_domain: Option<&'a P::XrcDomain>,
}

impl<P: Provider> Default for Shared<'_, P> {
    fn default() -> Self {
        Shared {
            srq: None,
            xrc_domain: None,
        }
    }
}

impl<B: Testbed> Scene<B> {
    /// The GID in use at one end.
    pub fn gid(&self, side: Side) -> Result<GidEntry, Failure> {
        self.gid_for(side, &Setup::default())
    }

    /// The GID that `setup` uses at one end.
    pub fn gid_for(&self, side: Side, setup: &Setup) -> Result<GidEntry, Failure> {
        let (port, index) = self.bed.gid_index(side, setup.family);
        Ok(self.bed.device(side, setup.family).query_gid(port, index)?)
    }

    /// A queue pair in RESET.
    pub fn node(&self, side: Side, setup: &Setup) -> Result<Node<B::P>, Failure> {
        self.node_sharing(side, setup, &Shared::default())
    }

    /// A queue pair in RESET that shares something.
    pub fn node_sharing(
        &self,
        side: Side,
        setup: &Setup,
        shared: &Shared<'_, B::P>,
    ) -> Result<Node<B::P>, Failure> {
        let pd = self.bed.device(side, setup.family).alloc_pd()?;
        self.node_in(side, setup, &pd, shared)
    }

    /// A queue pair in RESET in an existing domain.
    pub fn node_in(
        &self,
        side: Side,
        setup: &Setup,
        pd: &<B::P as Provider>::Pd,
        shared: &Shared<'_, B::P>,
    ) -> Result<Node<B::P>, Failure> {
        let device = self.bed.device(side, setup.family);
        let send_cq = device.create_cq(&CqInit::new(setup.cqe))?;
        let recv_cq = device.create_cq(&CqInit::new(setup.cqe))?;
        self.node_of(side, setup, pd, &send_cq, &recv_cq, shared)
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
        self.node_of(side, setup, pd, send_cq, recv_cq, &Shared::default())
    }

    fn node_of(
        &self,
        side: Side,
        setup: &Setup,
        pd: &<B::P as Provider>::Pd,
        send_cq: &<B::P as Provider>::Cq,
        recv_cq: &<B::P as Provider>::Cq,
        shared: &Shared<'_, B::P>,
    ) -> Result<Node<B::P>, Failure> {
        let (sends, receives) = match setup.qp_type {
            QpType::XrcInitiator => (true, false),
            QpType::XrcTarget => (false, false),
            QpType::Gsi | QpType::Rc | QpType::Uc | QpType::Ud | QpType::RawPacket => (true, true),
        };
        let mut cap = setup.cap;
        if !receives || shared.srq.is_some() {
            (cap.max_recv_wr, cap.max_recv_sge) = (0, 0);
        }
        if !sends {
            (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data) = (0, 0, 0);
        }
        let init = QpInit {
            qp_type: setup.qp_type,
            send_cq: sends.then_some(send_cq),
            recv_cq: receives.then_some(recv_cq),
            srq: shared.srq,
            xrc_domain: shared.xrc_domain,
            cap,
            sq_sig: setup.sq_sig,
        };
        let qp = pd.create_qp(&init)?;
        let endpoint = Endpoint {
            side,
            qpn: qp.qpn(),
            gid: self.gid_for(side, setup)?,
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
            self.ends_with(&from.send_cq, 9002, WcStatus::Success)
                .and_then(|_| self.ends_with(&to.recv_cq, 9001, WcStatus::Success))
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
