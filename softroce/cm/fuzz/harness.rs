//! An agent that is told whatever the bytes say: messages with right and wrong numbers, commands in any order, time.
//! Nothing panics; what peers can make it keep is bounded; and once everybody has let go it comes to rest with nothing
//! left. Run by the fuzz target, and by `tests/hostile.rs` with random bytes.

use roce_wire::Qpn;
use roce_wire::cm::ip::IpCm;
use roce_wire::cm::{Message, MessageKind, RejectReason, Rep, Req, ServiceId, SidrRep, SidrReq};
use roce_wire::mad::MAD_LEN;
use softroce_cm::{Agent, Connect, Happened, Peer, Reach, Refuse};
use softroce_engine::Time;

#[path = "../../../tests/fuzz/bytes.rs"]
mod bytes;

use bytes::Bytes;

const SERVICE: ServiceId = ServiceId::of_port(6, 7471);
const BACKLOG: usize = 4;
/// Longer than any wait of the protocol: 16 times the longest patience that a peer can ask for is cut by the bound on
/// retries, so the clock is moved from deadline to deadline.
const DEADLINES_MAX: usize = 100_000;

struct Run<'a> {
    bytes: Bytes<'a>,
    agent: Agent,
    now: Time,
    /// Numbers of connections that the program has heard of.
    ids: Vec<u32>,
    own_commands: usize,
}

fn peer(number: u8) -> Peer {
    Peer {
        own: [192, 0, 2, 1].into(),
        address: [192, 0, 2, 2 + number % 2].into(),
        qpn: 1,
        traffic_class: 0,
        hop_limit: 64,
        reach: match number % 3 {
            0 => Reach::Machine,
            _ => Reach::Network,
        },
    }
}

/// See the module's documentation.
pub fn run(bytes: &[u8]) {
    let mut run = Run {
        bytes: Bytes::new(bytes),
        agent: Agent::new(7, 9, 0x11),
        now: Time::ZERO,
        ids: Vec::new(),
        own_commands: 0,
    };
    run.agent
        .listen(SERVICE, 1, BACKLOG as u32)
        .expect("nobody listens yet");
    while !run.bytes.is_empty() {
        run.step();
        run.drain();
    }
    run.come_to_rest();
}

