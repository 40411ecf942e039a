use verbs_api::{Access, Buffer, ErrorKind, LKey, RKey, Sge};

use super::*;
use crate::pd::ProtectionDomains;

mod scatter_gather;

const ALL_REMOTE: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_ATOMIC);

struct World {
    pds: ProtectionDomains,
    memory: Memory,
    pd: PdId,
}

impl World {
    fn new() -> Self {
        let mut pds = ProtectionDomains::new();
        let pd = pds.alloc().unwrap();
        World {
            pds,
            memory: Memory::new(1),
            pd,
        }
    }

    fn register(&mut self, host: HostMemory, iova: u64, access: Access) -> Result<MrInfo> {
        self.memory.register(&mut self.pds, self.pd, host, iova, access)
    }

    fn register_buffer(&mut self, buffer: &Buffer, access: Access) -> MrInfo {
        self.register(whole(buffer), buffer.addr(), access).unwrap()
    }
}

fn whole(buffer: &Buffer) -> HostMemory {
    // SAFETY: the tests keep the buffer while they use the region, and a buffer tolerates other parties.
    unsafe { HostMemory::new(buffer.as_ptr(), buffer.len()) }
}

/// A queue pair of a protection domain.
fn through(pd: PdId) -> Accessor {
    Accessor {
        pd,
        qpn: Qpn::new(0x11).unwrap(),
    }
}

/// A range that is never touched.
fn nowhere(start: usize, length: usize) -> HostMemory {
    // SAFETY: the tests that use it are refused before any byte moves.
    unsafe { HostMemory::new(std::ptr::without_provenance_mut(start), length) }
}

#[test]
fn a_remote_range_is_accepted_exactly_when_it_lies_within_the_region_even_where_sums_would_overflow() {
    const TOP: u64 = u64::MAX - 99; // The region's last byte has the address u64::MAX.
    for iova in [0, 4096, 0x7fff_ffff_f000, TOP] {
        let mut world = World::new();
        let mr = world.register(nowhere(0x10_0000, 100), iova, ALL_REMOTE).unwrap();
        let offsets = [0u64, 1, 50, 99, 100, 101, u64::MAX, u64::MAX - 99, 1 << 63];
        let lengths = [0u64, 1, 2, 50, 99, 100, 101, 1 << 31, 1 << 63, u64::MAX];
        for offset in offsets {
            for length in lengths {
                let va = iova.wrapping_add(offset);
                let start = i128::from(va) - i128::from(iova);
                let is_inside = start >= 0 && start + i128::from(length) <= 100;
                let answer = world
                    .memory
                    .remote(through(world.pd), mr.rkey, va, length, Access::REMOTE_READ);
                let expected = if is_inside {
                    Ok(())
                } else {
                    Err(MemoryFault::OutOfBounds)
                };
                assert_eq!(
                    answer, expected,
                    "iova {iova:#x}, offset {offset:#x}, length {length:#x}"
                );
            }
        }
    }
}

#[test]
fn checks_come_in_the_order_key_then_domain_then_rights_then_bounds() {
    let mut world = World::new();
    let buffer = Buffer::new(64);
    let mr = world.register_buffer(&buffer, Access::REMOTE_READ);
    let other_pd = world.pds.alloc().unwrap();
    let (good, bad_va) = (buffer.addr(), buffer.addr() + 64);
    let wrong_tag = RKey(mr.rkey.0 ^ 1);
    let remote = |pd, rkey, va, need| world.memory.remote(through(pd), rkey, va, 1, need);
    let (read, write) = (Access::REMOTE_READ, Access::REMOTE_WRITE);
    assert_eq!(
        remote(other_pd, wrong_tag, bad_va, write),
        Err(MemoryFault::BadKey)
    );
    assert_eq!(
        remote(other_pd, mr.rkey, bad_va, write),
        Err(MemoryFault::WrongPd)
    );
    assert_eq!(
        remote(world.pd, mr.rkey, bad_va, write),
        Err(MemoryFault::AccessDenied)
    );
    assert_eq!(
        remote(world.pd, mr.rkey, bad_va, read),
        Err(MemoryFault::OutOfBounds)
    );
    assert_eq!(remote(world.pd, mr.rkey, good, read), Ok(()));
}

