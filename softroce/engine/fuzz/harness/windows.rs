//! What a program does with memory windows, device memory, ATOMIC WRITE and FLUSH.

use softroce_engine::{BindRequest, MwId, SendOperation, SendRequest};
use verbs_api::{Access, MwType, Payload, RKey, RemoteAddr, SendFlags};

use super::input::Input;
use super::memory::{ALL_REGIONS, REGION_BYTES, iova_of};
use super::world::World;

/// Windows of the world: the first is of type 1.
pub const WINDOWS: usize = 3;

/// A window, and the key that it had last.
#[derive(Clone, Copy)]
pub struct Window {
    pub id: MwId,
    pub rkey: RKey,
}

pub fn alloc(world: &mut World, index: usize) -> Window {
    let (id, rkey) = world.engine.alloc_mw(world.pd, type_of(index)).unwrap();
    Window { id, rkey }
}

fn type_of(index: usize) -> MwType {
    if index == 0 { MwType::Type1 } else { MwType::Type2 }
}

/// Something with a window, through queue pair `index`.
pub fn step(world: &mut World, index: usize, input: &mut Input<'_>) {
    let choice = input.byte();
    let which = usize::from(choice >> 4) % WINDOWS;
    match choice & 0xf {
        0 => {
            world.engine.dealloc_mw(world.windows[which].id).unwrap();
            world.windows[which] = alloc(world, which);
        }
        1..=4 => bind_type1(world, index, input),
        5..=9 => {
            let op = bind_type2(world, which, input);
            post(world, index, op, input);
        }
        10..=12 => {
            let rkey = key(world, which, input);
            post(world, index, SendOperation::LocalInvalidate { rkey }, input);
        }
        13 => {
            let rkey = key(world, which, input);
            post(world, index, SendOperation::SendWithInvalidate { rkey }, input);
        }
        14 => {
            let flush = SendOperation::Flush {
                remote: RemoteAddr::default(),
                length: input.u32(),
                placement: u32::from(input.byte() & 7),
                whole_mr: choice & 0x10 == 0,
            };
            post(world, index, flush, input);
        }
        _ => {
            let remote = RemoteAddr::default();
            post(world, index, SendOperation::AtomicWrite { remote }, input);
        }
    }
}

fn key(world: &World, which: usize, input: &mut Input<'_>) -> RKey {
    let key = world.windows[which].rkey;
    match input.byte() {
        0..=0xbf => key,
        value @ 0xc0..=0xdf => RKey(key.0 ^ u32::from(value & 0x1f)),
        value @ 0xe0..=0xef => world.regions[usize::from(value) % ALL_REGIONS.len()].rkey,
        _ => RKey(input.u32()),
    }
}

/// What a bind is to: mostly within a region.
fn place(world: &World, input: &mut Input<'_>) -> (softroce_engine::MrId, u64, u64, Access) {
    let region = ALL_REGIONS[usize::from(input.byte()) % ALL_REGIONS.len()];
    let start = iova_of(region);
    let (addr, length) = match input.byte() {
        0..=0x7f => (start, REGION_BYTES as u64),
        value @ 0x80..=0xbf => (start + u64::from(value & 0x3f), 64),
        value @ 0xc0..=0xdf => (start, REGION_BYTES as u64 + u64::from(value & 0x1f)),
        0xe0 => (start, 0),
        0xe1 => (u64::MAX - 3, 8),
        0xe2 => (start, u64::MAX),
        value => (start.wrapping_sub(u64::from(value & 0xf)), 64),
    };
    let access = Access::from_bits_truncate(u32::from(input.u16()) & 0x12f);
    (world.regions[region as usize].id, addr, length, access)
}

fn bind_type1(world: &mut World, index: usize, input: &mut Input<'_>) {
    let (mr, addr, length, access) = place(world, input);
    let request = BindRequest {
        wr_id: world.qps[index].sends.posted,
        flags: SendFlags::from_bits_truncate(input.byte().into()),
        mr: Some(mr),
        addr,
        length,
        access,
    };
    let (qpn, mw) = (world.qps[index].qpn, world.windows[0].id);
    if let Ok(rkey) = world.engine.bind_mw(world.now, qpn, mw, &request) {
        world.windows[0].rkey = rkey;
        world.qps[index].sends.posted += 1;
    }
}

fn bind_type2(world: &mut World, which: usize, input: &mut Input<'_>) -> SendOperation {
    let (mr, addr, length, access) = place(world, input);
    let rkey = RKey(key(world, which, input).0 ^ u32::from(input.byte() & 3));
    if which > 0 {
        world.windows[which].rkey = rkey;
    }
    SendOperation::BindMw {
        mw: world.windows[which].id,
        rkey,
        mr,
        addr,
        length,
        access,
    }
}

fn post(world: &mut World, index: usize, op: SendOperation, input: &mut Input<'_>) {
    let word = [0x77; 8];
    let request = SendRequest {
        wr_id: world.qps[index].sends.posted,
        op,
        payload: match input.byte() & 3 {
            0 => Payload::Sges(&[]),
            _ => Payload::Inline(&word),
        },
        flags: SendFlags::from_bits_truncate(input.byte().into()),
        xrc_srqn: None,
    };
    let qpn = world.qps[index].qpn;
    if world.engine.post_send(world.now, qpn, &request).is_ok() {
        world.qps[index].sends.posted += 1;
    }
}

/// The program is done with its windows: nothing holds the regions any more.
pub fn finish(world: &mut World) {
    for window in std::mem::take(&mut world.windows) {
        world.engine.dealloc_mw(window.id).unwrap();
    }
    world.engine.dealloc_mw(world.mw).unwrap();
    for (region, mr) in ALL_REGIONS.into_iter().zip(world.regions) {
        let is_gone = world.engine.dereg_mr(mr.id).is_err();
        assert!(
            !is_gone || region == super::memory::Region::Doomed,
            "{region:?} is held"
        );
    }
    let left = world.engine.objects();
    assert_eq!((left.mrs, left.mws), (0, 0));
}
