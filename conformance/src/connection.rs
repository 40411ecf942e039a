//! What cases of connection management are made with.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use roce_wire::cm::Message;
use roce_wire::mad::{GSI_QKEY, MAD_LEN};
use roce_wire::{Bth, Deth, Headers, Opcode, PKey, Psn, Qpn};
use verbs_api::{
    Access, Buffer, CmEvent, CmEventKind, CmId, CmPortSpace, CompletionQueue, ConnectionManager,
    ConnectionParameters, Context, CqInit, MemoryRegion, ProtectionDomain, Provider, QpInit, QpType,
    QueuePair, RecvWr, SendFlags, SendOp, SendWr, Sge, WcStatus,
};

use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Family, Passing, Side, Testbed};

/// An id of the bed's connection manager.
pub type IdOf<B> = <<B as Testbed>::Cm as ConnectionManager>::Id;
/// An event of it.
pub type EventOf<B> = CmEvent<<B as Testbed>::Cm>;

/// Bytes of an end's buffer.
const BUFFER_BYTES: usize = 4096;
/// As long as a request of RDMA CM is repeated, and a little more.
const ALL_REPETITIONS: Duration = Duration::from_secs(80);
/// No time passes in resolution here.
const AT_ONCE: Duration = Duration::from_secs(1);

/// One program: an event channel on one end's device.
pub struct Party<B: Testbed> {
    /// The channel.
    pub cm: B::Cm,
    /// Its address.
    pub address: IpAddr,
    /// The network interface behind it.
    interface_index: u32,
}

impl<B: Testbed> Party<B> {
    /// A port on its address.
    pub fn at(&self, port: u16) -> SocketAddr {
        match self.address {
            IpAddr::V6(ip) if ip.is_unicast_link_local() => {
                SocketAddrV6::new(ip, port, 0, self.interface_index).into()
            }
            address => SocketAddr::new(address, port),
        }
    }
}

/// An id with a queue pair on it.
pub struct CmEnd<B: Testbed> {
    /// The id.
    pub id: IdOf<B>,
    /// The queue pair.
    pub qp: <B::P as Provider>::Qp,
    /// Where it completes.
    pub cq: <B::P as Provider>::Cq,
    mr: <B::P as Provider>::Mr,
    buffer: Buffer,
    /// The domain of it all.
    pub pd: <B::P as Provider>::Pd,
    _context: <B::P as Provider>::Context,
}

/// Two programs, left and right; the listener of the right one, and an end of the left one that has found it and may ask.
pub type Meeting<B> = ([Party<B>; 2], IdOf<B>, CmEnd<B>);

/// The address of a listener.
pub fn address_of<Id: CmId>(listener: &Id) -> Result<SocketAddr, Failure> {
    listener
        .local_addr()
        .ok_or_else(|| Failure::new("a listener without an address"))
}

/// Usual parameters.
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

impl<B: Testbed> Scene<B> {
    /// A program on one end.
    pub fn party(&self, side: Side, family: Family) -> Result<Party<B>, Failure> {
        let (port, index) = self.bed.gid_index(side, family);
        let entry = self.bed.device(side, family).query_gid(port, index)?;
        Ok(Party {
            cm: self.bed.connection_manager()?,
            address: entry.gid.ip(),
            interface_index: entry.interface_index,
        })
    }

    /// Both programs.
    pub fn parties(&self) -> Result<[Party<B>; 2], Failure> {
        Ok([
            self.party(Side::Left, Family::Usual)?,
            self.party(Side::Right, Family::Usual)?,
        ])
    }

    /// The next event of a program, whatever it is.
    pub fn any_event(&mut self, party: &Party<B>) -> Result<EventOf<B>, Failure> {
        // A request of which all repetitions but the last are lost still arrives. In virtual time nobody waits for that.
        let patience = self.bed.patience();
        let patience = if self.is_real_time() {
            patience
        } else {
            patience.max(ALL_REPETITIONS)
        };
        self.until_within(patience, "an event", |_| {
            Ok(party.cm.wait(Some(Duration::ZERO))?)
        })
    }