#[test]
fn each_remote_access_needs_its_own_right_and_scattering_needs_local_write() {
    let buffer = Buffer::from_bytes(&[7; 64]);
    let rights = [
        Access::empty(),
        Access::LOCAL_WRITE,
        Access::REMOTE_READ,
        Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        Access::LOCAL_WRITE | Access::REMOTE_ATOMIC,
        ALL_REMOTE,
    ];
    for access in rights {
        let mut world = World::new();
        let mr = world.register_buffer(&buffer, access);
        let (pd, va) = (world.pd, buffer.addr());
        let granted = |need| {
            if access.contains(need) {
                Ok(())
            } else {
                Err(MemoryFault::AccessDenied)
            }
        };
        let sges = [Sge {
            addr: va,
            length: 8,
            lkey: mr.lkey,
        }];
        let memory = &world.memory;
        assert_eq!(memory.gather(pd, &sges, 0, &mut [0; 8]), Ok(()), "{access:?}");
        assert_eq!(
            memory.scatter(pd, &sges, 0, &[7; 8]),
            granted(Access::LOCAL_WRITE),
            "{access:?}"
        );
        assert_eq!(
            memory.read_remote(through(pd), mr.rkey, va, &mut [0; 8]),
            granted(Access::REMOTE_READ),
            "{access:?}"
        );
        assert_eq!(
            memory.write_remote(through(pd), mr.rkey, va, &[7; 8]),
            granted(Access::REMOTE_WRITE),
            "{access:?}"
        );
        let atomic = memory.atomic(through(pd), mr.rkey, va, AtomicOp::FetchAdd { add: 0 });
        assert_eq!(atomic.map(|_| ()), granted(Access::REMOTE_ATOMIC), "{access:?}");
    }
}

#[test]
fn keys_are_dead_after_deregistering_and_registering_the_same_memory_again_does_not_revive_them() {
    let mut world = World::new();
    let buffer = Buffer::new(64);
    let mut dead = Vec::new();
    for _ in 0..5_000 {
        let mr = world.register_buffer(&buffer, ALL_REMOTE);
        assert!(!dead.contains(&mr.rkey), "{:?} came back", mr.rkey);
        assert_eq!(
            world
                .memory
                .read_remote(through(world.pd), mr.rkey, buffer.addr(), &mut [0]),
            Ok(())
        );
        world.memory.deregister(&mut world.pds, mr.id).unwrap();
        dead.push(mr.rkey);
    }
    let _alive = world.register_buffer(&buffer, ALL_REMOTE);
    for rkey in dead {
        let answer = world
            .memory
            .read_remote(through(world.pd), rkey, buffer.addr(), &mut [0]);
        assert_eq!(answer, Err(MemoryFault::BadKey));
    }
}

#[test]
fn deregistering_twice_is_an_error_and_a_domain_stays_busy_while_a_region_stands_in_it() {
    let mut world = World::new();
    let mr = world.register_buffer(&Buffer::new(8), ALL_REMOTE);
    assert_eq!(world.pds.dealloc(world.pd).unwrap_err().kind(), ErrorKind::Busy);
    world.memory.deregister(&mut world.pds, mr.id).unwrap();
    let again = world.memory.deregister(&mut world.pds, mr.id).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::Invalid);
    world.pds.dealloc(world.pd).unwrap();
}

#[test]
fn keys_have_a_zero_tag_are_never_zero_and_no_stranger_is_let_in() {
    let mut world = World::new();
    let buffer = Buffer::new(8);
    let keys: Vec<u32> = (0..1_000)
        .map(|_| world.register_buffer(&buffer, ALL_REMOTE).rkey.0)
        .collect();
    assert!(keys.iter().all(|key| *key != 0 && key & 0xff == 0));
    let mut hits = 0;
    for key in (0..u32::MAX).step_by(997) {
        let answer = world
            .memory
            .read_remote(through(world.pd), RKey(key), buffer.addr(), &mut [0]);
        hits += usize::from(answer.is_ok());
        assert_eq!(answer.is_ok(), keys.contains(&key), "key {key:#x}");
    }
    assert!(hits < 100);
    assert_eq!(
        world
            .memory
            .read_remote(through(world.pd), RKey(0), buffer.addr(), &mut [0]),
        Err(MemoryFault::BadKey)
    );
}

