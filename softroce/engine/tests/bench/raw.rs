//! One engine whose peer is the test: packets are made and checked field by field.

use std::net::IpAddr;

use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Headers, ICRC_LEN, ImmDt, Msn, NakCode, Opcode, Psn, Qpn, RKey, Reth,
    Syndrome, pad_len,
};
use softroce_engine::{Acks, RxMeta, Time};
use verbs_api::{QpState, RemoteAddr};

use crate::node::{Connection, Node};

/// The test's own queue pair number.
pub const PEER_QPN: u32 = 0x77;

/// A packet that the engine sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    pub headers: Headers,
    pub payload: Vec<u8>,
    pub bytes: Vec<u8>,
}

impl Sent {
    pub fn opcode(&self) -> Opcode {
        self.headers.bth.opcode
    }

    pub fn psn(&self) -> u32 {
        self.headers.bth.psn.value()
    }

    /// PSN, syndrome and MSN of an acknowledgement or a NAK.
    pub fn ack(&self) -> (u32, Syndrome, u32) {
        assert_eq!(self.opcode(), Opcode::RC_ACKNOWLEDGE);
        let aeth = self.headers.aeth.unwrap();
        (self.psn(), aeth.syndrome, aeth.msn.value())
    }
}

/// The bench.
pub struct Raw {
    pub node: Node,
    pub qpn: u32,
    pub now: Time,
    pub meta: RxMeta,
}

impl Raw {
    pub fn new() -> Raw {
        Raw::with(Connection::default())
    }

    /// A queue pair in RTS, first PSN of its own `first_psn`, of the test's `peer_first_psn`.
    pub fn with(connection: Connection) -> Raw {
        let mut raw = Raw::in_init(&connection);
        let peer = raw.meta.src;
        raw.node.enter_rtr(raw.now, raw.qpn, peer, PEER_QPN, &connection);
        raw.node.enter_rts(raw.now, raw.qpn, &connection);
        raw
    }

    pub fn in_init(connection: &Connection) -> Raw {
        let mut node = Node::new("10.0.0.1", 5);
        let now = Time::from_nanos(1_000);
        let qpn = node.create_qp(connection);
        node.enter_init(now, qpn, connection);
        let peer: IpAddr = "10.0.0.2".parse().unwrap();
        let meta = RxMeta {
            src: peer,
            dst: node.ip,
            source_port: 0xc123,
            segment: 0,
            traffic_class: 0,
            hop_limit: 64,
        };
        Raw { node, qpn, now, meta }
    }

    /// A header toward the engine.
    pub fn bth(&self, opcode: Opcode, psn: u32) -> Bth {
        let mut bth = Bth::new(opcode, Qpn::new(self.qpn).unwrap(), Psn::new(psn));
        bth.ack_request = true;
        bth
    }

    pub fn headers(&self, opcode: Opcode, psn: u32) -> Headers {
        Headers::new(self.bth(opcode, psn))
    }

    pub fn with_reth(&self, opcode: Opcode, psn: u32, remote: RemoteAddr, dma_length: u32) -> Headers {
        let mut headers = self.headers(opcode, psn);
        headers.reth = Some(Reth {
            va: remote.addr,
            rkey: RKey(remote.rkey.0),
            dma_length,
        });
        headers
    }

    /// The packet's bytes, sealed.
    pub fn packet(&self, mut headers: Headers, payload: &[u8]) -> Vec<u8> {
        headers.bth.pad = pad_len(payload.len());
        self.packet_as_is(headers, payload)
    }