    /// The next event of a program, which must be of this kind.
    pub fn cm_event(&mut self, party: &Party<B>, kind: CmEventKind) -> Result<EventOf<B>, Failure> {
        let event = self
            .any_event(party)
            .map_err(|failure| failure.during(format!("waiting for {kind:?}")))?;
        crate::same!(event.kind, kind, "event (status {})", event.status);
        Ok(event)
    }

    /// A listener on a port of a program's address; 0 is any.
    pub fn listener(&self, party: &Party<B>, space: CmPortSpace, port: u16) -> Result<IdOf<B>, Failure> {
        let id = party.cm.create_id(space, 0)?;
        id.bind_addr(party.at(port))?;
        id.listen(0)?;
        Ok(id)
    }

    /// An id of `from` that has resolved an address.
    pub fn resolved(
        &mut self,
        from: &Party<B>,
        space: CmPortSpace,
        to: SocketAddr,
    ) -> Result<IdOf<B>, Failure> {
        let id = from.cm.create_id(space, 0)?;
        self.resolve(from, id, to)
    }

    /// Resolve an address with an id.
    pub fn resolve(&mut self, from: &Party<B>, id: IdOf<B>, to: SocketAddr) -> Result<IdOf<B>, Failure> {
        let local = match id.local_addr() {
            Some(_) => None,
            None => Some(from.at(0)),
        };
        id.resolve_addr(local, to, AT_ONCE)?;
        self.cm_event(from, CmEventKind::AddrResolved)?;
        id.resolve_route(AT_ONCE)?;
        self.cm_event(from, CmEventKind::RouteResolved)?;
        Ok(id)
    }

    /// Two programs about to connect queue pairs of this service, on any port.
    pub fn meeting(&mut self, qp_type: QpType) -> Result<Meeting<B>, Failure> {
        let space = match qp_type {
            QpType::Ud => CmPortSpace::Udp,
            _ => CmPortSpace::Tcp,
        };
        let parties = self.parties()?;
        let listener = self.listener(&parties[1], space, 0)?;
        let to = address_of(&listener)?;
        let left = CmEnd::<B>::new(self.resolved(&parties[0], space, to)?, qp_type)?;
        Ok((parties, listener, left))
    }

    /// Two connected ends: the left program asks, the right one, which listens there, accepts.
    pub fn joined(&mut self, parties: &[Party<B>; 2], listener: &IdOf<B>) -> Result<[CmEnd<B>; 2], Failure> {
        let to = address_of(listener)?;
        let left = CmEnd::<B>::new(self.resolved(&parties[0], CmPortSpace::Tcp, to)?, QpType::Rc)?;
        left.id.connect(&offer(&[]))?;
        let right = self.accepted(&parties[1])?;
        self.cm_event(&parties[0], CmEventKind::Established)?;
        self.cm_event(&parties[1], CmEventKind::Established)?;
        Ok([left, right])
    }

    /// Accept the next request.
    pub fn accepted(&mut self, party: &Party<B>) -> Result<CmEnd<B>, Failure> {
        let end = self.requested(party)?;
        end.id.accept(None)?;
        Ok(end)
    }

    /// The next request, with a queue pair.
    pub fn requested(&mut self, party: &Party<B>) -> Result<CmEnd<B>, Failure> {
        let event = self.cm_event(party, CmEventKind::ConnectRequest)?;
        CmEnd::<B>::requested(event, QpType::Rc)
    }

    /// Send a message from one end to the other, and see that it arrives.
    pub fn carries(&mut self, from: &CmEnd<B>, to: &CmEnd<B>, bytes: &[u8]) -> CaseResult {
        to.receive()?;
        from.send(SendOp::Send { imm: None }, bytes)?;
        self.success(&from.cq)?;
        let wc = self.success(&to.cq)?;
        crate::same!(to.buffer.to_vec(0..wc.byte_len as usize), bytes, "the message");
        Ok(())
    }