#[test]
fn the_id_whose_key_would_be_zero_is_passed_over() {
    // Of a few thousand seeds, look for one whose zero falls on one of the first places.
    let mut met = 0;
    for seed in 0..20_000 {
        let zero = KeyPermutation::new(seed).id_of(0);
        if zero >= 2_000 {
            continue;
        }
        met += 1;
        let mut world = World {
            memory: Memory::new(seed),
            ..World::new()
        };
        let mrs: Vec<MrInfo> = (0..2_001)
            .map(|_| world.register(nowhere(8, 8), 8, ALL_REMOTE).unwrap())
            .collect();
        assert!(mrs.iter().all(|mr| mr.rkey != RKey(0) && mr.id != MrId(zero)));
        let passed_over = mrs[zero as usize];
        assert!(
            world
                .memory
                .remote(through(world.pd), passed_over.rkey, 8, 8, Access::REMOTE_READ)
                .is_ok()
        );
    }
    assert!(met > 0, "no seed met the case; try more");
}

#[test]
fn registering_refuses_what_no_region_can_be() {
    let mut world = World::new();
    let good = || nowhere(0x1000, 16);
    let refused = [
        (world.register(good(), 0, Access::REMOTE_WRITE), "LOCAL_WRITE"),
        (
            world.register(good(), 0, Access::REMOTE_ATOMIC | Access::REMOTE_READ),
            "LOCAL_WRITE",
        ),
        (world.register(nowhere(0x1000, 0), 0, Access::empty()), "0 bytes"),
        (
            world.register(nowhere(usize::MAX - 14, 16), 0, Access::empty()),
            "wrap",
        ),
        (world.register(good(), u64::MAX - 14, Access::empty()), "wrap"),
        (
            world.register(good(), 0, Access::from_bits_retain(1 << 12)),
            "0x1000",
        ),
    ];
    for (answer, word) in refused {
        let error = answer.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains(word), "{error}");
    }
    assert_eq!(
        world.register(good(), 0, Access::ON_DEMAND).is_ok(),
        HAS_ON_DEMAND
    );
    let error = world.register(good(), 0, Access::FLUSH_PERSISTENT).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    // Nothing was counted, and optional flags that nobody knows are let pass.
    world
        .register(good(), u64::MAX - 15, Access::from_bits_retain(1 << 25))
        .unwrap();
    let gone = world.pds.alloc().unwrap();
    world.pds.dealloc(gone).unwrap();
    let answer = world
        .memory
        .register(&mut world.pds, gone, good(), 0, Access::empty());
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn the_region_beyond_the_limit_is_refused_with_no_memory() {
    let mut world = World::new();
    let mrs: Vec<MrInfo> = (0..MAX_MR)
        .map(|_| world.register(nowhere(8, 8), 8, Access::empty()).unwrap())
        .collect();
    assert_eq!(
        world
            .register(nowhere(8, 8), 8, Access::empty())
            .unwrap_err()
            .kind(),
        ErrorKind::NoMemory
    );
    world.memory.deregister(&mut world.pds, mrs[77].id).unwrap();
    let next = world.register(nowhere(8, 8), 8, Access::empty()).unwrap();
    assert_ne!(next.rkey, mrs[77].rkey);
}

#[test]
fn a_zero_based_region_counts_addresses_from_zero() {
    let mut world = World::new();
    let buffer = Buffer::from_bytes(b"0123456789");
    let mr = world
        .register(whole(&buffer), buffer.addr(), ALL_REMOTE | Access::ZERO_BASED)
        .unwrap();
    let mut out = [0; 3];
    world
        .memory
        .read_remote(through(world.pd), mr.rkey, 7, &mut out)
        .unwrap();
    assert_eq!(&out, b"789");
    let at_own_address = world
        .memory
        .read_remote(through(world.pd), mr.rkey, buffer.addr(), &mut out);
    assert_eq!(at_own_address, Err(MemoryFault::OutOfBounds));
}

