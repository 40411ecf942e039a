//! Queue pairs and shared receive queues.

use crate::{
    BindInfo, Error, Object, PostError, Provider, QpAttr, QpCap, QpState, QpType, RKey, RecvWr, Result,
    SendWr, SqSigType,
};

/// How to create a queue pair.
#[derive(Debug)]
pub struct QpInit<'a, P: Provider> {
    /// Its service.
    pub qp_type: QpType,
    /// Where sends complete. `None` only for XRC targets.
    pub send_cq: Option<&'a P::Cq>,
    /// Where receives complete. `None` only for XRC.
    pub recv_cq: Option<&'a P::Cq>,
    /// A shared receive queue in place of its own.
    pub srq: Option<&'a P::Srq>,
    /// XRC targets: their domain.
    pub xrc_domain: Option<&'a P::XrcDomain>,
    /// Sizes.
    pub cap: QpCap,
    /// Which sends complete visibly.
    pub sq_sig: SqSigType,
}

impl<'a, P: Provider> QpInit<'a, P> {
    /// A reliable connected queue pair of 64 requests each way, one entry each, on one completion queue.
    pub fn rc(cq: &'a P::Cq) -> Self {
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 64,
        };
        QpInit {
            qp_type: QpType::Rc,
            send_cq: Some(cq),
            recv_cq: Some(cq),
            srq: None,
            xrc_domain: None,
            cap,
            sq_sig: SqSigType::OnRequest,
        }
    }
}

/// How to create a shared receive queue.
#[derive(Debug)]
pub struct SrqInit<'a, P: Provider> {
    /// Receives outstanding.
    pub max_wr: u32,
    /// Entries a receive.
    pub max_sge: u32,
    /// Raise SRQ_LIMIT_REACHED below this many; 0 is off.
    pub limit: u32,
    /// Comes back in its events.
    pub cookie: u64,
    /// XRC: domain and completion queue.
    pub xrc: Option<(&'a P::XrcDomain, &'a P::Cq)>,
}

/// Attributes of a shared receive queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub limit: u32,
}

/// Which data [`QueuePair::data_in_order`] asks about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataOp {
    /// Receives.
    Recv,
    /// WRITEs by the peer.
    Write,
    /// Answers to READs.
    Read,
}

/// A queue pair.
pub trait QueuePair: Object {
    /// The family.
    type P: Provider<Qp = Self>;
    /// Its number, 24 bits.
    fn qpn(&self) -> u32;
    /// Its service.
    fn qp_type(&self) -> QpType;
    /// The granted sizes.
    fn cap(&self) -> QpCap;
    /// Set attributes, and with `attr.state` change state. On an error everything is as before.
    fn modify(&self, attr: &QpAttr) -> Result<()>;
    /// All attributes that the type has.
    fn query(&self) -> Result<QpAttr>;
    /// The state now.
    fn state(&self) -> Result<QpState> {
        Ok(self.query()?.state.unwrap_or_default())
    }
    /// Post sends, in order.
    fn post_send(&self, requests: &[SendWr<'_, Self::P>]) -> Result<(), PostError>;
    /// Post receives, in order.
    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError>;
    /// Whether the data of a message lands in the order of its addresses, so that its last byte may be polled.
    fn data_in_order(&self, op: DataOp) -> bool {
        let _ = op;
        false
    }
    /// Bind a memory window of type 1; its new remote key.
    fn bind_mw(
        &self,
        mw: &mut <Self::P as Provider>::Mw,
        wr_id: u64,
        bind: &BindInfo<'_, Self::P>,
        signaled: bool,
    ) -> Result<RKey> {
        let _ = (mw, wr_id, bind, signaled);
        Err(Error::unsupported("memory windows"))
    }
    /// Join a multicast group (UD).
    fn attach_mcast(&self, group: crate::Gid, lid: u16) -> Result<()> {
        let _ = (group, lid);
        Err(Error::unsupported("multicast"))
    }
    /// Leave it.
    fn detach_mcast(&self, group: crate::Gid, lid: u16) -> Result<()> {
        let _ = (group, lid);
        Err(Error::unsupported("multicast"))
    }
}

/// A shared receive queue.
pub trait SharedReceiveQueue: Object + Clone {
    /// The family.
    type P: Provider<Srq = Self>;
    /// Its number (XRC).
    fn srqn(&self) -> u32;
    /// Post receives.
    fn post_recv(&self, requests: &[RecvWr<'_>]) -> Result<(), PostError>;
    /// Change size (`max_wr`) or arm the limit (`limit`).
    fn modify(&self, max_wr: Option<u32>, limit: Option<u32>) -> Result<()>;
    /// Its attributes.
    fn query(&self) -> Result<SrqAttr>;
}
