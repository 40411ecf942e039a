//! A queue pair of any type in any state, whose peer is the test.

use std::net::IpAddr;

use roce_wire::{Aeth, Bth, Deth, Headers, ICRC_LEN, Msn, Opcode, Psn, QKey, Qpn, Srqn, Syndrome, XrcEth};
use softroce_engine::{
    Acks, AddressHandle, EngineEvent, QpConfig, RxMeta, SendOperation, SendRequest, SrqConfig, SrqHandle,
    Time, XrcDomainId,
};
use verbs_api::{
    Access, AddressVector, AltPath, ErrorKind, Gid, MigState, Mtu, Payload, QpAttr, QpAttrMask, QpCap,
    QpState, QpType, RecvWr, Result, SendFlags, Sge, SqSigType,
};

use super::table;
use crate::node::Node;

pub const PEER_QPN: u32 = 0x77;
pub const QKEY: u32 = 0x1234;
/// First PSNs, of the subject and of the test.
pub const OWN_PSN: u32 = 0x222;
pub const PEER_PSN: u32 = 0x111;
/// The shared receive queue of the peer that XRC sends go to.
const PEER_SRQN: u32 = 5;

/// The types of the matrices.
pub const TYPES: [QpType; 5] = [
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::XrcInitiator,
    QpType::XrcTarget,
];

/// Two values of every attribute, so that a change can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Values {
    First,
    Second,
}

pub struct Subject {
    pub node: Node,
    pub qp_type: QpType,
    pub qpn: u32,
    pub now: Time,
    meta: RxMeta,
    xrc: Option<(XrcDomainId, SrqHandle)>,
    ah: Option<AddressHandle>,
}

impl Subject {
    /// In RESET.
    pub fn new(qp_type: QpType) -> Subject {
        let mut node = Node::new("10.0.0.1", 5);
        let peer: IpAddr = "10.0.0.2".parse().unwrap();
        let meta = RxMeta {
            src: peer,
            dst: node.ip,
            source_port: 0xc123,
            segment: 0,
            traffic_class: 0,
            hop_limit: 64,
        };
        let ah = (qp_type == QpType::Ud).then(|| node.engine.create_ah(node.pd, &vector(peer)).unwrap());
        let xrc = (qp_type == QpType::XrcTarget).then(|| {
            let domain = node.engine.alloc_xrc_domain().unwrap();
            let init = SrqConfig {
                pd: node.pd,
                max_wr: 4,
                max_sge: 1,
                limit: 0,
                xrc: Some((domain, node.cq)),
            };
            (domain, node.engine.create_srq(&init).unwrap())
        });
        let mut subject = Subject {
            node,
            qp_type,
            qpn: 0,
            now: Time::from_nanos(1_000),
            meta,
            xrc,
            ah,
        };
        subject.create();
        subject
    }

    /// Another queue pair in place of the old one, in RESET.
    pub fn renew(&mut self) {
        self.node.engine.destroy_qp(self.now, self.qpn).unwrap();
        self.create();
    }