#[test]
fn re_registering_changes_what_was_asked_and_kills_the_old_keys() {
    let mut world = World::new();
    let (first, second) = (Buffer::from_bytes(&[1; 8]), Buffer::from_bytes(&[2; 16]));
    let old = world.register_buffer(&first, Access::REMOTE_READ);
    let other_pd = world.pds.alloc().unwrap();
    let new = world
        .memory
        .reregister(
            &mut world.pds,
            old.id,
            Some(other_pd),
            Some((whole(&second), second.addr())),
            Some(ALL_REMOTE),
        )
        .unwrap();
    let read = |pd, rkey, va| {
        let mut byte = [0];
        world
            .memory
            .read_remote(through(pd), rkey, va, &mut byte)
            .map(|()| byte[0])
    };
    assert_eq!(read(other_pd, new.rkey, second.addr() + 15), Ok(2));
    assert_eq!(read(other_pd, old.rkey, first.addr()), Err(MemoryFault::BadKey));
    assert_eq!(read(world.pd, new.rkey, second.addr()), Err(MemoryFault::WrongPd));
    world
        .memory
        .write_remote(through(other_pd), new.rkey, second.addr(), &[3])
        .unwrap();
    assert_eq!(
        world
            .memory
            .deregister(&mut world.pds, old.id)
            .unwrap_err()
            .kind(),
        ErrorKind::Invalid
    );
    // The count moved along: the old domain is free, the new one is not.
    world.pds.dealloc(world.pd).unwrap();
    assert_eq!(world.pds.dealloc(other_pd).unwrap_err().kind(), ErrorKind::Busy);
}

#[test]
fn a_refused_re_registration_leaves_the_region_as_it_was() {
    let mut world = World::new();
    let buffer = Buffer::from_bytes(&[5; 8]);
    let mr = world.register_buffer(&buffer, Access::REMOTE_READ);
    let gone = world.pds.alloc().unwrap();
    world.pds.dealloc(gone).unwrap();
    let changes = [
        (Some(gone), None, None),
        (None, Some((nowhere(1, 0), 0)), None),
        (None, None, Some(Access::REMOTE_WRITE)),
    ];
    for (pd, translation, access) in changes {
        let error = world
            .memory
            .reregister(&mut world.pds, mr.id, pd, translation, access)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        let mut byte = [0];
        world
            .memory
            .read_remote(through(world.pd), mr.rkey, buffer.addr(), &mut byte)
            .unwrap();
        assert_eq!(byte, [5]);
    }
    world.memory.deregister(&mut world.pds, mr.id).unwrap();
    world.pds.dealloc(world.pd).unwrap();
}

