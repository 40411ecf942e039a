//! A multicast group: one process sends, all members, the sender among them, receive each message once.
//!
//! The sender goes on only when all members have what was sent before, so nothing is lost for want of receives.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use verbs_api::{
    Access, AddressVector, Buffer, CompletionQueue, Connection, Context, CqInit, Gid, MemoryRegion,
    ProtectionDomain, Provider, QpInit, QpType, QueuePair, RecvWr, SendOp, SendWr, Sge, Wc, WcOpcode,
    WcStatus,
};

use crate::peer::Line;
use crate::peer::end::{eight_groups, number};

const GRH: usize = 40;
const MESSAGE: usize = 64;
const SLOT: usize = GRH + MESSAGE;
/// Messages between two pauses; there is a receive for each, and room in every socket.
const BATCH: u64 = 50;
/// Messages after one member has left.
const AFTER_LEAVING: u64 = 100;
const QKEY: u32 = 0x1122_3344;
const MULTICAST_QPN: u32 = 0xff_ffff;
const LIMIT: Duration = Duration::from_secs(20);
/// So long nothing more must come.
const SILENCE: Duration = Duration::from_millis(200);

/// Sends `count` messages to the group; then the last member leaves, and it sends some more.
pub fn lead<P: Provider>(provider: &P, lines: &mut [Line], group: IpAddr, count: u64) -> Result<Value> {
    let own = lines.first().context("nobody called")?.local_ip()?;
    let mut member = Member::open(provider, own)?;
    let sender = member.sending_qp()?;
    member.join(group)?;
    let plan = json!({ "group": eight_groups(Gid::from(group)), "count": count, "sender": sender.qpn() });
    for line in lines.iter_mut() {
        line.tell_with("plan", plan.clone())?;
    }
    for line in lines.iter_mut() {
        line.hear("joined")?;
    }
    let ah = member.pd.create_ah(&AddressVector {
        dgid: Some(Gid::from(group)),
        sgid_index: member.gid_index,
        hop_limit: 1,
        port: 1,
        ..AddressVector::default()
    })?;
    let mut send = |numbers: std::ops::Range<u64>, lines: &mut [Line]| -> Result<()> {
        let mut next = numbers.start;
        while next < numbers.end {
            let end = numbers.end.min(next + BATCH);
            for number in next..end {
                member.send(&sender, &ah, number)?;
            }
            member.receive(next..end, sender.qpn(), group)?;
            for line in lines.iter_mut() {
                line.tell("sent")?;
            }
            for line in lines.iter_mut() {
                line.hear("got")?;
            }
            next = end;
        }
        Ok(())
    };
    send(0..count, lines)?;
    let (leaver, rest) = lines.split_last_mut().context("nobody called")?;
    leaver.tell("leave")?;
    leaver.hear("left")?;
    for line in rest.iter_mut() {
        line.tell("stay")?;
    }
    send(count..count + AFTER_LEAVING, rest)?;
    leaver.tell("over")?;
    let after = number(&leaver.hear("silent")?, "received")?;
    ensure!(after == 0, "who had left received {after} messages more");
    member.hears_nothing()?;
    Ok(json!({ "members": lines.len() + 1, "received": member.received }))
}

/// Receives what is sent to the group that the sender names.
pub fn follow<P: Provider>(provider: &P, line: &mut Line) -> Result<Value> {
    let own = line.local_ip()?;
    let mut member = Member::open(provider, own)?;
    let plan = line.hear("plan")?;
    let group: IpAddr = plan["group"].as_str().context("the plan has no group")?.parse()?;
    let group = group.to_canonical();
    let (count, sender) = (number(&plan, "count")?, u32::try_from(number(&plan, "sender")?)?);
    member.join(group)?;
    line.tell("joined")?;
    let mut receive = |line: &mut Line, numbers: std::ops::Range<u64>| -> Result<()> {
        let mut next = numbers.start;
        while next < numbers.end {
            let end = numbers.end.min(next + BATCH);
            member.receive(next..end, sender, group)?;
            line.hear("sent")?;
            line.tell("got")?;
            next = end;
        }
        Ok(())
    };
    receive(line, 0..count)?;
    let said = line.hear_any()?;
    match said["type"].as_str() {
        Some("stay") => receive(line, count..count + AFTER_LEAVING)?,
        Some("leave") => {
            let before = member.received;
            member.leave(group)?;
            line.tell("left")?;
            line.hear("over")?;
            member.hears_nothing()?;
            line.tell_with("silent", json!({ "received": member.received - before }))?;
        }
        _ => bail!("the sender said {said}"),
    }
    member.hears_nothing()?;
    Ok(json!({ "received": member.received }))
}

/// One process in the group.
struct Member<P: Provider> {
    receiver: P::Qp,
    cq: P::Cq,
    mr: P::Mr,
    pd: P::Pd,
    buffer: Buffer,
    /// Index of the GID that the other processes know.
    gid_index: u8,
    received: u64,
}

