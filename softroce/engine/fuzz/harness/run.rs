//! What a hostile network and a careless program may do to an engine, step by step, and what must hold nevertheless.
//!
//! An input is a sequence of steps: a packet (crafted near what is expected, or raw), a request posted, time passing,
//! a change of state, a region deregistered, a window bound. After each step the outputs are taken and checked:
//! - nothing panics, and nothing is promised that does not come;
//! - a queue pair sends at most one acknowledgement a packet that it got (NAKs are such), at most as many READ response
//!   packets as were asked for, and comes to rest;
//! - each request completes once, in order; when a queue pair fails, all of them do;
//! - no deadline stays in the past, which would have the driver spin;
//! - nothing is written to canaries around the regions, to regions without the right, in another protection domain, or
//!   deregistered.
//!
//! Run by the fuzz target, and by `tests/fuzz_corpus.rs` over the kept corpus.

mod input;
mod kind;
mod memory;
mod packet;
mod windows;
mod world;

use softroce_engine::{Acks, SendOperation, SendRequest};
use verbs_api::{
    Access, MigState, Notify, Payload, PortState, QpAttr, QpState, QpType, RKey, RemoteAddr, SendFlags, Sge,
};

use input::Input;
use kind::{KINDS, OTHER_VICTIMS, QKEY, RC_VICTIMS, Receives, alternate, attributes, peer_qpn};
use memory::{ALL_REGIONS, REGION_BYTES, Region, iova_of};
use world::{ALT_OWN_IP, OWN_IP, World};

/// Steps of one input.
const STEPS_MAX: usize = 256;

/// Run an input.
pub fn run(bytes: &[u8]) {
    let mut world = World::new();
    let mut input = Input::new(bytes);
    for _ in 0..STEPS_MAX {
        if input.is_empty() {
            break;
        }
        step(&mut world, &mut input);
        world.drain();
    }
    world.acks = Acks::Flush;
    world.drain();
    world.finish();
}

fn step(world: &mut World, input: &mut Input<'_>) {
    let kind = input.byte();
    if kind >= 0xe0 {
        let index = victim(input);
        windows::step(world, index, input);
        return;
    }
    match kind & 0x1f {
        0..=13 => {
            let index = victim(input);
            if input.byte() & 3 != 0 {
                bring_up(world, index);
            }
            let datagram = packet::crafted(world, index, input);
            world.take_in(datagram.way, &datagram.bytes);
        }
        14 => {
            let datagram = packet::raw(input);
            world.take_in(datagram.way, &datagram.bytes);
        }
        15..=18 => post_send(world, input),
        19..=21 => post_recv(world, input),
        22..=24 => wait(world, input),
        25 => modify(world, input),
        26 => world.revive(victim(input)),
        27 => change_memory(world, input),
        28 => {
            let count = usize::from(input.byte());
            world.poll_small_cq(count);
            let cq = if count & 1 == 0 { world.cq } else { world.small_cq };
            let notify = if count & 2 == 0 {
                Notify::Any
            } else {
                Notify::SolicitedOnly
            };
            world.engine.req_notify_cq(cq, notify).unwrap();
            if count & 0xc0 == 0xc0 {
                change_queues(world, input);
            }
        }
        29 => world.acks = input.pick(&[Acks::Defer, Acks::Flush]),
        30 => change_port(world, input),
        _ => {
            let index = victim(input);
            world.leave_group(index);
            let qpn = world.qps[index].qpn;
            world.engine.destroy_qp(world.now, qpn).unwrap();
            world.create_qp(index);
        }
    }
}

/// One of the queue pairs that start in RTS, or that are of another kind, has failed: it begins anew, with work to do.
fn bring_up(world: &mut World, index: usize) {
    let attr = world.engine.query_qp(world.qps[index].qpn).unwrap_or_default();
    let is_up_at_start = index == 3 || index == 4 || index > 6;
    if !is_up_at_start || !matches!(attr.state, Some(QpState::Err | QpState::Sqe)) {
        return;
    }
    world.revive(index);
    for _ in 0..3 {
        let sge = Sge {
            addr: iova_of(Region::Local),
            length: 600,
            lkey: world.regions[Region::Local as usize].lkey,
        };
        // A shared queue may be full.
        let posted = world.post_recv(index, &[sge]);
        assert!(posted.is_ok() || KINDS[index].receives != Receives::Own);
    }
}

/// Which queue pair a step is for: of a reliable connection, or of another kind.
fn victim(input: &mut Input<'_>) -> usize {
    match input.byte() {
        value @ 0..=0x7f => RC_VICTIMS[usize::from(value) % RC_VICTIMS.len()],
        value => OTHER_VICTIMS[usize::from(value) % OTHER_VICTIMS.len()],
    }
}

