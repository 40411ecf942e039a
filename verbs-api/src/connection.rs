//! How a queue pair gets from RESET to RTS.

use crate::{Access, AddressVector, Mtu, QpAttr, QpState, QpType, QueuePair, Result};

/// All that a queue pair of any service has to be told on its way from RESET to RTS. Each step takes what its service
/// wants (the tables of InfiniBand 1.x, volume 1, 11.2.5.2), and leaves the rest.
///
/// ```
/// use verbs_api::{AddressVector, Connection, Gid, Provider, QpType, QueuePair, Result};
///
/// /// Connect to the queue pair `qpn` at `gid`, from which the first packet has the number 7.
/// fn connect<P: Provider>(qp: &P::Qp, gid: Gid, qpn: u32) -> Result<()> {
///     let to_peer = AddressVector { dgid: Some(gid), port: 1, hop_limit: 64, ..AddressVector::default() };
///     let connection = Connection { rq_psn: 7, ..Connection::new(QpType::Rc, to_peer, qpn) };
///     connection.make(qp)
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// The service of the queue pair.
    pub service: QpType,
    /// The way to the peer, and the own port.
    pub av: AddressVector,
    /// The peer's queue pair number, 24 bits.
    pub dest_qpn: u32,
    /// What the peer may do.
    pub access: Access,
    /// Q_Key, of UD.
    pub qkey: u32,
    /// Path MTU.
    pub path_mtu: Mtu,
    /// First PSN sent, 24 bits.
    pub sq_psn: u32,
    /// First PSN expected, 24 bits.
    pub rq_psn: u32,
    /// Local ACK timeout code, 0–31: 4.096 µs · 2^code, 0 waits for ever.
    pub timeout: u8,
    /// Retransmissions before RETRY_EXC_ERR, 0–7.
    pub retry_cnt: u8,
    /// RNR retries before RNR_RETRY_EXC_ERR, 0–7, 7 is without end.
    pub rnr_retry: u8,
    /// RNR NAK timer code, 0–31.
    pub min_rnr_timer: u8,
    /// READs and atomics outstanding as requester.
    pub max_rd_atomic: u8,
    /// READs and atomics outstanding as responder.
    pub max_dest_rd_atomic: u8,
}

impl Connection {
    /// To this peer. It may do nothing but send; MTU 1024, PSNs from 0, four READs at a time, up to seven
    /// retransmissions every 67 ms, receivers that are not ready are waited for.
    pub fn new(service: QpType, av: AddressVector, dest_qpn: u32) -> Connection {
        Connection {
            service,
            av,
            dest_qpn,
            access: Access::empty(),
            qkey: 0,
            path_mtu: Mtu::Mtu1024,
            sq_psn: 0,
            rq_psn: 0,
            timeout: 14,
            retry_cnt: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: 4,
            max_dest_rd_atomic: 4,
        }
    }

    fn has_peer(&self) -> bool {
        !matches!(self.service, QpType::Ud | QpType::Gsi | QpType::RawPacket)
    }

    /// Whether its queue pairs send requests that are acknowledged.
    fn requests(&self) -> bool {
        matches!(self.service, QpType::Rc | QpType::XrcInitiator)
    }

    /// Whether its queue pairs answer READs and atomics.
    fn answers(&self) -> bool {
        matches!(self.service, QpType::Rc | QpType::XrcTarget)
    }

    /// The attributes for RESET to INIT. The P_Key index is 0.
    pub fn to_init(&self) -> QpAttr {
        QpAttr {
            state: Some(QpState::Init),
            pkey_index: Some(0),
            port: Some(self.av.port),
            access: self.has_peer().then_some(self.access),
            qkey: (!self.has_peer()).then_some(self.qkey),
            ..QpAttr::default()
        }
    }

    /// The attributes for INIT to RTR.
    pub fn to_rtr(&self) -> QpAttr {
        QpAttr {
            state: Some(QpState::Rtr),
            av: self.has_peer().then_some(self.av),
            path_mtu: self.has_peer().then_some(self.path_mtu),
            dest_qpn: self.has_peer().then_some(self.dest_qpn),
            rq_psn: self.has_peer().then_some(self.rq_psn),
            max_dest_rd_atomic: self.answers().then_some(self.max_dest_rd_atomic),
            min_rnr_timer: self.answers().then_some(self.min_rnr_timer),
            ..QpAttr::default()
        }
    }

    /// The attributes for RTR to RTS.
    pub fn to_rts(&self) -> QpAttr {
        let is_acknowledged = self.requests() || self.answers();
        QpAttr {
            state: Some(QpState::Rts),
            timeout: is_acknowledged.then_some(self.timeout),
            retry_cnt: self.requests().then_some(self.retry_cnt),
            rnr_retry: self.requests().then_some(self.rnr_retry),
            sq_psn: Some(self.sq_psn),
            max_rd_atomic: self.requests().then_some(self.max_rd_atomic),
            ..QpAttr::default()
        }
    }

    /// Bring a queue pair from RESET to RTS.
    ///
    /// # Errors
    /// The first refusal of the provider.
    pub fn make(&self, qp: &impl QueuePair) -> Result<()> {
        let steps = [self.to_init(), self.to_rtr(), self.to_rts()];
        steps.iter().try_for_each(|attr| qp.modify(attr))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::QpAttrMask as M;

    #[test]
    fn each_service_is_told_what_it_takes_and_no_more() {
        let connected = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let answers = M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER;
        let requests = M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        for (service, init, rtr, rts) in [
            (QpType::Rc, M::ACCESS_FLAGS, connected | answers, requests),
            (QpType::Uc, M::ACCESS_FLAGS, connected, M::empty()),
            (QpType::Ud, M::QKEY, M::empty(), M::empty()),
            (QpType::XrcInitiator, M::ACCESS_FLAGS, connected, requests),
            (
                QpType::XrcTarget,
                M::ACCESS_FLAGS,
                connected | answers,
                M::TIMEOUT,
            ),
        ] {
            let connection = Connection::new(service, AddressVector::default(), 1);
            let init = init | M::STATE | M::PKEY_INDEX | M::PORT;
            assert_eq!(connection.to_init().mask(), init, "{service:?}");
            assert_eq!(connection.to_rtr().mask(), rtr | M::STATE, "{service:?}");
            assert_eq!(
                connection.to_rts().mask(),
                rts | M::STATE | M::SQ_PSN,
                "{service:?}"
            );
        }
    }
}
