//! Two ends of a reliable connection, and the usual moves on them.
#![allow(dead_code)] // Not every test binary makes every move.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use softroce::{Channel, Context, Cq, Mr, Options, Pd, Qp, Softroce};
use verbs_api::{
    Access, AddressVector, Buffer, CompletionQueue, Connection, Context as _, CqInit, Gid, MemoryRegion,
    ProtectionDomain, Provider, QpInit, QpType, QueuePair, RecvWr, RemoteAddr, SendOp, SendWr, Sge, Wc,
    WcStatus,
};

/// An address that no other test of this machine uses now, most likely.
pub fn fresh_address() -> IpAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut bits = std::process::id().wrapping_mul(0x9e37_79b9) ^ clock_nanos().wrapping_mul(0x85eb_ca6b);
    bits = bits.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed).wrapping_mul(0x0001_0203));
    let [_, b, c, d] = bits.to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, b | 1, c, d.clamp(2, 250)))
}

fn clock_nanos() -> u32 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |d| d.subsec_nanos())
}

/// A device on an address of its own.
pub fn open() -> Context {
    let options = Options {
        addresses: vec![fresh_address()],
        ..Options::default()
    };
    Softroce::new(options).unwrap().open("softroce0").unwrap()
}

/// One end.
pub struct End {
    pub qp: Qp,
    pub cq: Cq,
    pub mr: Mr,
    pub buffer: Buffer,
    pub pd: Pd,
    pub context: Context,
}

/// Bytes registered at each end.
pub const BUFFER_BYTES: usize = 1 << 20;

impl End {
    pub fn new(context: Context, channel: Option<&Channel>) -> End {
        let pd = context.alloc_pd().unwrap();
        let cq = context
            .create_cq(&CqInit {
                channel,
                cookie: 77,
                ..CqInit::new(1024)
            })
            .unwrap();
        let mut init = QpInit::rc(&cq);
        init.cap.max_send_wr = 256;
        init.cap.max_recv_wr = 256;
        let qp = pd.create_qp(&init).unwrap();
        let buffer = Buffer::new(BUFFER_BYTES);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(&buffer, access).unwrap();
        End {
            qp,
            cq,
            mr,
            buffer,
            pd,
            context,
        }
    }

    pub fn gid(&self) -> Gid {
        self.context.query_gid(1, 0).unwrap().gid
    }

    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            addr: self.buffer.addr() + offset as u64,
            length: length as u32,
            lkey: self.mr.lkey(),
        }
    }

    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.mr.addr() + offset as u64,
            rkey: self.mr.rkey(),
        }
    }

    pub fn connect(&self, peer_gid: Gid, peer_qpn: u32) {
        let to_peer = AddressVector {
            dgid: Some(peer_gid),
            port: 1,
            ..AddressVector::default()
        };
        let connection = Connection {
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            min_rnr_timer: 1,
            max_rd_atomic: 16,
            max_dest_rd_atomic: 16,
            ..Connection::new(QpType::Rc, to_peer, peer_qpn)
        };
        connection.make(&self.qp).unwrap();
    }

    pub fn recv(&self, wr_id: u64, offset: usize, length: usize) {
        self.qp
            .post_recv(&[RecvWr {
                wr_id,
                sges: &[self.sge(offset, length)],
            }])
            .unwrap();
    }

    pub fn send(&self, wr_id: u64, offset: usize, length: usize) {
        self.post(wr_id, SendOp::Send { imm: None }, offset, length);
    }

    pub fn post(&self, wr_id: u64, op: SendOp<'_, Softroce>, offset: usize, length: usize) {
        let sges = [self.sge(offset, length)];
        self.qp.post_send(&[SendWr::new(wr_id, op, &sges)]).unwrap();
    }

    /// Poll until a completion comes. Panics after ten seconds.
    pub fn completion(&self) -> Wc {
        let start = Instant::now();
        let mut wc = [Wc::default()];
        loop {
            if self.cq.poll(&mut wc).unwrap() == 1 {
                return wc[0];
            }
            assert!(
                start.elapsed() < Duration::from_secs(10),
                "no completion within 10 s"
            );
        }
    }

    /// The next completion, which must be that of `wr_id` and successful.
    pub fn success(&self, wr_id: u64) -> Wc {
        let wc = self.completion();
        assert_eq!((wc.wr_id, wc.status), (wr_id, WcStatus::Success));
        wc
    }
}

/// Two connected ends.
pub fn connected(a: Context, b: Context) -> (End, End) {
    let (a, b) = (End::new(a, None), End::new(b, None));
    join(&a, &b);
    (a, b)
}

/// Connect two ends with each other.
pub fn join(a: &End, b: &End) {
    a.connect(b.gid(), b.qp.qpn());
    b.connect(a.gid(), a.qp.qpn());
}

/// Two connected ends over UDP, each on an address of its own.
pub fn over_udp() -> (End, End) {
    connected(open(), open())
}

/// Recognisable bytes.
pub fn pattern(length: usize, seed: u8) -> Vec<u8> {
    (0..length)
        .map(|i| {
            (i as u8)
                .wrapping_mul(31)
                .wrapping_add((i >> 8) as u8)
                .wrapping_add(seed)
        })
        .collect()
}