impl Run<'_> {
    fn step(&mut self) {
        match self.bytes.next() % 4 {
            0 => self.message(),
            1 => self.noise(),
            2 => self.command(),
            _ => {
                let passes = 1_u64 << (self.bytes.next() % 38);
                self.now = self.now + passes;
                self.agent.handle_timeout(self.now);
            }
        }
    }

    fn id(&mut self) -> u32 {
        let pick = usize::from(self.bytes.next());
        match self.ids.len() {
            0 => pick as u32,
            count => self.ids[pick % count],
        }
    }

    /// A message that is well-formed, of which some numbers are right.
    fn message(&mut self) {
        let kind = MessageKind::ALL[usize::from(self.bytes.next()) % MessageKind::ALL.len()];
        let from = peer(self.bytes.next());
        let (own, theirs) = (self.id(), u32::from(self.bytes.next() % 8));
        let mut mad = Message::Rtu(Default::default()).to_mad(1);
        mad[17] = kind.attribute() as u8;
        for byte in mad.iter_mut().skip(24).take(24) {
            *byte = self.bytes.next();
        }
        match kind {
            MessageKind::Req | MessageKind::SidrReq => return self.request(kind, &from, theirs),
            MessageKind::SidrRep => mad[24..28].copy_from_slice(&own.to_be_bytes()),
            _ => {
                mad[24..28].copy_from_slice(&theirs.to_be_bytes());
                mad[28..32].copy_from_slice(&own.to_be_bytes());
            }
        }
        self.agent.handle_mad(self.now, &from, &mad);
    }

    fn request(&mut self, kind: MessageKind, from: &Peer, number: u32) {
        let ip = IpCm {
            source: (from.address, 40_000).into(),
            destination: from.own,
        };
        let message = if kind == MessageKind::Req {
            let mut req = Req {
                local_comm_id: number,
                service_id: SERVICE,
                local_ca_guid: u64::from(self.bytes.next() % 2),
                local_qpn: Qpn::new(u32::from(self.bytes.next() % 8)).expect("24 bits"),
                local_response_timeout: self.bytes.next(),
                max_cm_retries: self.bytes.next() % 16,
                ..Req::default()
            };
            req.primary.ack_timeout = self.bytes.next() % 32;
            if let std::net::IpAddr::V4(v4) = from.address {
                req.primary.local_gid = v4.to_ipv6_mapped().octets();
            }
            req.private_data[..36].copy_from_slice(&ip.to_bytes());
            Message::Req(req)
        } else {
            let mut req = SidrReq {
                request_id: number,
                service_id: SERVICE,
                ..SidrReq::default()
            };
            req.private_data[..36].copy_from_slice(&ip.to_bytes());
            Message::SidrReq(req)
        };
        self.agent.handle_mad(self.now, from, &message.to_mad(1));
    }

    /// Bytes that may be anything.
    fn noise(&mut self) {
        let mut mad = [0; MAD_LEN];
        let length = usize::from(self.bytes.next());
        for byte in mad.iter_mut().take(length) {
            *byte = self.bytes.next();
        }
        let from = peer(self.bytes.next());
        self.agent.handle_mad(self.now, &from, &mad[..length.max(1)]);
        self.agent.handle_mad(self.now, &from, &mad);
    }

    fn command(&mut self) {
        let (which, id, now) = (self.bytes.next() % 10, self.id(), self.now);
        let agent = &mut self.agent;
        let refuse = Refuse {
            reason: RejectReason::CONSUMER,
            info: &[1],
            private_data: b"no",
        };
        // What does not fit the state is an error, and no more.
        let _ = match which {
            0 => {
                self.own_commands += 1;
                let connect = Connect {
                    peer: peer(0),
                    owner: 2,
                    req: Req::default(),
                };
                agent.connect(now, connect).map(|id| self.ids.push(id))
            }
            1 => {
                self.own_commands += 1;
                agent
                    .resolve(now, peer(1), 3, SidrReq::default())
                    .map(|id| self.ids.push(id))
            }
            2 => agent.reply(now, id, Rep::default()),
            3 => agent.reject(now, id, &refuse),
            4 => agent.ready(now, id, b"go"),
            5 => agent.delay(now, id),
            6 => agent.disconnect(now, id, b"bye"),
            7 => agent.establish(now, id),
            8 => agent.answer(now, id, SidrRep::default()),
            _ => {
                agent.destroy(now, id);
                Ok(())
            }
        };
    }

    fn drain(&mut self) {
        while let Some(out) = self.agent.poll_transmit() {
            Message::parse(&out.mad).expect("what is sent is a message");
        }
        while let Some(event) = self.agent.poll_event() {
            if let Happened::Requested(_) = event.happened {
                self.ids.push(event.id);
            }
        }
        assert!(
            self.agent.connection_count() <= self.ids.len(),
            "all connections have been told of"
        );
    }

    /// Everybody lets go, and time passes.
    fn come_to_rest(&mut self) {
        for id in std::mem::take(&mut self.ids) {
            self.agent.destroy(self.now, id);
        }
        for _ in 0..DEADLINES_MAX {
            while self.agent.poll_transmit().is_some() {}
            assert!(self.agent.poll_event().is_none(), "nobody is there to be told");
            let Some(deadline) = self.agent.poll_timeout() else {
                break;
            };
            self.now = self.now.max(deadline);
            self.agent.handle_timeout(self.now);
        }
        assert_eq!(self.agent.connection_count(), 0, "nothing stays");
        assert!(self.agent.poll_timeout().is_none());
    }
}