/// Sizes, moderation and limits of queues change.
fn change_queues(world: &mut World, input: &mut Input<'_>) {
    let value = input.u16();
    let small = u32::from(value & 0xff);
    match input.byte() & 7 {
        // Not below what the checks count with.
        0 => drop(world.engine.resize_cq(world.cq, 1024 + u32::from(value))),
        1 => drop(world.engine.resize_cq(world.small_cq, small)),
        2 => world.engine.moderate_cq(world.cq, value & 7, value >> 3).unwrap(),
        3 => world.engine.stamp_cq(world.cq).unwrap(),
        4 => drop(
            world
                .engine
                .modify_srq(world.now, world.srq.id, None, Some(small & 0xf)),
        ),
        5 => drop(
            world
                .engine
                .modify_srq(world.now, world.srq.id, Some(small & 0x1f), None),
        ),
        6 => drop(
            world
                .engine
                .modify_srq(world.now, world.xrc_srq.id, None, Some(small & 0xf)),
        ),
        _ if small & 1 == 0 => drop(world.engine.query_srq(world.srq.id)),
        _ => {
            let index = victim(input);
            if small & 2 == 0 {
                world.leave_group(index);
            } else {
                world.join_group(index);
            }
        }
    }
}

fn sges(world: &World, input: &mut Input<'_>) -> [Sge; 2] {
    [(); 2].map(|()| {
        let region = match input.byte() {
            0..=0x9f => Region::Local,
            value => ALL_REGIONS[usize::from(value) % ALL_REGIONS.len()],
        };
        let is_broken = input.byte() & 0x3f == 0x3f;
        Sge {
            addr: iova_of(region) + u64::from(input.byte()),
            length: match input.byte() {
                value @ 0..=0x9f => u32::from(value),
                value @ 0xa0..=0xef => u32::from(value) * 5,
                0xf0 => u32::MAX,
                0xf1 => REGION_BYTES as u32,
                _ => 8,
            },
            lkey: if is_broken {
                verbs_api::LKey(input.u32())
            } else {
                world.regions[region as usize].lkey
            },
        }
    })
}

fn post_send(world: &mut World, input: &mut Input<'_>) {
    let index = victim(input);
    let remote = RemoteAddr {
        addr: 0x7000_0000 + u64::from(input.byte()),
        rkey: RKey(0x1234_5678),
    };
    let rkey = match input.byte() & 3 {
        0 => world.engine.mw_rkey(world.mw).unwrap(),
        _ => remote.rkey,
    };
    let kind = KINDS[index];
    let imm = if index & 1 == 0 { Some(9) } else { None };
    let op = match input.byte() % 12 {
        0 if matches!(kind.qp_type, QpType::Ud | QpType::Gsi) => SendOperation::SendTo {
            ah: world.ah,
            remote_qpn: peer_qpn(index),
            remote_qkey: QKEY,
            imm,
        },
        0 => SendOperation::Send { imm: None },
        1 => SendOperation::Send { imm: Some(7) },
        2 if matches!(kind.qp_type, QpType::Ud | QpType::Gsi) => SendOperation::SendTo {
            ah: world.ah,
            remote_qpn: peer_qpn(index),
            remote_qkey: u32::MAX,
            imm,
        },
        2 => SendOperation::SendWithInvalidate { rkey },
        3 => SendOperation::Write { remote, imm: None },
        4 => SendOperation::Write { remote, imm: Some(8) },
        5 => SendOperation::Read { remote },
        6 => SendOperation::CompareSwap {
            remote,
            compare: 1,
            swap: 2,
        },
        7 => SendOperation::FetchAdd { remote, add: 1 },
        8 => SendOperation::AtomicWrite { remote },
        9 => SendOperation::Flush {
            remote,
            length: 64,
            placement: u32::from(input.byte() & 3),
            whole_mr: false,
        },
        10 => SendOperation::LocalInvalidate { rkey },
        _ => bind(world, rkey, input),
    };
    let is_atomic = matches!(
        op,
        SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. }
    );
    let shape = input.byte();
    let mut list = sges(world, input);
    if is_atomic && shape & 0xf0 != 0xf0 {
        list[0].length = 8;
    }
    let inline = [0x5a; 80];
    let payload = match shape & 7 {
        0 => Payload::Inline(&inline[..usize::from(shape >> 3) * 3 % 80]),
        1 => Payload::Sges(&[]),
        2 | 3 => Payload::Sges(&list),
        _ => Payload::Sges(&list[..1]),
    };
    let request = SendRequest {
        wr_id: world.qps[index].sends.posted,
        op,
        payload,
        flags: SendFlags::from_bits_truncate(input.byte().into()),
        xrc_srqn: (kind.qp_type == QpType::XrcInitiator).then_some(5),
    };
    let qpn = world.qps[index].qpn;
    if world.engine.post_send(world.now, qpn, &request).is_ok() {
        world.qps[index].sends.posted += 1;
    }
}