#[test]
fn the_null_region_reads_as_zeros_swallows_writes_and_is_closed_to_peers() {
    let mut world = World::new();
    let null = world.memory.register_null(&mut world.pds, world.pd).unwrap();
    let sges = [
        Sge {
            addr: u64::MAX - 3,
            length: 4,
            lkey: null.lkey,
        },
        Sge {
            addr: 0,
            length: 4,
            lkey: null.lkey,
        },
    ];
    world.memory.scatter(world.pd, &sges, 0, &[9; 8]).unwrap();
    let mut out = [9; 8];
    world.memory.gather(world.pd, &sges, 0, &mut out).unwrap();
    assert_eq!(out, [0; 8]);
    let (pd, rkey) = (world.pd, null.rkey);
    assert_eq!(
        world.memory.read_remote(through(pd), rkey, 0, &mut out),
        Err(MemoryFault::AccessDenied)
    );
    assert_eq!(
        world.memory.write_remote(through(pd), rkey, 0, &out),
        Err(MemoryFault::AccessDenied)
    );
    let atomic = world
        .memory
        .atomic(through(pd), rkey, 0, AtomicOp::FetchAdd { add: 1 });
    assert_eq!(atomic, Err(MemoryFault::AccessDenied));
    let opened = world
        .memory
        .reregister(&mut world.pds, null.id, None, None, Some(ALL_REMOTE));
    assert_eq!(opened.unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn atomics_return_the_old_value_and_swap_only_on_equality_and_add_with_wrap_around() {
    let mut world = World::new();
    let buffer = Buffer::new(16);
    buffer.store_u64(8, 41);
    let mr = world.register_buffer(&buffer, ALL_REMOTE);
    let va = buffer.addr() + 8;
    let atomic = |op| world.memory.atomic(through(world.pd), mr.rkey, va, op);
    assert_eq!(atomic(AtomicOp::CompareSwap { compare: 40, swap: 1 }), Ok(41));
    assert_eq!(buffer.load_u64(8), 41);
    assert_eq!(
        atomic(AtomicOp::CompareSwap {
            compare: 41,
            swap: u64::MAX
        }),
        Ok(41)
    );
    assert_eq!(buffer.load_u64(8), u64::MAX);
    assert_eq!(atomic(AtomicOp::FetchAdd { add: 3 }), Ok(u64::MAX));
    assert_eq!((buffer.load_u64(0), buffer.load_u64(8)), (0, 2));
}

#[test]
fn a_misaligned_atomic_is_told_before_a_bad_key_and_also_when_only_the_memory_is_misaligned() {
    let mut world = World::new();
    let buffer = Buffer::new(32);
    let op = AtomicOp::FetchAdd { add: 1 };
    for bits in 1..8 {
        let answer = world
            .memory
            .atomic(through(world.pd), RKey(0xdead_0000), buffer.addr() + bits, op);
        assert_eq!(answer, Err(MemoryFault::Misaligned));
    }
    // SAFETY: within the buffer, which outlives the region.
    let odd = unsafe { HostMemory::new(buffer.as_ptr().wrapping_add(4), 16) };
    let mr = world.register(odd, 0x1000, ALL_REMOTE).unwrap();
    assert_eq!(
        world.memory.atomic(through(world.pd), mr.rkey, 0x1000, op),
        Err(MemoryFault::Misaligned)
    );
    assert_eq!(buffer.to_vec(0..32), [0; 32]);
}

#[test]
fn atomics_from_the_program_and_from_peers_add_up() {
    const ADDS: u64 = 100_000;
    let mut world = World::new();
    let buffer = Buffer::new(8);
    let mr = world.register_buffer(&buffer, ALL_REMOTE);
    let world = &world;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for _ in 0..ADDS {
                    let op = AtomicOp::FetchAdd { add: 1 };
                    world
                        .memory
                        .atomic(through(world.pd), mr.rkey, buffer.addr(), op)
                        .unwrap();
                }
            });
        }
    });
    assert_eq!(buffer.load_u64(0), 2 * ADDS);
}

#[test]
fn a_list_shorter_than_the_bytes_asked_for_is_out_of_bounds() {
    let mut world = World::new();
    let buffer = Buffer::new(64);
    let mr = world.register_buffer(&buffer, ALL_REMOTE);
    let sges = [Sge {
        addr: buffer.addr(),
        length: 8,
        lkey: mr.lkey,
    }];
    let memory = &world.memory;
    assert_eq!(
        memory.gather(world.pd, &sges, 1, &mut [0; 8]),
        Err(MemoryFault::OutOfBounds)
    );
    assert_eq!(
        memory.gather(world.pd, &[], 0, &mut [0]),
        Err(MemoryFault::OutOfBounds)
    );
    assert_eq!(
        memory.scatter(world.pd, &sges, u64::MAX, &[0]),
        Err(MemoryFault::OutOfBounds)
    );
    assert_eq!(memory.gather(world.pd, &[], u64::MAX, &mut []), Ok(()));
}

#[test]
fn empty_entries_are_not_checked() {
    let mut world = World::new();
    let buffer = Buffer::from_bytes(b"ab");
    let mr = world.register_buffer(&buffer, Access::empty());
    let nonsense = Sge {
        addr: u64::MAX,
        length: 0,
        lkey: LKey(0xdead_beef),
    };
    let sges = [
        nonsense,
        Sge {
            addr: buffer.addr(),
            length: 2,
            lkey: mr.lkey,
        },
        nonsense,
    ];
    let mut out = [0; 2];
    world.memory.gather(world.pd, &sges, 0, &mut out).unwrap();
    assert_eq!(&out, b"ab");
}