    /// The same with the pad count that the header says.
    pub fn packet_as_is(&self, headers: Headers, payload: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; headers.len()];
        headers.emit(&mut bytes).unwrap();
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len() + usize::from(headers.bth.pad) + ICRC_LEN, 0);
        self.seal(&mut bytes);
        bytes
    }

    pub fn seal(&self, bytes: &mut [u8]) {
        let flow = roce_wire::icrc::Flow {
            src: self.meta.src,
            dst: self.meta.dst,
            source_port: self.meta.source_port,
            dest_port: roce_wire::ROCE_V2_PORT,
        };
        roce_wire::icrc::seal(&flow, 0, bytes);
    }

    pub fn inject_bytes(&mut self, bytes: &[u8]) {
        self.node.engine.handle_datagram(self.now, &self.meta, bytes);
    }

    pub fn inject(&mut self, headers: Headers, payload: &[u8]) {
        let bytes = self.packet(headers, payload);
        self.inject_bytes(&bytes);
    }

    /// A request without extension headers: SENDs, and the later packets of WRITEs.
    pub fn plain(&mut self, opcode: Opcode, psn: u32, payload: &[u8]) {
        let headers = self.headers(opcode, psn);
        self.inject(headers, payload);
    }

    pub fn with_imm(&mut self, opcode: Opcode, psn: u32, imm: u32, payload: &[u8]) {
        let mut headers = self.headers(opcode, psn);
        headers.immediate = Some(ImmDt(imm.to_be_bytes()));
        self.inject(headers, payload);
    }

    /// The first or only packet of a WRITE.
    pub fn write(&mut self, opcode: Opcode, psn: u32, remote: RemoteAddr, dma_length: u32, payload: &[u8]) {
        let mut headers = self.with_reth(opcode, psn, remote, dma_length);
        headers.immediate = Some(ImmDt([1, 2, 3, 4]));
        self.inject(headers, payload);
    }

    pub fn read_request(&mut self, psn: u32, remote: RemoteAddr, dma_length: u32) {
        let headers = self.with_reth(Opcode::RC_READ_REQUEST, psn, remote, dma_length);
        self.inject(headers, &[]);
    }

    pub fn atomic(&mut self, opcode: Opcode, psn: u32, remote: RemoteAddr, swap_or_add: u64, compare: u64) {
        let mut headers = self.headers(opcode, psn);
        headers.atomic_eth = Some(AtomicEth {
            va: remote.addr,
            rkey: RKey(remote.rkey.0),
            swap_or_add,
            compare,
        });
        self.inject(headers, &[]);
    }

    /// An acknowledgement or a NAK.
    pub fn acknowledge(&mut self, psn: u32, syndrome: Syndrome, msn: u32) {
        let mut headers = self.headers(Opcode::RC_ACKNOWLEDGE, psn);
        headers.bth.ack_request = false;
        headers.aeth = Some(Aeth {
            syndrome,
            msn: Msn::new(msn),
        });
        self.inject(headers, &[]);
    }

    pub fn nak(&mut self, psn: u32, code: NakCode) {
        self.acknowledge(psn, Syndrome::Nak(code), 0);
    }

    pub fn read_response(&mut self, opcode: Opcode, psn: u32, payload: &[u8]) {
        let mut headers = self.headers(opcode, psn);
        headers.bth.ack_request = false;
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(1),
        });
        self.inject(headers, payload);
    }

    pub fn atomic_response(&mut self, psn: u32, original: u64) {
        let mut headers = self.headers(Opcode::RC_ATOMIC_ACKNOWLEDGE, psn);
        headers.bth.ack_request = false;
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(1),
        });
        headers.atomic_ack = Some(AtomicAckEth { original });
        self.inject(headers, &[]);
    }

    /// What the engine sends now. Every packet is checked for what all packets have in common.
    pub fn sent(&mut self) -> Vec<Sent> {
        self.sent_with(Acks::Flush)
    }

    pub fn sent_with(&mut self, acks: Acks) -> Vec<Sent> {
        let mut all = Vec::new();
        for (meta, bytes) in self.node.transmit(self.now, acks) {
            assert_eq!((meta.src, meta.dst), (self.meta.dst, self.meta.src));
            assert!(meta.source_port >= 0xc000);
            let packet = roce_wire::parse(&bytes).unwrap();
            let bth = packet.headers.bth;
            assert_eq!(bth.dest_qp.value(), PEER_QPN);
            assert!(bth.migrated && !bth.fecn);
            assert_eq!(bth.pkey.0, 0xffff);
            assert_eq!(bth.pad, pad_len(packet.payload.len()));
            assert!(packet.pad.iter().all(|byte| *byte == 0));
            assert_eq!(bytes[8] & 0x7f, 0, "reserved bits");
            all.push(Sent {
                headers: packet.headers,
                payload: packet.payload.to_vec(),
                bytes: bytes.clone(),
            });
        }
        all
    }

    /// The one packet that the engine sends now.
    pub fn sent_one(&mut self) -> Sent {
        let mut sent = self.sent();
        assert_eq!(sent.len(), 1, "{sent:?}");
        sent.remove(0)
    }

    pub fn assert_silent(&mut self) {
        assert_eq!(self.sent(), []);
    }

    /// Let time pass; deadlines on the way are served when they are due.
    pub fn pass(&mut self, nanos: u64) -> Vec<(Time, Sent)> {
        let end = self.now + nanos;
        let mut all = Vec::new();
        while let Some(due) = self.node.engine.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.node.engine.handle_timeout(self.now);
            let now = self.now;
            all.extend(self.sent().into_iter().map(|sent| (now, sent)));
        }
        self.now = end;
        all
    }

    pub fn state(&self) -> QpState {
        self.node.state(self.qpn)
    }
}
