//! One end of a conversation: a queue pair with a completion queue and a buffer.

use softroce::Softroce;
use verbs_api::{
    Access, AddressVector, Buffer, Connection, Context, CqInit, MemoryRegion, ProtectionDomain, Provider,
    QpCap, QpInit, QpType, QueuePair, Sge,
};

use super::super::plan::Setup;
use super::GUARD_BYTE;

#[derive(Debug)]
pub(super) struct End {
    pub(super) qp: <Softroce as Provider>::Qp,
    pub(super) cq: <Softroce as Provider>::Cq,
    pub(super) mr: <Softroce as Provider>::Mr,
    pub(super) buffer: Buffer,
    address: AddressVector,
}

impl End {
    /// On the device of this name.
    pub(super) fn open(provider: &Softroce, name: &str, length: usize, depth: usize) -> End {
        let context = provider.open(name).expect("the device is there");
        let gid = context.query_gid(1, 0).expect("it has a GID");
        let pd = context.alloc_pd().expect("a domain");
        let cq = context.create_cq(&CqInit::new(512)).expect("a completion queue");
        let cap = QpCap {
            max_send_wr: depth as u32,
            max_recv_wr: 128,
            max_send_sge: 2,
            max_recv_sge: 2,
            max_inline_data: 0,
        };
        let qp = pd
            .create_qp(&QpInit {
                cap,
                ..QpInit::rc(&cq)
            })
            .expect("a queue pair");
        let buffer = Buffer::new(length);
        buffer.fill(0..length, GUARD_BYTE);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(&buffer, access).expect("a region");
        let address = AddressVector {
            dgid: Some(gid.gid),
            port: gid.port,
            hop_limit: 64,
            ..AddressVector::default()
        };
        End {
            qp,
            cq,
            mr,
            buffer,
            address,
        }
    }

    /// Bytes of the buffer.
    pub(super) fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            addr: self.mr.addr() + offset as u64,
            length: length as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// Connect to a peer that does likewise.
    pub(super) fn connect(&self, peer: &End, setup: &Setup, [own_psn, peer_psn]: [u32; 2]) {
        let connection = Connection {
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            path_mtu: setup.mtu(),
            sq_psn: own_psn,
            rq_psn: peer_psn,
            timeout: setup.timeout,
            retry_cnt: setup.retry_cnt,
            rnr_retry: setup.rnr_retry,
            min_rnr_timer: setup.min_rnr_timer,
            max_rd_atomic: setup.rd_atomic,
            max_dest_rd_atomic: setup.rd_atomic,
            ..Connection::new(QpType::Rc, peer.address, peer.qp.qpn())
        };
        connection.make(&self.qp).expect("legal transitions");
    }
}
