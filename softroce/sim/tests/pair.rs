//! Two connected ends in a world.

use std::net::{IpAddr, Ipv4Addr};

use softroce::Softroce;
use softroce_sim::{Stuck, World};
use verbs_api::{
    Access, AddressVector, Buffer, CompletionQueue, Connection, Context, CqInit, Gid, MemoryRegion,
    ProtectionDomain, Provider, QpInit, QpType, QueuePair, RemoteAddr, SendOp, SendWr, Sge, Wc,
};

pub type Cq = <Softroce as Provider>::Cq;

pub const SECOND: u64 = 1_000_000_000;
/// Bytes of each end's region.
pub const LENGTH: usize = 20_000;
/// The first PSN that each end sends.
pub const FIRST_PSN: u32 = 100;

/// One end: a queue pair and a region.
pub struct End {
    pub qp: <Softroce as Provider>::Qp,
    pub cq: Cq,
    pub mr: <Softroce as Provider>::Mr,
    pub buffer: Buffer,
    pub gid: Gid,
    pub context: <Softroce as Provider>::Context,
}

impl End {
    fn new(provider: &Softroce, name: &str) -> End {
        let context = provider.open(name).expect("the device is there");
        let gid = context.query_gid(1, 0).expect("it has a GID").gid;
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(&CqInit::new(64)).expect("a completion queue");
        let qp = pd.create_qp(&QpInit::rc(&cq)).expect("a queue pair");
        let buffer = Buffer::new(LENGTH);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let mr = pd.reg_mr(&buffer, access).expect("a region");
        End {
            qp,
            cq,
            mr,
            buffer,
            gid,
            context,
        }
    }

    fn connect(&self, peer: &End) {
        let to_peer = AddressVector {
            dgid: Some(peer.gid),
            port: 1,
            hop_limit: 64,
            ..AddressVector::default()
        };
        let connection = Connection {
            access: Access::REMOTE_WRITE | Access::REMOTE_READ,
            sq_psn: FIRST_PSN,
            rq_psn: FIRST_PSN,
            timeout: 12,
            min_rnr_timer: 1,
            ..Connection::new(QpType::Rc, to_peer, peer.qp.qpn())
        };
        connection.make(&self.qp).expect("legal transitions");
    }

    /// The first bytes of the region.
    pub fn sge(&self, length: usize) -> [Sge; 1] {
        [Sge {
            addr: self.mr.addr(),
            length: length as u32,
            lkey: self.mr.lkey(),
        }]
    }

    /// The region, for the peer.
    pub fn remote(&self) -> RemoteAddr {
        RemoteAddr {
            addr: self.mr.addr(),
            rkey: self.mr.rkey(),
        }
    }
}

/// Two connected ends, and their world.
pub struct Pair {
    pub world: World,
    pub left: End,
    pub right: End,
}

impl Pair {
    /// In a world of this seed.
    pub fn in_world(seed: u64) -> Pair {
        let mut world = World::new(seed);
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let devices = vec![
            world.add_device("sim0", address(1)),
            world.add_device("sim1", address(2)),
        ];
        let provider = Softroce::from_devices(devices);
        let (left, right) = (End::new(&provider, "sim0"), End::new(&provider, "sim1"));
        left.connect(&right);
        right.connect(&left);
        Pair { world, left, right }
    }

    /// Post a WRITE of so many bytes from left to right.
    pub fn post_write(&self, length: usize) {
        let (remote, sges) = (self.right.remote(), self.left.sge(length));
        let write = SendWr::new(1, SendOp::Write { remote, imm: None }, &sges);
        self.left.qp.post_send(&[write]).expect("a post");
    }
}

/// What completes next, within 100 s.
pub fn completion(world: &mut World, cq: &Cq) -> Result<Wc, Stuck> {
    let mut wc = [Wc::default()];
    world.run_until(100 * SECOND, || cq.poll(&mut wc).expect("a poll") == 1)?;
    Ok(wc[0])
}
