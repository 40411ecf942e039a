//! One engine whose correspondents are the test.

use std::net::IpAddr;

use roce_wire::ip::Ip;
use roce_wire::{
    Bth, Deth, Headers, ICRC_LEN, ImmDt, Opcode, Psn, QKey, Qpn, ROCE_V2_PORT, grh, icrc, pad_len,
};
use softroce_engine::{Acks, AddressHandle, QpConfig, RxMeta, SendOperation, Time};
use verbs_api::{AddressVector, Gid, QpAttr, QpState, QpType, SqSigType, Wc};

use crate::node::{Connection, Node};

pub const QKEY: u32 = 0x1111_1111;
/// The queue pair that the test says it is.
pub const PEER_QPN: u32 = 0x77;
/// Bytes in front of a received payload.
pub const AREA: usize = 40;
/// Where receives are.
pub const INBOX: usize = 1 << 20;

/// A packet that the engine sent.
#[derive(Clone, Debug)]
pub struct Sent {
    pub meta: RxMeta,
    pub headers: Headers,
    pub payload: Vec<u8>,
    pub bytes: Vec<u8>,
}

/// The bench.
pub struct Bench {
    pub node: Node,
    pub qpn: u32,
    pub now: Time,
    /// How the test's datagrams arrive.
    pub meta: RxMeta,
}

impl Bench {
    /// A UD queue pair in RTS.
    pub fn new() -> Bench {
        Bench::between("10.0.0.1", "10.0.0.2")
    }

    pub fn between(own: &str, peer: &str) -> Bench {
        let mut node = Node::new(own, 5);
        let now = Time::from_nanos(1_000);
        let qpn = open(&mut node, now, QpType::Ud, QKEY);
        let meta = RxMeta {
            src: peer.parse().unwrap(),
            dst: own.parse().unwrap(),
            source_port: 0xc123,
            segment: 0,
            traffic_class: 0,
            hop_limit: 64,
        };
        Bench { node, qpn, now, meta }
    }

    /// A handle to the peer.
    pub fn handle(&mut self) -> AddressHandle {
        let av = av(self.meta.src);
        self.node.engine.create_ah(self.node.pd, &av).unwrap()
    }

    pub fn handle_to(&mut self, address: &str) -> AddressHandle {
        let av = av(address.parse().unwrap());
        self.node.engine.create_ah(self.node.pd, &av).unwrap()
    }

    /// Post a receive of `len` bytes with the area counted in.
    pub fn recv(&mut self, wr_id: u64, len: usize) {
        let sge = self.node.sge(INBOX, len);
        self.node.recv(self.now, self.qpn, wr_id, &[sge]);
    }

    /// Headers of a datagram to the queue pair.
    pub fn headers(&self) -> Headers {
        headers(self.qpn, QKEY)
    }

    pub fn inject(&mut self, headers: &Headers, payload: &[u8]) {
        let bytes = packet(&self.meta, headers, payload);
        self.node.engine.handle_datagram(self.now, &self.meta, &bytes);
    }

    /// What leaves now.
    pub fn sent(&mut self) -> Vec<Sent> {
        let mut all = Vec::new();
        for (meta, bytes) in self.node.transmit(self.now, Acks::Flush) {
            let packet = roce_wire::parse(&bytes).unwrap();
            let bth = packet.headers.bth;
            assert!(bth.migrated && !bth.fecn && !bth.ack_request);
            assert_eq!(bth.pkey.0, 0xffff);
            assert_eq!(bth.pad, pad_len(packet.payload.len()));
            assert!(packet.pad.iter().all(|byte| *byte == 0));
            all.push(Sent {
                meta,
                headers: packet.headers,
                payload: packet.payload.to_vec(),
                bytes: bytes.clone(),
            });
        }
        all
    }

    pub fn sent_one(&mut self) -> Sent {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    pub fn area(&self) -> [u8; AREA] {
        self.node.read(INBOX, AREA).try_into().unwrap()
    }

    /// The network header in front of what was received last.
    pub fn header(&self) -> Ip {
        grh::read(&self.area()).unwrap()
    }

    pub fn completion(&self) -> Wc {
        let mut all = self.node.completions();
        assert_eq!(all.len(), 1, "{all:?}");
        all.remove(0)
    }
}

/// A queue pair of a datagram service, in RTS, with the first PSN 7.
pub fn open(node: &mut Node, now: Time, qp_type: QpType, qkey: u32) -> u32 {
    let connection = Connection::default();
    let init = QpConfig {
        pd: node.pd,
        qp_type,
        send_cq: Some(node.cq),
        recv_cq: Some(node.cq),
        srq: None,
        xrc_domain: None,
        cap: connection.cap,
        sq_sig: SqSigType::OnRequest,
    };
    let qpn = node.engine.create_qp(&init).unwrap().qpn;
    for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
        node.modify(now, qpn, attributes(qp_type, state, qkey));
    }
    qpn
}

/// What is needed on the way to a state.
pub fn attributes(qp_type: QpType, state: QpState, qkey: u32) -> QpAttr {
    let is_init = state == QpState::Init;
    QpAttr {
        state: Some(state),
        pkey_index: is_init.then_some(0),
        port: (is_init && qp_type == QpType::Ud).then_some(1),
        qkey: is_init.then_some(qkey),
        sq_psn: (state == QpState::Rts).then_some(7),
        ..QpAttr::default()
    }
}

pub fn av(address: IpAddr) -> AddressVector {
    AddressVector {
        dgid: Some(Gid::from(address)),
        port: 1,
        ..AddressVector::default()
    }
}

pub fn send_to(ah: AddressHandle, imm: Option<u32>) -> SendOperation {
    SendOperation::SendTo {
        ah,
        remote_qpn: PEER_QPN,
        remote_qkey: QKEY,
        imm,
    }
}

pub fn headers(qpn: u32, qkey: u32) -> Headers {
    let bth = Bth::new(Opcode::UD_SEND_ONLY, Qpn::new(qpn).unwrap(), Psn::new(0x1234));
    let mut headers = Headers::new(bth);
    headers.deth = Some(Deth {
        qkey: QKey(qkey),
        source_qp: Qpn::new(PEER_QPN).unwrap(),
    });
    headers.immediate = Some(ImmDt([1, 2, 3, 4]));
    headers
}

/// A sealed packet; the pad follows from the payload.
pub fn packet(meta: &RxMeta, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut headers = *headers;
    headers.bth.pad = pad_len(payload.len());
    packet_as_is(meta, &headers, payload)
}

/// The same with the pad count that the header says.
pub fn packet_as_is(meta: &RxMeta, headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; headers.len()];
    headers.emit(&mut bytes).unwrap();
    bytes.extend_from_slice(payload);
    bytes.resize(bytes.len() + usize::from(headers.bth.pad) + ICRC_LEN, 0);
    let flow = icrc::Flow {
        src: meta.src,
        dst: meta.dst,
        source_port: meta.source_port,
        dest_port: ROCE_V2_PORT,
    };
    icrc::seal(&flow, 0, &mut bytes);
    bytes
}
