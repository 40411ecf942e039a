//! One program of a conversation over RDMA CM.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use softroce::faults::Rules;
use softroce::{Ah, Cm, CmId, Context, Cq, Mr, Options, Pd, Qp, Softroce};
use verbs_api::{
    Access, Buffer, CmEvent, CmEventKind, CmId as _, CmPortSpace, CompletionQueue, ConnectionManager,
    ConnectionParameters, Context as _, CqInit, DatagramPeer, MemoryRegion, ProtectionDomain, QpInit, QpType,
    QueuePair, RecvWr, SendFlags, SendOp, SendWr, Sge, Wc, WcStatus,
};

const PATIENCE: Duration = Duration::from_secs(10);
const BYTES: usize = 4096;
/// In front of what a datagram brings.
const GRH_BYTES: usize = 40;

pub use crate::support::fresh_address;

/// A provider with an event channel.
pub struct Side {
    pub provider: Softroce,
    pub cm: Cm,
}

impl Side {
    pub fn on(address: IpAddr) -> Side {
        Side::on_all(&[address])
    }

    pub fn on_all(addresses: &[IpAddr]) -> Side {
        Side::with(Options {
            addresses: addresses.to_vec(),
            ..Options::default()
        })
    }

    /// One whose devices can be given fault rules.
    pub fn that_may_fail(address: IpAddr) -> Side {
        Side::with(Options {
            addresses: vec![address],
            faults: Some(Arc::new(Rules::default())),
            ..Options::default()
        })
    }

    fn with(options: Options) -> Side {
        let provider = Softroce::new(options).unwrap();
        let cm = Cm::new(&provider).unwrap();
        Side { provider, cm }
    }

    pub fn id(&self) -> CmId {
        self.cm.create_id(CmPortSpace::Tcp, 0).unwrap()
    }

    pub fn listen(&self, address: SocketAddr) -> CmId {
        let id = self.id();
        id.bind_addr(address).unwrap();
        id.listen(16).unwrap();
        id
    }

    /// The next event, which must be of this kind.
    pub fn expect(&self, kind: CmEventKind) -> CmEvent<Cm> {
        let event = self.cm.wait(Some(PATIENCE)).unwrap();
        let event = event.unwrap_or_else(|| panic!("{kind:?} does not come"));
        assert_eq!(event.kind, kind, "status {}", event.status);
        event
    }

    pub fn resolve(&self, id: CmId, to: SocketAddr) -> CmId {
        id.resolve_addr(None, to, PATIENCE).unwrap();
        self.expect(CmEventKind::AddrResolved);
        id.resolve_route(PATIENCE).unwrap();
        self.expect(CmEventKind::RouteResolved);
        id
    }

    pub fn resolved(&self, to: SocketAddr) -> CmId {
        self.resolve(self.id(), to)
    }
}

/// Usual parameters with private data.
pub fn offer(private_data: &[u8]) -> ConnectionParameters<'_> {
    ConnectionParameters {
        private_data,
        responder_resources: 1,
        initiator_depth: 1,
        retry_count: 7,
        rnr_retry_count: 7,
        ..ConnectionParameters::default()
    }
}

/// Connect two sides of which the second listens there.
pub fn connect(client: &Side, server: &Side, to: SocketAddr) -> (End, End) {
    let a = End::new(client.resolved(to));
    a.id.connect(&offer(&[])).unwrap();
    let request = server.expect(CmEventKind::ConnectRequest).request.take().unwrap();
    let b = End::new(request);
    b.id.accept(None).unwrap();
    client.expect(CmEventKind::Established);
    server.expect(CmEventKind::Established);
    (a, b)
}

/// An id with a queue pair.
pub struct End {
    pub id: CmId,
    pub qp: Qp,
    cq: Cq,
    mr: Mr,
    buffer: Buffer,
    pd: Pd,
    context: Context,
}

impl End {
    /// With the queue pair bound.
    pub fn new(id: CmId) -> End {
        let end = End::of_type(id, QpType::Rc);
        end.id.bind_qp(&end.qp).unwrap();
        end
    }

    pub fn unbound(id: CmId) -> End {
        End::of_type(id, QpType::Rc)
    }

    pub fn datagram(id: CmId) -> End {
        let end = End::of_type(id, QpType::Ud);
        end.id.bind_qp(&end.qp).unwrap();
        end
    }

    fn of_type(id: CmId, qp_type: QpType) -> End {
        let context = id.context().expect("the id has a device");
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(&CqInit::new(16)).unwrap();
        let init = QpInit {
            qp_type,
            ..QpInit::rc(&cq)
        };
        let qp = pd.create_qp(&init).unwrap();
        let buffer = Buffer::new(BYTES);
        let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE).unwrap();
        End {
            id,
            qp,
            cq,
            mr,
            buffer,
            pd,
            context,
        }
    }

    fn sge(&self, length: usize) -> [Sge; 1] {
        [Sge {
            addr: self.buffer.addr(),
            length: length as u32,
            lkey: self.mr.lkey(),
        }]
    }

    pub fn completion(&self) -> Wc {
        let deadline = Instant::now() + PATIENCE;
        let mut wc = [Wc::default()];
        while self.cq.poll(&mut wc).unwrap() == 0 {
            assert!(Instant::now() < deadline, "no completion");
        }
        assert_eq!(wc[0].status, WcStatus::Success);
        wc[0]
    }

    fn receive(&self) {
        let sges = self.sge(BYTES);
        self.qp
            .post_recv(&[RecvWr {
                wr_id: 0,
                sges: &sges,
            }])
            .unwrap();
    }

    fn send(&self, op: SendOp<'_, Softroce>, bytes: &[u8]) {
        self.post(op, bytes);
        self.completion();
    }

    fn post(&self, op: SendOp<'_, Softroce>, bytes: &[u8]) {
        self.buffer.write(0, bytes);
        let sges = self.sge(bytes.len());
        let mut request = SendWr::new(0, op, &sges);
        request.flags = SendFlags::SIGNALED;
        self.qp.post_send(&[request]).unwrap();
    }

    pub fn receive_some(&self, count: usize) {
        for _ in 0..count {
            self.receive();
        }
    }

    /// Send a message to whoever is there, which must acknowledge it.
    pub fn say(&self, bytes: &[u8]) {
        self.send(SendOp::Send { imm: None }, bytes);
    }

    /// The same without waiting for that.
    pub fn begin_to_say(&self, bytes: &[u8]) {
        self.post(SendOp::Send { imm: None }, bytes);
    }

    /// Packets that the device has sent.
    pub fn sent_packets(&self) -> u64 {
        self.context.device().counters().engine.sent_pkts
    }

    /// Send a message to the other, which must get it.
    pub fn talk(&mut self, to: &mut End, bytes: &[u8]) {
        to.receive();
        self.send(SendOp::Send { imm: None }, bytes);
        let length = to.completion().byte_len as usize;
        assert_eq!(to.buffer.to_vec(0..length), bytes);
    }

    /// Send a datagram to where the other is found.
    pub fn send_datagram(&self, to: &End, peer: &DatagramPeer, bytes: &[u8]) {
        to.receive();
        let ah: Ah = self.pd.create_ah(&peer.av).unwrap();
        let op = SendOp::SendTo {
            ah: &ah,
            remote_qpn: peer.qp_num,
            remote_qkey: peer.qkey,
            imm: None,
        };
        self.send(op, bytes);
        let length = to.completion().byte_len as usize;
        assert_eq!(to.buffer.to_vec(GRH_BYTES..length), bytes);
    }
}
