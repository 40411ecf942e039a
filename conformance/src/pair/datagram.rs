//! Datagrams: handles, and what stands in front of a received one.

use roce_wire::grh::{self, GRH_LEN};
use roce_wire::ip::Ip;
use verbs_api::{AddressVector, ProtectionDomain, Provider, SendOp, Sge, Wc, WcFlags};

use super::{Endpoint, Node, Region, Setup, full_access, same_bytes};
use crate::outcome::{CaseResult, Failure};
use crate::{check, same};

impl<P: Provider> Node<P> {
    /// An address handle that leads to `peer`.
    pub fn handle_to(&self, peer: &Endpoint) -> Result<P::Ah, Failure> {
        Ok(self.pd.create_ah(&self.endpoint.vector_to(peer))?)
    }

    /// An address handle for a vector that `change` made out of the one to `peer`.
    pub fn handle_with(
        &self,
        peer: &Endpoint,
        change: impl FnOnce(&mut AddressVector),
    ) -> Result<P::Ah, Failure> {
        let mut av = self.endpoint.vector_to(peer);
        change(&mut av);
        Ok(self.pd.create_ah(&av)?)
    }

    /// Send a datagram of registered memory, signalled.
    pub fn send_to(&self, wr_id: u64, ah: &P::Ah, peer: &Endpoint, qkey: u32, sges: &[Sge]) -> CaseResult {
        self.send(wr_id, datagram(ah, peer, qkey), sges)
    }
}

/// A datagram to `peer`, without immediate.
pub fn datagram<'a, P: Provider>(ah: &'a P::Ah, peer: &Endpoint, qkey: u32) -> SendOp<'a, P> {
    SendOp::SendTo {
        ah,
        remote_qpn: peer.qpn,
        remote_qkey: qkey,
        imm: None,
    }
}

/// Where a datagram is received: the area of its network header, then the payload.
#[derive(Debug)]
pub struct Inbox<P: Provider> {
    /// The memory.
    pub region: Region<P>,
}

impl<P: Provider> Inbox<P> {
    /// Room for `payload` bytes.
    pub fn new(node: &Node<P>, payload: usize) -> Result<Self, Failure> {
        Ok(Inbox {
            region: node.region(GRH_LEN + payload, full_access())?,
        })
    }

    /// The entry for all of it.
    pub fn whole(&self) -> Sge {
        self.region.whole()
    }

    /// The 40 bytes in front.
    pub fn area(&self) -> [u8; GRH_LEN] {
        let mut area = [0; GRH_LEN];
        self.region.buffer.read(0, &mut area);
        area
    }

    /// The network header that they hold.
    pub fn header(&self) -> Result<Ip, Failure> {
        grh::read(&self.area()).map_err(|error| {
            Failure::new(format!(
                "the 40 bytes in front of a datagram are no network header: {error}; they are {:02x?}",
                self.area()
            ))
        })
    }

    /// It must hold `payload`, and the completion must say so and name `from`.
    pub fn holds(&self, wc: &Wc, payload: &[u8], from: &Endpoint) -> CaseResult {
        same!(
            (wc.byte_len as usize, wc.src_qp),
            (GRH_LEN + payload.len(), from.qpn),
            "length and sending queue pair of a received datagram"
        );
        check!(
            wc.flags.contains(WcFlags::GRH),
            "the completion of a datagram must carry the GRH flag, its flags are {:?}",
            wc.flags
        );
        same_bytes(
            "payload of a datagram",
            &self.region.buffer.to_vec(GRH_LEN..GRH_LEN + payload.len()),
            payload,
        )
    }
}

impl Setup {
    /// Datagram queue pairs.
    pub fn datagrams() -> Self {
        Setup::of(verbs_api::QpType::Ud)
    }
}
