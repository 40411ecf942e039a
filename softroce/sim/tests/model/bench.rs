//! One queue pair of the engine in virtual time, whose peer is played.

use std::net::{IpAddr, Ipv4Addr};

use roce_wire::{Aeth, Bth, Headers, ICRC_LEN, Msn, Opcode, Psn, Qpn, Syndrome, pad_len};
use softroce::Softroce;
use softroce_sim::World;
use verbs_api::{
    Access, AddressVector, Buffer, CompletionQueue, Connection, Context, CqInit, Gid, Mtu, ProtectionDomain,
    Provider, QpCap, QpInit, QpType, QueuePair, Wc, WcStatus,
};

/// Bytes of the region.
pub const REGION: usize = 4096;
/// The path MTU.
pub const MTU: usize = 256;
/// Enough for a packet to arrive and be answered, ns.
const A_WHILE: u64 = 100_000;
const PEER_QPN: u32 = 0xf42;

/// A packet that the engine has sent, as far as the models predict it.
#[derive(Clone, PartialEq, Eq)]
pub struct Sent {
    pub opcode: Opcode,
    pub psn: u32,
    /// Syndrome and MSN. Credits are the engine's own affair.
    pub aeth: Option<(Syndrome, u32)>,
    pub original: Option<u64>,
    pub payload: Vec<u8>,
}

impl std::fmt::Debug for Sent {
    /// One short line: a schedule has many packets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.opcode, self.psn)?;
        if let Some((syndrome, msn)) = self.aeth {
            write!(f, " {syndrome} msn {msn}")?;
        }
        if let Some(original) = self.original {
            write!(f, " original {original}")?;
        }
        let sum: u32 = self.payload.iter().map(|byte| u32::from(*byte)).sum();
        write!(f, " {} bytes (sum {sum})", self.payload.len())
    }
}

/// How a request ended: its number and status.
pub type Ended = (u64, WcStatus);

pub struct Bench {
    // The queue pair goes before what it uses.
    pub qp: <Softroce as Provider>::Qp,
    cq: <Softroce as Provider>::Cq,
    pub mr: <Softroce as Provider>::Mr,
    pub buffer: Buffer,
    world: World,
    next_sent: u64,
}

/// Settings of the queue pair; it never times out.
pub struct Settings {
    pub sq_psn: u32,
    pub rq_psn: u32,
    pub rd_atomic: u8,
}

impl Bench {
    pub fn new(settings: &Settings) -> Bench {
        let mut world = World::new(1);
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let devices = vec![
            world.add_device("dut", address(1)),
            world.add_device("peer", address(2)),
        ];
        let context = Softroce::from_devices(devices).open("dut").unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(&CqInit::new(256)).unwrap();
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 64,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let qp = pd
            .create_qp(&QpInit {
                cap,
                ..QpInit::rc(&cq)
            })
            .unwrap();
        let buffer = Buffer::new(REGION);
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE | access).unwrap();
        let peer = AddressVector {
            dgid: Some(Gid::from(address(2))),
            port: 1,
            hop_limit: 64,
            ..AddressVector::default()
        };
        let connection = Connection {
            access,
            path_mtu: Mtu::Mtu256,
            sq_psn: settings.sq_psn,
            rq_psn: settings.rq_psn,
            timeout: 0,
            max_rd_atomic: settings.rd_atomic,
            max_dest_rd_atomic: settings.rd_atomic,
            ..Connection::new(QpType::Rc, peer, PEER_QPN)
        };
        connection.make(&qp).unwrap();
        Bench {
            qp,
            cq,
            mr,
            buffer,
            world,
            next_sent: 0,
        }
    }

    /// Send a packet from the played peer.
    pub fn inject(&mut self, opcode: Opcode, psn: u32, payload: &[u8], fill: impl FnOnce(&mut Headers)) {
        let info = opcode.info().unwrap();
        let mut headers = Headers::new(Bth {
            pad: pad_len(payload.len()),
            ack_request: info.is_request() && info.position.ends_message(),
            ..Bth::new(opcode, Qpn::new(self.qp.qpn()).unwrap(), Psn::new(psn))
        });
        fill(&mut headers);
        let length = headers.len();
        let mut bytes = vec![0; length + payload.len() + usize::from(headers.bth.pad) + ICRC_LEN];
        headers.emit(&mut bytes).unwrap();
        bytes[length..length + payload.len()].copy_from_slice(payload);
        self.world.inject_sealed(1, 0, &bytes);
    }

    /// Let everything happen, and tell what was sent and what has completed.
    pub fn settle(&mut self) -> (Vec<Sent>, Vec<Ended>) {
        self.world.run_for(A_WHILE);
        let (sent, next) = self.world.sent_since(self.next_sent);
        self.next_sent = next;
        let sent = sent.iter().filter(|sent| sent.from == 0).map(|sent| {
            let packet = roce_wire::parse(&sent.bytes).unwrap();
            let headers = packet.headers;
            Sent {
                opcode: headers.bth.opcode,
                psn: headers.bth.psn.value(),
                aeth: headers
                    .aeth
                    .map(|aeth| (without_credits(aeth.syndrome), aeth.msn.value())),
                original: headers.atomic_ack.map(|ack| ack.original),
                payload: packet.payload.to_vec(),
            }
        });
        let sent = sent.collect();
        let mut ended = Vec::new();
        let mut wc = [Wc::default()];
        while self.cq.poll(&mut wc).unwrap() == 1 {
            ended.push((wc[0].wr_id, wc[0].status));
        }
        (sent, ended)
    }
}

fn without_credits(syndrome: Syndrome) -> Syndrome {
    match syndrome {
        Syndrome::Ack(_) => Syndrome::ACK,
        other => other,
    }
}

/// An AETH.
pub fn aeth(syndrome: Syndrome, msn: u32) -> Option<Aeth> {
    Some(Aeth {
        syndrome,
        msn: Msn::new(msn),
    })
}

/// The payload of the packet with this PSN.
pub fn payload(psn: u32, length: usize) -> Vec<u8> {
    (0..length)
        .map(|n| (psn as usize * 31 + n * 7 + 1) as u8)
        .collect()
}

/// A PSN so many further.
pub fn step(psn: u32, by: u32) -> u32 {
    psn.wrapping_add(by) & 0xff_ffff
}
