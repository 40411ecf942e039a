//! Two queue pairs of an unreliable service: what arrives is whole and right, what is lost is nobody's fault.

use softroce::Softroce;
use verbs_api::{
    Access, AddressVector, Buffer, Connection, Context, CqInit, MemoryRegion, ProtectionDomain, Provider,
    QpCap, QpInit, QpState, QpType, QueuePair, RecvWr, SendOp, SendWr, Sge, WcStatus,
};

use super::conversation::{GUARD, GUARD_BYTE, pattern, poll};
use super::plan::{self, Unreliable};
use crate::Random;

/// The network header in front of a datagram.
const GRH: usize = 40;
const QKEY: u32 = 0x1234;
/// What distinguishes the bytes of streams from those of conversations.
const SIDE: u8 = 7;
/// So many receives are posted at most; each has a slot of its own.
const RECEIVES_OUT: usize = 32;

struct End {
    qp: <Softroce as Provider>::Qp,
    cq: <Softroce as Provider>::Cq,
    mr: <Softroce as Provider>::Mr,
    buffer: Buffer,
    ah: Option<<Softroce as Provider>::Ah>,
}

pub(super) struct Stream {
    setup: plan::Stream,
    left: End,
    right: End,
    slot: usize,
    posted: usize,
    done: usize,
    receives_out: usize,
    received: Vec<usize>,
    news: bool,
}

fn end(
    provider: &Softroce,
    names: [&String; 2],
    setup: &plan::Stream,
    length: usize,
) -> (End, AddressVector) {
    let context = provider.open(names[0]).expect("the device is there");
    let far = provider.open(names[1]).expect("the peer's device is there");
    let gid = far.query_gid(1, 0).expect("it has a GID");
    let pd = context.alloc_pd().expect("a domain");
    let cq = context.create_cq(&CqInit::new(512)).expect("a completion queue");
    let cap = QpCap {
        max_send_wr: setup.depth as u32,
        max_recv_wr: 64,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    let qp_type = match setup.service {
        Unreliable::Uc => QpType::Uc,
        Unreliable::Ud => QpType::Ud,
    };
    let qp = pd
        .create_qp(&QpInit {
            cap,
            qp_type,
            ..QpInit::rc(&cq)
        })
        .expect("a queue pair");
    let buffer = Buffer::new(length);
    buffer.fill(0..length, GUARD_BYTE);
    let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE).expect("a region");
    let to_peer = AddressVector {
        dgid: Some(gid.gid),
        port: gid.port,
        hop_limit: 64,
        ..AddressVector::default()
    };
    let ah = (setup.service == Unreliable::Ud).then(|| pd.create_ah(&to_peer).expect("an address handle"));
    let end = End {
        qp,
        cq,
        mr,
        buffer,
        ah,
    };
    (end, to_peer)
}

impl Stream {
    pub(super) fn open(provider: &Softroce, names: &[String], setup: &plan::Stream) -> Stream {
        let longest = setup.sizes.iter().copied().max().unwrap_or(0);
        let slot = (GRH + longest).next_multiple_of(8) + GUARD;
        let length = slot * setup.sizes.len();
        let [from, to] = setup.ends.map(|end| &names[end]);
        let (left, to_right) = end(provider, [from, to], setup, length);
        let (right, to_left) = end(provider, [to, from], setup, length);
        connect(&left, &right, &to_right, setup);
        connect(&right, &left, &to_left, setup);
        for (n, size) in setup.sizes.iter().enumerate() {
            left.buffer.write(slot * n, &pattern(n, SIDE, *size));
        }
        Stream {
            setup: setup.clone(),
            left,
            right,
            slot,
            posted: 0,
            done: 0,
            receives_out: 0,
            received: Vec::new(),
            news: false,
        }
    }

    /// Every request completes, come what may.
    pub(super) fn is_over(&self) -> bool {
        self.done == self.setup.sizes.len()
    }

    pub(super) fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    pub(super) fn can_act(&self) -> bool {
        self.posted < self.setup.sizes.len()
    }

