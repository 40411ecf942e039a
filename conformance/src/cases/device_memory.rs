//! Device memory.

use verbs_api::{
    Access, Context as _, DeviceMemory, ErrorKind, MemoryRegion, Object, ProtectionDomain, RemoteAddr,
    SendOp, Sge, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, pattern, read, same_bytes, send, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "H0-DM",
            "device memory is written, read and reached from the peer",
            &["DM-1"],
            device_memory,
        )
        .needing(&[Need::DeviceMemory])
        .of_priority(2),
        Case::verbs(
            "H0-DM-BAD",
            "device memory ends where it ends, and stays while a region stands on it",
            &["DM-2"],
            device_memory_bounds,
        )
        .needing(&[Need::DeviceMemory])
        .of_priority(2),
        Case::verbs(
            "B10-DM",
            "device memory that was freed can be had again, and no more than there is",
            &["DM-3"],
            device_memory_again,
        )
        .needing(&[Need::DeviceMemory])
        .of_priority(2),
    ]
}

fn device_memory<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let dm = scene.context(Side::Right).alloc_dm(4096, 3)?;
    let mut bytes = [1; 16];
    dm.read(4080, &mut bytes)?;
    same!(bytes, [0; 16], "fresh device memory");
    dm.write(100, &pattern(1, 500))?;
    let access = full_access() | Access::ZERO_BASED;
    let mr = pair.right.pd.reg_dm_mr(&dm, 64, 1024, access)?;
    let remote = |offset: u64| RemoteAddr {
        addr: offset,
        rkey: mr.rkey(),
    };
    let own = pair.left.region(500, full_access())?;
    pair.left.send(1, read(remote(36)), &[own.whole()])?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    same_bytes(
        "device memory READ by the peer",
        &own.buffer.to_vec(0..500),
        &pattern(1, 500),
    )?;
    own.scribble(2);
    pair.left.send(2, write(remote(524)), &[own.whole()])?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    let mut bytes = vec![0; 500];
    dm.read(588, &mut bytes)?;
    same_bytes("device memory written by the peer", &bytes, &pattern(2, 500))?;
    if scene.bed.has(Need::Atomics) {
        dm.write(64, &7u64.to_ne_bytes())?;
        let op = SendOp::FetchAdd {
            remote: remote(0),
            add: 3,
        };
        pair.left.send(3, op, &[own.sge(0..8)])?;
        scene.ends_with(&pair.left.send_cq, 3, WcStatus::Success)?;
        let mut word = [0; 8];
        dm.read(64, &mut word)?;
        same!(
            (own.buffer.load_u64(0), u64::from_ne_bytes(word)),
            (7, 10),
            "old and new value of an atomic in device memory"
        );
    }
    // And sent from here.
    let entry = Sge {
        addr: 36,
        length: 500,
        lkey: mr.lkey(),
    };
    pair.left.recv(4, &[own.whole()])?;
    pair.right.send(5, send(), &[entry])?;
    scene.ends_with(&pair.right.send_cq, 5, WcStatus::Success)?;
    scene.ends_with(&pair.left.recv_cq, 4, WcStatus::Success)?;
    same_bytes(
        "device memory that was sent",
        &own.buffer.to_vec(0..400),
        &pattern(1, 500)[..400],
    )?;
    pair.left.send(6, write(remote(1020)), &[own.sge(0..5)])?;
    scene.ends_with(&pair.left.send_cq, 6, WcStatus::RemAccessErr)?;
    Ok(())
}

fn device_memory_bounds<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Left, &Setup::default())?;
    let context = scene.context(Side::Left);
    let dm = context.alloc_dm(256, 0)?;
    let mut two = [0; 2];
    check!(
        dm.read(255, &mut two).is_err(),
        "two bytes were read from the last one on"
    );
    check!(
        dm.write(255, &two).is_err(),
        "two bytes were written from the last one on"
    );
    check!(
        dm.write(u64::MAX, &two).is_err(),
        "bytes were written at the end of all numbers"
    );
    // In the units of four bytes that every device copies in.
    dm.write(252, &[1, 2, 3, 4])?;
    dm.write(0, &[5; 252])?;
    let mut last = [0; 8];
    dm.read(248, &mut last)?;
    same!(last, [5, 5, 5, 5, 1, 2, 3, 4], "the last bytes of device memory");
    // Beyond the end, and not in such units.
    let refused = [
        (252, 8),
        (256, 4),
        (0, 260),
        (u64::MAX - 3, 4),
        (1 << 32, 4),
        (2, 4),
        (0, 2),
    ];
    for (offset, length) in refused {
        check!(
            dm.write(offset, &vec![0; length]).is_err(),
            "{length} bytes were written at {offset} of 256"
        );
        check!(
            dm.read(offset, &mut vec![0; length]).is_err(),
            "{length} bytes were read at {offset} of 256"
        );
    }
    check!(
        context.alloc_dm(64, 40).is_err(),
        "device memory was aligned to 2^40 bytes"
    );
    let access = full_access() | Access::ZERO_BASED;
    check!(
        node.pd.reg_dm_mr(&dm, 1, 256, access).is_err(),
        "a region beyond the device memory was registered"
    );
    check!(
        node.pd.reg_dm_mr(&dm, 0, 256, full_access()).is_err(),
        "a region of device memory was registered under an address, which it does not have"
    );
    check!(
        context.alloc_dm(0, 0).is_err(),
        "device memory of no byte was allocated"
    );
    let mr = node.pd.reg_dm_mr(&dm, 0, 256, access)?;
    let dm = match dm.destroy() {
        Ok(()) => return Err(Failure::new("device memory with a region was freed")),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            refused.object
        }
    };
    mr.destroy()?;
    dm.destroy()?;
    Ok(())
}

fn device_memory_again<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let all = context.query_device()?.max_dm_bytes;
    let half = (all / 2) as usize;
    for round in 0..3 {
        let halves = [context.alloc_dm(half, 3)?, context.alloc_dm(half, 3)?];
        for length in [1, half] {
            match context.alloc_dm(length, 0) {
                Ok(_) => {
                    return Err(Failure::new(format!(
                        "{length} bytes more than the {all} of the device, in round {round}"
                    )));
                }
                Err(error) => same!(error.kind(), ErrorKind::NoMemory, "error ({error})"),
            }
        }
        for dm in halves {
            dm.write(0, &[0xff; 64])?;
            dm.destroy()?;
        }
    }
    let dm = context.alloc_dm(half, 6)?;
    let mut bytes = [1; 64];
    dm.read(0, &mut bytes)?;
    same!(bytes, [0; 64], "device memory that somebody else had before");
    dm.destroy()?;
    Ok(())
}