    /// Messages of connection management that have passed since the last look.
    pub fn cm_messages(&mut self) -> Vec<(Passing, Message)> {
        let trace = self.network().take_trace();
        let read = |passing: Passing| {
            let message = message_of(&passing)?;
            Some((passing, message))
        };
        trace.into_iter().filter_map(read).collect()
    }

    /// Forge a message to one end, as if its peer had sent it.
    pub fn forge(&mut self, to: Side, message: &Message) {
        self.forge_mad(to, &message.to_mad(0x5eed));
    }

    /// Forge a management datagram.
    pub fn forge_mad(&mut self, to: Side, mad: &[u8; MAD_LEN]) {
        let mut bth = Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, Psn::new(0));
        bth.pkey = PKey::DEFAULT;
        let mut headers = Headers::new(bth);
        headers.deth = Some(Deth {
            qkey: GSI_QKEY,
            source_qp: Qpn::GSI,
        });
        self.network().inject(to, &headers, mad);
    }
}

/// The message in a packet, if it is one of connection management.
pub fn message_of(passing: &Passing) -> Option<Message> {
    if passing.headers.bth.dest_qp != Qpn::GSI {
        return None;
    }
    Message::parse(&passing.payload).ok().map(|(_, message)| message)
}

impl<B: Testbed> CmEnd<B> {
    /// A queue pair for an id, bound to it.
    pub fn new(id: IdOf<B>, qp_type: QpType) -> Result<Self, Failure> {
        let context = id
            .context()
            .ok_or_else(|| Failure::new("the id has no device".to_owned()))?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(&CqInit::new(16))?;
        let init = QpInit {
            qp_type,
            ..QpInit::rc(&cq)
        };
        let qp = pd.create_qp(&init)?;
        id.bind_qp(&qp)?;
        let buffer = Buffer::new(BUFFER_BYTES);
        let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE)?;
        Ok(CmEnd {
            id,
            qp,
            cq,
            mr,
            buffer,
            pd,
            _context: context,
        })
    }

    /// A queue pair for the id that a request brings.
    pub fn requested(mut request: EventOf<B>, qp_type: QpType) -> Result<Self, Failure> {
        let id = request.request.take();
        let id = id.ok_or_else(|| Failure::new("a request without an id"))?;
        drop(request);
        CmEnd::new(id, qp_type)
    }

    fn sge(&self, length: usize) -> [Sge; 1] {
        [Sge {
            addr: self.buffer.addr(),
            length: length as u32,
            lkey: self.mr.lkey(),
        }]
    }

    /// A receive of the whole buffer.
    pub fn receive(&self) -> CaseResult {
        let sges = self.sge(BUFFER_BYTES);
        let request = RecvWr {
            wr_id: 1,
            sges: &sges,
        };
        self.qp.post_recv(&[request]).map_err(|refused| refused.error)?;
        Ok(())
    }

    /// A signaled send of these bytes.
    pub fn send(&self, op: SendOp<'_, B::P>, bytes: &[u8]) -> CaseResult {
        self.buffer.write(0, bytes);
        let sges = self.sge(bytes.len());
        let mut request = SendWr::new(2, op, &sges);
        request.flags = SendFlags::SIGNALED;
        self.qp.post_send(&[request]).map_err(|refused| refused.error)?;
        Ok(())
    }

    /// What stands in the buffer.
    pub fn bytes(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        self.buffer.to_vec(range)
    }

    /// The status of the next completion that is there now.
    pub fn status_now(&self) -> Result<Option<WcStatus>, Failure> {
        let mut wc = [verbs_api::Wc::default()];
        let count = self.cq.poll(&mut wc)?;
        Ok((count == 1).then(|| wc[0].status))
    }
}
