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
mod memory;
mod packet;
mod windows;
mod world;

use softroce_engine::{Acks, SendOperation, SendRequest};
use verbs_api::{
    Access, Notify, Payload, PortState, QpAttr, QpState, RKey, RecvWr, RemoteAddr, SendFlags, Sge,
};

use input::Input;
use memory::{ALL_REGIONS, REGION_BYTES, Region, iova_of};
use world::{OWN_IP, RECEIVE, World};

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
            world.take_in(datagram.src, &datagram.bytes);
        }
        14 => {
            let datagram = packet::raw(input);
            world.take_in(datagram.src, &datagram.bytes);
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
        }
        29 => world.acks = input.pick(&[Acks::Defer, Acks::Flush]),
        30 => change_port(world, input),
        _ => {
            let index = victim(input);
            let qpn = world.qps[index].qpn;
            world.engine.destroy_qp(world.now, qpn).unwrap();
            world.create_qp(index);
        }
    }
}

/// One of the queue pairs that start in RTS has failed: it begins anew, with work to do.
fn bring_up(world: &mut World, index: usize) {
    let attr = world.engine.query_qp(world.qps[index].qpn).unwrap_or_default();
    if index != 3 && index != 4 || attr.state != Some(QpState::Err) {
        return;
    }
    world.revive(index);
    let qpn = world.qps[index].qpn;
    for _ in 0..3 {
        let sge = Sge {
            addr: iova_of(Region::Local),
            length: 600,
            lkey: world.regions[Region::Local as usize].lkey,
        };
        let request = RecvWr {
            wr_id: RECEIVE | world.qps[index].receives.posted,
            sges: &[sge],
        };
        world.engine.post_recv(world.now, qpn, &request).unwrap();
        world.qps[index].receives.posted += 1;
    }
}

/// Which queue pair a step is for: more often than not one that is up.
fn victim(input: &mut Input<'_>) -> usize {
    input.pick(&[3, 3, 3, 3, 3, 3, 2, 2, 4, 4, 5, 5, 0, 1, 6, 3])
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
    let op = match input.byte() % 9 {
        0 => SendOperation::Send { imm: None },
        1 => SendOperation::Send { imm: Some(7) },
        2 => SendOperation::SendWithInvalidate { rkey: remote.rkey },
        3 => SendOperation::Write { remote, imm: None },
        4 => SendOperation::Write { remote, imm: Some(8) },
        5 => SendOperation::Read { remote },
        6 => SendOperation::CompareSwap {
            remote,
            compare: 1,
            swap: 2,
        },
        7 => SendOperation::FetchAdd { remote, add: 1 },
        _ => SendOperation::AtomicWrite { remote },
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
        xrc_srqn: None,
    };
    let qpn = world.qps[index].qpn;
    if world.engine.post_send(world.now, qpn, &request).is_ok() {
        world.qps[index].sends.posted += 1;
    }
}

fn post_recv(world: &mut World, input: &mut Input<'_>) {
    let index = victim(input);
    let count = usize::from(input.byte()) % 3;
    let list = sges(world, input);
    let request = RecvWr {
        wr_id: RECEIVE | world.qps[index].receives.posted,
        sges: &list[..count],
    };
    let qpn = world.qps[index].qpn;
    if world.engine.post_recv(world.now, qpn, &request).is_ok() {
        world.qps[index].receives.posted += 1;
    }
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
    let mut attr = World::attributes(index, state);
    let odd = input.byte();
    if odd >= 0xc0 {
        make_odd(&mut attr, odd & 0xf, input.byte());
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
        _ => attr.pkey_index = Some(value.into()),
    }
}

/// The interface goes down, comes up, loses its address; its receive buffer fills up.
fn change_port(world: &mut World, input: &mut Input<'_>) {
    match input.byte() & 7 {
        0 => world.set_port(PortState::Down, &[OWN_IP]),
        1 => world.set_port(PortState::Active, &[]),
        2 | 3 => world.set_port(PortState::Active, &[OWN_IP]),
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