/// Bind the window to some region, with some rights.
fn bind(world: &World, rkey: RKey, input: &mut Input<'_>) -> SendOperation {
    let region = input.pick(&ALL_REGIONS);
    SendOperation::BindMw {
        mw: world.mw,
        rkey: RKey(rkey.0 & !0xff | u32::from(input.byte())),
        mr: world.regions[region as usize].id,
        addr: iova_of(region) + u64::from(input.byte()),
        length: u64::from(input.u16()),
        access: Access::from_bits_truncate(input.byte().into()),
    }
}

fn post_recv(world: &mut World, input: &mut Input<'_>) {
    let index = victim(input);
    let count = usize::from(input.byte()) % 3;
    let list = sges(world, input);
    drop(world.post_recv(index, &list[..count]));
}

/// Time passes, as far as the next deadline or by an amount of its own.
fn wait(world: &mut World, input: &mut Input<'_>) {
    let choice = input.byte();
    let later = world.now + (1_u64 << (choice & 0x1f));
    world.now = match world.engine.poll_timeout() {
        Some(deadline) if choice & 0xc0 == 0 => world.now.max(deadline),
        Some(_) | None => later,
    };
    world.engine.handle_timeout(world.now);
}

fn modify(world: &mut World, input: &mut Input<'_>) {
    let index = victim(input);
    let state = input.pick(&QpState::ALL);
    let qpn = world.qps[index].qpn;
    let mut attr = attributes(index, state);
    let odd = input.byte();
    if odd >= 0xc0 {
        make_odd(&mut attr, odd % 20, input.byte());
    }
    if world.engine.modify_qp(world.now, qpn, &attr).is_ok() && attr.state == Some(QpState::Reset) {
        world.note_reset(index);
    }
}

/// Put an unusual value in one attribute.
fn make_odd(attr: &mut QpAttr, which: u8, value: u8) {
    match which {
        0 => attr.state = None,
        1 => attr.timeout = Some(value),
        2 => attr.retry_cnt = Some(value),
        3 => attr.rnr_retry = Some(value),
        4 => attr.min_rnr_timer = Some(value),
        5 => attr.max_rd_atomic = Some(value),
        6 => attr.max_dest_rd_atomic = Some(value),
        7 => attr.rq_psn = Some(u32::from(value) << 20),
        8 => attr.sq_psn = Some(u32::from(value) << 20),
        9 => attr.port = Some(value),
        10 => attr.access = Some(Access::from_bits_truncate(value.into())),
        11 => attr.en_sqd_async_notify = Some(value & 1 == 0),
        12 => attr.path_mtu = Some(verbs_api::Mtu::ALL[usize::from(value) % 5]),
        13 => attr.cur_state = Some(QpState::ALL[usize::from(value) % QpState::ALL.len()]),
        14 => attr.dest_qpn = attr.dest_qpn.map(|_| u32::MAX),
        15 => {
            attr.alt_path = Some(alternate());
            attr.path_mig_state = Some(MigState::Rearm);
        }
        16 => attr.path_mig_state = Some(MigState::ALL[usize::from(value) % MigState::ALL.len()]),
        17 => attr.alt_path = Some(alternate()),
        18 => attr.qkey = Some(value.into()),
        _ => attr.pkey_index = Some(value.into()),
    }
}

/// The interface goes down, comes up, loses its address; its receive buffer fills up.
fn change_port(world: &mut World, input: &mut Input<'_>) {
    match input.byte() & 7 {
        0 => world.set_port(PortState::Down, &[OWN_IP]),
        1 => world.set_port(PortState::Active, &[]),
        2 | 3 => world.set_port(PortState::Active, &[OWN_IP, ALT_OWN_IP]),
        odd => world.engine.note_receive_pressure(odd & 1 == 0),
    }
}

/// The doomed region goes, or may be read only from now on.
fn change_memory(world: &mut World, input: &mut Input<'_>) {
    if world.doomed.is_some() {
        return;
    }
    let mr = &mut world.regions[Region::Doomed as usize];
    if input.byte() & 1 == 0 {
        if world.engine.dereg_mr(mr.id).is_err() {
            // Windows stand on it.
            return;
        }
    } else {
        // SAFETY: no new translation, so no new promise.
        let changed = unsafe {
            world
                .engine
                .rereg_mr(mr.id, None, None, Some(Access::REMOTE_READ))
        };
        match changed {
            Ok(info) => *mr = info,
            Err(_) => return,
        }
    }
    world.doomed = Some(world.region(Region::Doomed));
}