    fn create(&mut self) {
        let has_sends = self.qp_type != QpType::XrcTarget;
        let has_receives = self.has_receives();
        let init = QpConfig {
            pd: self.node.pd,
            qp_type: self.qp_type,
            send_cq: has_sends.then_some(self.node.cq),
            recv_cq: has_receives.then_some(self.node.cq),
            srq: None,
            xrc_domain: self.xrc.map(|(domain, _)| domain),
            cap: QpCap {
                max_send_wr: if has_sends { 4 } else { 0 },
                max_recv_wr: if has_receives { 4 } else { 0 },
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig: SqSigType::All,
        };
        self.qpn = self.node.engine.create_qp(&init).unwrap().qpn;
    }

    pub fn has_receives(&self) -> bool {
        matches!(self.qp_type, QpType::Rc | QpType::Uc | QpType::Ud)
    }

    pub fn query(&self) -> QpAttr {
        self.node.engine.query_qp(self.qpn).unwrap()
    }

    pub fn state(&self) -> QpState {
        self.query().state.unwrap()
    }

    pub fn modify(&mut self, attr: &QpAttr) -> Result<()> {
        self.node.engine.modify_qp(self.now, self.qpn, attr)
    }

    /// Go from the present state to `to`, with what that needs.
    pub fn step(&mut self, to: QpState) -> Result<()> {
        let from = self.state();
        let required = table::way(self.qp_type, from, to).map_or(QpAttrMask::empty(), |way| way.required);
        self.modify(&attributes(required, from, to, Values::First))
    }

    /// From RESET to `state`. False where this type cannot be in it.
    pub fn bring_to(&mut self, state: QpState) -> bool {
        let way: &[QpState] = match state {
            QpState::Reset => &[],
            QpState::Init => &[QpState::Init],
            QpState::Rtr => &[QpState::Init, QpState::Rtr],
            QpState::Rts => &[QpState::Init, QpState::Rtr, QpState::Rts],
            QpState::Sqd => &[QpState::Init, QpState::Rtr, QpState::Rts, QpState::Sqd],
            QpState::Err => &[QpState::Init, QpState::Rtr, QpState::Rts, QpState::Err],
            QpState::Sqe => return self.bring_to_sqe(),
        };
        for to in way {
            self.step(*to).unwrap();
        }
        assert_eq!(self.state(), state);
        true
    }

    /// A send from memory that is nobody's.
    fn bring_to_sqe(&mut self) -> bool {
        if !matches!(self.qp_type, QpType::Uc | QpType::Ud) {
            return false;
        }
        self.bring_to(QpState::Rts);
        let sge = Sge {
            lkey: verbs_api::LKey(0xdead_0000),
            ..self.node.sge(0, 8)
        };
        self.post_send_of(99, &[sge]).unwrap();
        self.node.transmit(self.now, Acks::Flush);
        assert_eq!(self.node.completions().len(), 1);
        assert_eq!(self.state(), QpState::Sqe);
        true
    }

    pub fn post_send(&mut self, wr_id: u64) -> Result<()> {
        let sge = self.node.sge(0, 8);
        self.post_send_of(wr_id, &[sge])
    }

    fn post_send_of(&mut self, wr_id: u64, sges: &[Sge]) -> Result<()> {
        let op = match self.ah {
            Some(ah) => SendOperation::SendTo {
                ah,
                remote_qpn: PEER_QPN,
                remote_qkey: QKEY,
                imm: None,
            },
            None => SendOperation::Send { imm: None },
        };
        let request = SendRequest {
            wr_id,
            op,
            payload: Payload::Sges(sges),
            flags: SendFlags::empty(),
            xrc_srqn: (self.qp_type == QpType::XrcInitiator).then_some(PEER_SRQN),
        };
        self.node.engine.post_send(self.now, self.qpn, &request)
    }

    pub fn post_recv(&mut self, wr_id: u64) -> Result<()> {
        let sges = [self.node.sge(4096, 64)];
        let request = RecvWr { wr_id, sges: &sges };
        match self.xrc {
            Some((_, srq)) => self.node.engine.post_srq_recv(self.now, srq.id, &request),
            None => self.node.engine.post_recv(self.now, self.qpn, &request),
        }
    }

    /// A message of eight bytes arrives, the first one of the connection.
    pub fn receive_request(&mut self) {
        self.receive_request_number(0);
    }

    /// One that has so many before it.
    pub fn receive_request_number(&mut self, number: u32) {
        let opcode = match self.qp_type {
            QpType::Uc => Opcode::UC_SEND_ONLY,
            QpType::Ud => Opcode::UD_SEND_ONLY,
            QpType::XrcInitiator | QpType::XrcTarget => Opcode::XRC_SEND_ONLY,
            QpType::Rc | QpType::Gsi | QpType::RawPacket => Opcode::RC_SEND_ONLY,
        };
        let mut headers = self.headers(opcode, PEER_PSN + number);
        headers.bth.ack_request = true;
        headers.deth = Some(Deth {
            qkey: QKey(QKEY),
            source_qp: Qpn::new(PEER_QPN).unwrap(),
        });
        headers.xrceth = Some(XrcEth {
            srq: Srqn::new(self.xrc.map_or(1, |(_, srq)| srq.srqn)).unwrap(),
        });
        self.receive(&headers, &[7; 8]);
    }

    /// The acknowledgement of the first message sent arrives.
    pub fn receive_response(&mut self) {
        let opcode = match self.qp_type {
            QpType::XrcInitiator | QpType::XrcTarget => Opcode::XRC_ACKNOWLEDGE,
            QpType::Rc | QpType::Uc | QpType::Ud | QpType::Gsi | QpType::RawPacket => Opcode::RC_ACKNOWLEDGE,
        };
        let mut headers = self.headers(opcode, OWN_PSN);
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(1),
        });
        self.receive(&headers, &[]);
    }

    pub fn receive_congestion_notification(&mut self) {
        let mut headers = self.headers(Opcode::CNP, 0);
        headers.bth.becn = true;
        self.receive(&headers, &[0; 16]);
    }

    fn headers(&self, opcode: Opcode, psn: u32) -> Headers {
        Headers::new(Bth::new(opcode, Qpn::new(self.qpn).unwrap(), Psn::new(psn)))
    }

    fn receive(&mut self, headers: &Headers, payload: &[u8]) {
        let mut bytes = vec![0; headers.len()];
        headers.emit(&mut bytes).unwrap();
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len() + ICRC_LEN, 0);
        let flow = roce_wire::icrc::Flow {
            src: self.meta.src,
            dst: self.meta.dst,
            source_port: self.meta.source_port,
            dest_port: roce_wire::ROCE_V2_PORT,
        };
        roce_wire::icrc::seal(&flow, 0, &mut bytes);
        self.node.engine.handle_datagram(self.now, &self.meta, &bytes);
    }

    /// Names of the opcodes of all packets that leave now.
    pub fn sent(&mut self) -> Vec<String> {
        self.node
            .transmit(self.now, Acks::Flush)
            .iter()
            .map(|(_, bytes)| roce_wire::parse(bytes).unwrap().headers.bth.opcode.to_string())
            .collect()
    }

    pub fn events(&mut self) -> Vec<EngineEvent> {
        std::iter::from_fn(|| self.node.engine.poll_event()).collect()
    }
}

