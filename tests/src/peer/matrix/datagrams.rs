//! UD: to one queue pair, and to a multicast group.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::{Result, ensure};
use verbs_api::{Gid, ProtectionDomain, Provider, QpType, QueuePair, SendOp, Wc, WcFlags, WcOpcode};

use super::area::{Area, Seed};
use super::bench::Bench;
use super::link::{Link, QKEY, Terms, way_to};
use super::talk::Ending;
use super::tally::{self, Expected};
use super::transfers::check_receive;
use crate::peer::Role;

const ROUNDS: u64 = 4;
/// What a receive has in front of the message.
const GRH: usize = 40;
const MULTICAST_QPN: u32 = 0xff_ffff;
/// The groups of these cases; whoever runs a kernel's card joins them at the IP layer for it.
const GROUPS: (Ipv4Addr, Ipv6Addr) = (
    Ipv4Addr::new(239, 7, 7, 7),
    Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 7, 7),
);

/// What is sent, and to whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datagram {
    Send,
    SendWithImm,
    Multicast,
}

impl Datagram {
    pub const ALL: [Datagram; 3] = [Datagram::Send, Datagram::SendWithImm, Datagram::Multicast];

    /// As in a case's name.
    pub fn name(self) -> &'static str {
        match self {
            Datagram::Send => "SEND",
            Datagram::SendWithImm => "SEND with immediate",
            Datagram::Multicast => "SEND to a group",
        }
    }

    fn imm(self, i: usize) -> Option<u32> {
        (self == Datagram::SendWithImm).then_some(0xfeed_0000 | i as u32)
    }
}

fn sizes(mtu: usize) -> [usize; 4] {
    [0, 1, mtu - 1, mtu]
}

/// The sizes of the receives.
fn with_grh(sizes: [usize; 4]) -> [usize; 4] {
    sizes.map(|size| GRH + size)
}

/// Messages of all sizes, `sender` sends.
pub fn run<P: Provider>(bench: &mut Bench<'_, P>, datagram: Datagram, sender: Role) -> Result<Ending> {
    let before = (bench.instruments.counters)();
    let link = Link::connect(bench, QpType::Ud, Terms::default())?;
    let group = match bench.gid.ip() {
        IpAddr::V4(_) => Gid::from(IpAddr::V4(GROUPS.0)),
        IpAddr::V6(_) => Gid::from(IpAddr::V6(GROUPS.1)),
    };
    let to = match datagram {
        Datagram::Multicast => Some(group),
        Datagram::Send | Datagram::SendWithImm => None,
    };
    if bench.role == sender {
        send(bench, &link, datagram, to)?;
    } else {
        if let Some(group) = to {
            link.qp.attach_mcast(group, 0)?;
        }
        for round in 0..ROUNDS {
            receive(bench, &link, (datagram, round), to.unwrap_or(bench.gid))?;
        }
        if let Some(group) = to {
            link.qp.detach_mcast(group, 0)?;
        }
    }
    let troubles = tally::troubles(&before, &(bench.instruments.counters)());
    tally::check(&troubles, Expected::default())?;
    Ok(Ending::Passed)
}

fn send<P: Provider>(
    bench: &mut Bench<'_, P>,
    link: &Link<P>,
    datagram: Datagram,
    to: Option<Gid>,
) -> Result<()> {
    let sizes = sizes(bench.mtu.bytes());
    let way = way_to(bench, to.unwrap_or(bench.peer_gid));
    let ah = bench.pd.create_ah(&way)?;
    let remote_qpn = if to.is_some() {
        MULTICAST_QPN
    } else {
        link.peer_qpn
    };
    for round in 0..ROUNDS {
        let seed = Seed::new(bench.role, datagram as u64, round);
        Area::Out.write(&bench.buffer, &sizes, seed);
        bench.talk.hear("prepared")?;
        for (i, slot) in Area::Out.slots(&sizes).into_iter().enumerate() {
            let op = SendOp::SendTo {
                ah: &ah,
                remote_qpn,
                remote_qkey: QKEY,
                imm: datagram.imm(i),
            };
            link.post(bench, i as u64, op, (slot.start, slot.len()))?;
        }
        for (i, wc) in link.successes(sizes.len())?.iter().enumerate() {
            let got = (wc.wr_id, wc.opcode);
            ensure!(
                got == (i as u64, WcOpcode::Send),
                "a request completed as {got:?}"
            );
        }
        bench.talk.hear("checked")?;
    }
    Ok(())
}

fn receive<P: Provider>(
    bench: &mut Bench<'_, P>,
    link: &Link<P>,
    (datagram, round): (Datagram, u64),
    sent_to: Gid,
) -> Result<()> {
    let sizes = sizes(bench.mtu.bytes());
    Area::Received.wipe(&bench.buffer);
    let slots = Area::Received.slots(&with_grh(sizes));
    for (i, slot) in slots.iter().enumerate() {
        link.post_recv(bench, i as u64, slot.start, slot.len())?;
    }
    bench.talk.tell("prepared")?;
    let sender = match bench.role {
        Role::Caller => Role::Listener,
        Role::Listener => Role::Caller,
    };
    let seed = Seed::new(sender, datagram as u64, round);
    for (i, wc) in link.successes(sizes.len())?.iter().enumerate() {
        check_receive(wc, WcOpcode::Recv, (i, GRH + sizes[i]))?;
        check_header(bench, wc, link.peer_qpn, slots[i].start, sent_to)?;
        let imm = datagram.imm(i);
        ensure!(
            wc.immediate() == imm,
            "the immediate is {:x?}, not {imm:x?}",
            wc.immediate()
        );
        let got = bench.buffer.to_vec(slots[i].start + GRH..slots[i].end);
        ensure!(
            got == seed.message(i, sizes[i]),
            "the message of {} bytes is another",
            sizes[i]
        );
    }
    bench.talk.tell("checked")
}

/// What a receive says of its sender, and the area in front of the message.
fn check_header<P: Provider>(
    bench: &Bench<'_, P>,
    wc: &Wc,
    sender: u32,
    at: usize,
    sent_to: Gid,
) -> Result<()> {
    ensure!(wc.src_qp == sender, "it came from queue pair {:#x}", wc.src_qp);
    ensure!(
        wc.flags.contains(WcFlags::GRH),
        "the receive names no GRH: {:?}",
        wc.flags
    );
    let header = bench.buffer.to_vec(at..at + GRH);
    let (from, to) = match bench.gid.ip() {
        IpAddr::V4(_) => (
            header[32..36] == bench.peer_gid.0[12..],
            header[36..] == sent_to.0[12..],
        ),
        IpAddr::V6(_) => (header[8..24] == bench.peer_gid.0, header[24..] == sent_to.0),
    };
    ensure!(from && to, "the header names other addresses: {header:02x?}");
    Ok(())
}