impl<P: Provider> Member<P> {
    /// On the provider's first device, as the address `own`, with receives for a batch and some more.
    fn open(provider: &P, own: IpAddr) -> Result<Self> {
        let device = provider
            .devices()?
            .into_iter()
            .next()
            .context("the provider has no device")?;
        let context = provider.open(&device.name)?;
        let gid_index = (0..16)
            .find(|index| {
                context
                    .query_gid(1, *index)
                    .is_ok_and(|entry| entry.gid == Gid::from(own))
            })
            .with_context(|| format!("{} has no GID for {own}", device.name))?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(&CqInit::new(4 * BATCH as u32))?;
        let buffer = Buffer::new((2 * BATCH as usize + 1) * SLOT);
        let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE)?;
        let receiver = datagram_qp::<P>(&pd, &cq)?;
        let member = Member {
            receiver,
            cq,
            mr,
            pd,
            buffer,
            gid_index: u8::try_from(gid_index)?,
            received: 0,
        };
        for slot in 0..2 * BATCH {
            member.post_recv(slot)?;
        }
        Ok(member)
    }

    /// Another queue pair, which is in no group: whether a sender hears itself is then no question.
    fn sending_qp(&self) -> Result<P::Qp> {
        datagram_qp::<P>(&self.pd, &self.cq)
    }

    fn join(&self, group: IpAddr) -> Result<()> {
        self.receiver
            .attach_mcast(Gid::from(group), 0)
            .with_context(|| format!("joining {group}"))
    }

    fn leave(&self, group: IpAddr) -> Result<()> {
        Ok(self.receiver.detach_mcast(Gid::from(group), 0)?)
    }

    fn post_recv(&self, slot: u64) -> Result<()> {
        let sges = [Sge {
            addr: self.buffer.addr() + slot * SLOT as u64,
            length: SLOT as u32,
            lkey: self.mr.lkey(),
        }];
        Ok(self.receiver.post_recv(&[RecvWr {
            wr_id: slot,
            sges: &sges,
        }])?)
    }

    /// Sends a message, and waits until it has left.
    fn send(&self, qp: &P::Qp, ah: &P::Ah, number: u64) -> Result<()> {
        let offset = 2 * BATCH as usize * SLOT;
        self.buffer.store_u64(offset, number);
        let sges = [Sge {
            addr: self.buffer.addr() + offset as u64,
            length: MESSAGE as u32,
            lkey: self.mr.lkey(),
        }];
        let op = SendOp::SendTo {
            ah,
            remote_qpn: MULTICAST_QPN,
            remote_qkey: QKEY,
            imm: None,
        };
        Ok(qp.post_send(&[SendWr::new(SENT, op, &sges)])?)
    }

    /// Receives exactly these messages, each once and in order, from queue pair `sender` through the group.
    fn receive(&mut self, numbers: std::ops::Range<u64>, sender: u32, group: IpAddr) -> Result<()> {
        let begun = Instant::now();
        let mut next = numbers.start;
        while next < numbers.end {
            let mut batch = [Wc::default(); 16];
            let count = self.cq.poll(&mut batch)?;
            for wc in &batch[..count] {
                ensure!(wc.status == WcStatus::Success, "work failed: {wc:?}");
                if wc.opcode != WcOpcode::Recv {
                    continue;
                }
                self.check(wc, next, sender, group)?;
                self.post_recv(wc.wr_id)?;
                self.received += 1;
                next += 1;
            }
            if count == 0 {
                ensure!(
                    begun.elapsed() < LIMIT,
                    "message {next} has not come for {LIMIT:?}"
                );
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        Ok(())
    }

    fn check(&self, wc: &Wc, expected: u64, sender: u32, group: IpAddr) -> Result<()> {
        let offset = usize::try_from(wc.wr_id)? * SLOT;
        let message = self.buffer.load_u64(offset + GRH);
        ensure!(
            message == expected,
            "message {message} came, {expected} was expected"
        );
        ensure!(wc.src_qp == sender, "it came from queue pair {:#x}", wc.src_qp);
        let header = self.buffer.to_vec(offset..offset + GRH);
        let is_to_group = match group {
            IpAddr::V4(group) => header[36..] == group.octets(),
            IpAddr::V6(group) => header[24..] == group.octets(),
        };
        ensure!(is_to_group, "its header names another destination: {header:x?}");
        Ok(())
    }

    /// Nothing more comes.
    fn hears_nothing(&mut self) -> Result<()> {
        let end = Instant::now() + SILENCE;
        while Instant::now() < end {
            let mut one = [Wc::default()];
            if self.cq.poll(&mut one)? == 1 && one[0].opcode == WcOpcode::Recv {
                bail!("one message too many: {:?}", one[0]);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

/// `wr_id` of what is sent.
const SENT: u64 = u64::MAX;

/// A UD queue pair, ready to send and receive.
fn datagram_qp<P: Provider>(pd: &P::Pd, cq: &P::Cq) -> Result<P::Qp> {
    let mut init = QpInit::<P>::rc(cq);
    init.qp_type = QpType::Ud;
    init.cap.max_recv_wr = 2 * BATCH as u32;
    init.cap.max_send_wr = 2 * BATCH as u32;
    let qp = pd.create_qp(&init)?;
    let own = AddressVector {
        port: 1,
        ..AddressVector::default()
    };
    let datagrams = Connection {
        qkey: QKEY,
        ..Connection::new(QpType::Ud, own, 0)
    };
    datagrams.make(&qp)?;
    Ok(qp)
}