    pub(super) fn work(&mut self, random: &mut Random) -> Result<(), String> {
        while let Some(wc) = poll(&self.left.cq)? {
            self.news = true;
            if wc.wr_id != self.done as u64 || wc.status != WcStatus::Success {
                return Err(format!(
                    "expected the success of request {}, got {wc:?}",
                    self.done
                ));
            }
            self.done += 1;
        }
        self.collect_receives()?;
        let receives = RECEIVES_OUT.min(self.setup.sizes.len());
        while self.receives_out < receives && !random.chance(self.setup.late_receives) {
            self.post_receive()?;
        }
        while self.can_act() && self.posted - self.done < self.setup.depth {
            self.post_send()?;
        }
        Ok(())
    }

    fn post_receive(&mut self) -> Result<(), String> {
        // Slots are used round and round: what was received has been checked.
        let slot = (self.received.len() + self.receives_out) % self.setup.sizes.len();
        let sge = Sge {
            addr: self.right.mr.addr() + (self.slot * slot) as u64,
            length: (self.slot - GUARD) as u32,
            lkey: self.right.mr.lkey(),
        };
        let request = RecvWr {
            wr_id: slot as u64,
            sges: &[sge],
        };
        self.right
            .qp
            .post_recv(&[request])
            .map_err(|refused| format!("receive: {refused}"))?;
        self.receives_out += 1;
        Ok(())
    }

    fn post_send(&mut self) -> Result<(), String> {
        let n = self.posted;
        let sge = Sge {
            addr: self.left.mr.addr() + (self.slot * n) as u64,
            length: self.setup.sizes[n] as u32,
            lkey: self.left.mr.lkey(),
        };
        let imm = Some(n as u32);
        let op = match &self.left.ah {
            None => SendOp::Send { imm },
            Some(ah) => SendOp::SendTo {
                ah,
                remote_qpn: self.right.qp.qpn(),
                remote_qkey: QKEY,
                imm,
            },
        };
        self.left
            .qp
            .post_send(&[SendWr::new(n as u64, op, &[sge])])
            .map_err(|refused| format!("request {n}: {refused}"))?;
        self.posted += 1;
        self.news = true;
        Ok(())
    }

    fn collect_receives(&mut self) -> Result<(), String> {
        while let Some(wc) = poll(&self.right.cq)? {
            self.news = true;
            let n = match (wc.status, wc.immediate()) {
                (WcStatus::Success, Some(n)) if (n as usize) < self.posted => n as usize,
                _ => return Err(format!("a message that nobody sent: {wc:?}")),
            };
            let header = match self.setup.service {
                Unreliable::Uc => 0,
                Unreliable::Ud => GRH,
            };
            let size = self.setup.sizes[n];
            if wc.byte_len as usize != header + size {
                return Err(format!("message {n} of {size} bytes arrived so: {wc:?}"));
            }
            let at = self.slot * wc.wr_id as usize;
            let seen = self.right.buffer.to_vec(at + header..at + header + size);
            if seen != pattern(n, SIDE, size) {
                return Err(format!("message {n} arrived with wrong bytes"));
            }
            self.receives_out -= 1;
            self.received.push(n);
        }
        Ok(())
    }

    /// At the end: where every packet arrived once and in order, so did every message that found a receive; and no
    /// byte between slots was touched.
    pub(super) fn check_end(&self, is_fair: bool) -> Result<(), String> {
        let state = self.left.qp.state().map_err(|error| error.to_string())?;
        if state != QpState::Rts {
            return Err(format!("the sender of a stream ends in {state:?}"));
        }
        if is_fair {
            let in_order = self.received.windows(2).all(|pair| pair[0] < pair[1]);
            if !in_order {
                return Err(format!("messages out of order, or twice: {:?}", self.received));
            }
        }
        for n in 0..self.setup.sizes.len() {
            let guard = self.slot * (n + 1) - GUARD..self.slot * (n + 1);
            let seen = self.right.buffer.to_vec(guard);
            if seen.iter().any(|byte| *byte != GUARD_BYTE) {
                return Err(format!("bytes behind receive {n} of a stream were touched"));
            }
        }
        Ok(())
    }
}

fn connect(own: &End, peer: &End, to_peer: &AddressVector, setup: &plan::Stream) {
    let connection = Connection {
        access: Access::REMOTE_WRITE,
        qkey: QKEY,
        path_mtu: setup.mtu(),
        sq_psn: setup.psn,
        rq_psn: setup.psn,
        ..Connection::new(own.qp.qp_type(), *to_peer, peer.qp.qpn())
    };
    connection.make(&own.qp).expect("legal transitions");
}