fn vector(peer: IpAddr) -> AddressVector {
    AddressVector {
        dgid: Some(Gid::from(peer)),
        port: 1,
        ..AddressVector::default()
    }
}

/// A legal value for every attribute of `mask`; `from` is what CUR_STATE says.
pub fn attributes(mask: QpAttrMask, from: QpState, to: QpState, values: Values) -> QpAttr {
    use QpAttrMask as M;
    let is_first = values == Values::First;
    let pick = |first: u32, second: u32| if is_first { first } else { second };
    let small = |first: u32, second: u32| pick(first, second) as u8;
    fn some<T>(mask: QpAttrMask, bit: QpAttrMask, value: T) -> Option<T> {
        mask.contains(bit).then_some(value)
    }
    let hop_limit = small(3, 9);
    let av = AddressVector {
        hop_limit,
        ..vector("10.0.0.2".parse().unwrap())
    };
    let alt_path = AltPath {
        av: AddressVector {
            hop_limit,
            ..vector("10.0.0.3".parse().unwrap())
        },
        pkey_index: 0,
        timeout: small(8, 9),
    };
    let access = if is_first {
        Access::REMOTE_WRITE | Access::REMOTE_READ
    } else {
        Access::REMOTE_READ
    };
    QpAttr {
        state: Some(to),
        cur_state: some(mask, M::CUR_STATE, from),
        en_sqd_async_notify: some(mask, M::EN_SQD_ASYNC_NOTIFY, is_first),
        access: some(mask, M::ACCESS_FLAGS, access),
        pkey_index: some(mask, M::PKEY_INDEX, 0),
        port: some(mask, M::PORT, 1),
        qkey: some(mask, M::QKEY, pick(QKEY, 0x4321)),
        av: some(mask, M::AV, av),
        path_mtu: some(
            mask,
            M::PATH_MTU,
            if is_first { Mtu::Mtu1024 } else { Mtu::Mtu512 },
        ),
        timeout: some(mask, M::TIMEOUT, small(10, 11)),
        retry_cnt: some(mask, M::RETRY_CNT, small(1, 4)),
        rnr_retry: some(mask, M::RNR_RETRY, small(5, 6)),
        rq_psn: some(mask, M::RQ_PSN, pick(PEER_PSN, 0x999)),
        max_rd_atomic: some(mask, M::MAX_QP_RD_ATOMIC, small(2, 3)),
        alt_path: some(mask, M::ALT_PATH, alt_path),
        min_rnr_timer: some(mask, M::MIN_RNR_TIMER, small(6, 7)),
        sq_psn: some(mask, M::SQ_PSN, pick(OWN_PSN, 0x888)),
        max_dest_rd_atomic: some(mask, M::MAX_DEST_RD_ATOMIC, small(4, 5)),
        path_mig_state: some(mask, M::PATH_MIG_STATE, MigState::Migrated),
        cap: some(mask, M::CAP, QpCap::default()),
        dest_qpn: some(mask, M::DEST_QPN, pick(PEER_QPN, 0x66)),
        rate_limit: some(mask, M::RATE_LIMIT, 1_000),
        ..QpAttr::default()
    }
}

/// Whether a call was refused as it must be: with EINVAL.
pub fn is_refused(result: &Result<()>) -> bool {
    matches!(result, Err(error) if error.kind() == ErrorKind::Invalid)
}
