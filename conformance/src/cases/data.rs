//! Messages of all lengths and forms arrive byte for byte.

use verbs_api::{Context, Mtu, SendOp, Sge, WcFlags, WcOpcode, WcStatus};

use crate::case::Case;
use crate::outcome::CaseResult;
use crate::pair::{Pair, Region, Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "D1",
            "SENDs of every size and path MTU arrive",
            &["SEND-1", "SEND-2", "PACKET-1"],
            send_sizes,
        ),
        Case::verbs(
            "D2-WRITE",
            "WRITEs of every size and path MTU arrive",
            &["WRITE-1", "PACKET-1"],
            write_sizes,
        ),
        Case::verbs(
            "D2-READ",
            "READs of every size and path MTU come back",
            &["READ-1", "PACKET-1"],
            read_sizes,
        ),
        Case::verbs(
            "D4",
            "lists of odd and empty entries are gathered and scattered",
            &["SGE-1"],
            entry_lists,
        ),
        Case::verbs("D15", "the PSN wraps", &["PSN-1", "READ-2"], psn_wrap),
        Case::verbs(
            "D19",
            "READs and WRITEs cross each other on one queue pair",
            &["ORDER-1"],
            both_ways,
        ),
    ]
}

fn sizes(mtu: Mtu) -> Vec<usize> {
    let mtu_bytes = mtu.bytes();
    let mut sizes = vec![0, 1, 2, 3, 4, 7, 8];
    for packets in [1, 2, 5] {
        sizes.extend([
            packets * mtu_bytes - 1,
            packets * mtu_bytes,
            packets * mtu_bytes + 1,
        ]);
    }
    if mtu == Mtu::Mtu1024 {
        sizes.extend([100_003, 1 << 20]);
    }
    sizes
}

/// Run `one` for every path MTU that the port carries, with two regions that are large enough.
fn for_all_sizes<B: Testbed>(
    scene: &mut Scene<B>,
    one: impl Fn(&mut Scene<B>, &Pair<B::P>, &[Region<B::P>; 2], usize) -> CaseResult,
) -> CaseResult {
    let active = scene.context(Side::Left).query_port(1)?.active_mtu;
    for mtu in Mtu::ALL.into_iter().filter(|mtu| *mtu <= active) {
        let pair = scene.pair(&Setup {
            mtu,
            ..Setup::default()
        })?;
        let longest = *sizes(mtu).iter().max().unwrap_or(&0) + 16;
        let regions = [
            pair.left.region(longest, full_access())?,
            pair.right.region(longest, full_access())?,
        ];
        for size in sizes(mtu) {
            regions[0].scribble(size as u64);
            regions[1].buffer.fill(0..longest, 0xEE);
            one(scene, &pair, &regions, size)
                .map_err(|e| e.during(format!("{size} bytes at a path MTU of {}", mtu.bytes())))?;
        }
        scene.still_works(&pair)?;
    }
    Ok(())
}

/// The first `size` bytes are the sender's, the rest untouched.
fn arrived(sink: &verbs_api::Buffer, source: &verbs_api::Buffer, size: usize) -> CaseResult {
    same_bytes("received bytes", &sink.to_vec(0..size), &source.to_vec(0..size))?;
    same_bytes(
        "bytes behind",
        &sink.to_vec(size..sink.len()),
        &vec![0xEE; sink.len() - size],
    )
}

fn send_sizes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for_all_sizes(scene, |scene, pair, [source, sink], size| {
        pair.right.recv(2, &[sink.whole()])?;
        pair.left
            .send(1, SendOp::Send { imm: None }, &[source.sge(0..size)])?;
        let sent = scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        same!(
            (sent.opcode, sent.qp_num),
            (WcOpcode::Send, pair.left.endpoint.qpn),
            "completion of the SEND"
        );
        let wc = scene.ends_with(&pair.right.recv_cq, 2, WcStatus::Success)?;
        same!(wc.byte_len as usize, size, "byte_len of the receive");
        same!(
            (wc.opcode, wc.qp_num),
            (WcOpcode::Recv, pair.right.endpoint.qpn),
            "completion of the receive"
        );
        same!(
            wc.flags & (WcFlags::WITH_IMM | WcFlags::WITH_INV),
            WcFlags::empty(),
            "flags of a plain receive"
        );
        arrived(&sink.buffer, &source.buffer, size)
    })
}

fn write_sizes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for_all_sizes(scene, |scene, pair, [source, sink], size| {
        let op = SendOp::Write {
            remote: sink.remote(0),
            imm: None,
        };
        pair.left.send(1, op, &[source.sge(0..size)])?;
        let wc = scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        same!(wc.opcode, WcOpcode::RdmaWrite, "opcode of the completion");
        arrived(&sink.buffer, &source.buffer, size)
    })
}

fn read_sizes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for_all_sizes(scene, |scene, pair, [source, sink], size| {
        // Right reads what left holds.
        let op = SendOp::Read {
            remote: source.remote(0),
        };
        pair.right.send(1, op, &[sink.sge(0..size)])?;
        let wc = scene.ends_with(&pair.right.send_cq, 1, WcStatus::Success)?;
        same!(
            (wc.opcode, wc.byte_len as usize),
            (WcOpcode::RdmaRead, size),
            "completion of the READ"
        );
        arrived(&sink.buffer, &source.buffer, size)
    })
}

/// Entries of these lengths, one behind the other with a gap of 3 bytes between them.
fn spread<P: verbs_api::Provider>(region: &Region<P>, lengths: &[usize]) -> Vec<Sge> {
    let mut at = 1;
    lengths
        .iter()
        .map(|length| {
            let sge = region.sge(at..at + length);
            at += length + 3;
            sge
        })
        .collect()
}

fn gathered<P: verbs_api::Provider>(region: &Region<P>, sges: &[Sge]) -> Vec<u8> {
    let base = region.whole().addr;
    sges.iter()
        .flat_map(|sge| {
            let start = (sge.addr - base) as usize;
            region.buffer.to_vec(start..start + sge.length as usize)
        })
        .collect()
}

fn entry_lists<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        mtu: Mtu::Mtu256,
        ..Setup::default()
    })?;
    let (source, sink) = (
        pair.left.region(8192, full_access())?,
        pair.right.region(8192, full_access())?,
    );
    let lists: [(&[usize], &[usize]); 6] = [
        (&[5], &[2, 3]),
        (&[0, 7, 0, 9], &[16]),
        (&[255, 1, 257, 3], &[511, 5, 0, 1]),
        (&[1, 1, 1, 1], &[4]),
        (&[1000, 0, 1], &[3, 997, 1, 0]),
        (&[], &[]),
    ];
    for (round, (from, to)) in lists.into_iter().enumerate() {
        source.scribble(round as u64);
        let (gather, scatter) = (spread(&source, from), spread(&sink, to));
        let expected = gathered(&source, &gather);
        let what = format!("gather {from:?}, scatter {to:?}");

        sink.buffer.fill(0..8192, 0);
        pair.right.recv(2, &scatter)?;
        pair.left.send(1, SendOp::Send { imm: None }, &gather)?;
        scene
            .ends_with(&pair.left.send_cq, 1, WcStatus::Success)
            .map_err(|e| e.during(&what))?;
        let wc = scene
            .ends_with(&pair.right.recv_cq, 2, WcStatus::Success)
            .map_err(|e| e.during(&what))?;
        same!(wc.byte_len as usize, expected.len(), "byte_len of {what}");
        same_bytes(
            &format!("SEND, {what}"),
            &gathered(&sink, &scatter)[..expected.len()],
            &expected,
        )?;
        let covered: usize = sink.buffer.to_vec(0..8192).iter().filter(|b| **b != 0).count();
        check!(
            covered <= expected.len(),
            "{what}: {covered} bytes were written, more than sent"
        );

        // READ scatters as well: left gathers nothing, right pulls a contiguous range of left's.
        sink.buffer.fill(0..8192, 0);
        let op = SendOp::Read {
            remote: source.remote(17),
        };
        pair.right.send(3, op, &scatter)?;
        scene
            .ends_with(&pair.right.send_cq, 3, WcStatus::Success)
            .map_err(|e| e.during(&what))?;
        let total = scatter.iter().map(|sge| sge.length as usize).sum::<usize>();
        same_bytes(
            &format!("READ, scatter {to:?}"),
            &gathered(&sink, &scatter),
            &source.buffer.to_vec(17..17 + total),
        )?;
    }
    scene.still_works(&pair)
}

fn psn_wrap<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        mtu: Mtu::Mtu256,
        psn: [0xFF_FFF0, 0xFF_FFFE],
        ..Setup::default()
    };
    let pair = scene.pair(&setup)?;
    let (own, far) = (
        pair.left.region(8192, full_access())?,
        pair.right.region(8192, full_access())?,
    );
    for round in 0..40u64 {
        own.scribble(round);
        let size = 256 * (round as usize % 9) + 3;
        pair.right.recv(1, &[far.sge(0..4096)])?;
        pair.left
            .send(2, SendOp::Send { imm: None }, &[own.sge(0..size)])?;
        pair.left.send(
            3,
            SendOp::Read {
                remote: far.remote(0),
            },
            &[own.sge(4096..4096 + size)],
        )?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        scene.ends_with(&pair.left.send_cq, 3, WcStatus::Success)?;
        scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
        same_bytes(
            "sent and read back",
            &own.buffer.to_vec(4096..4096 + size),
            &own.buffer.to_vec(0..size),
        )?;
        // And the other direction, whose PSNs wrap as well.
        let op = SendOp::Write {
            remote: own.remote(0),
            imm: None,
        };
        pair.right.send(4, op, &[far.sge(0..size)])?;
        scene.ends_with(&pair.right.send_cq, 4, WcStatus::Success)?;
    }
    scene.still_works(&pair)
}

fn both_ways<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    const HALF: usize = 50_000;
    let regions = [
        pair.left.region(3 * HALF, full_access())?,
        pair.right.region(3 * HALF, full_access())?,
    ];
    for round in 0..6u64 {
        // Each region: own data, what is read from the peer, what the peer writes.
        for (n, region) in regions.iter().enumerate() {
            region.buffer.fill(HALF..3 * HALF, 0);
            region.buffer.write(0, &pattern(round * 2 + n as u64, HALF));
        }
        for side in Side::BOTH {
            let (own, far) = (&regions[side.index()], &regions[side.peer().index()]);
            let node = pair.node(side);
            node.send(
                1,
                SendOp::Read {
                    remote: far.remote(0),
                },
                &[own.sge(HALF..2 * HALF)],
            )?;
            node.send(
                2,
                SendOp::Write {
                    remote: far.remote(2 * HALF),
                    imm: None,
                },
                &[own.sge(0..HALF)],
            )?;
        }
        for side in Side::BOTH {
            scene.ends_with(&pair.node(side).send_cq, 1, WcStatus::Success)?;
            scene.ends_with(&pair.node(side).send_cq, 2, WcStatus::Success)?;
        }
        for side in Side::BOTH {
            let (own, far) = (
                &regions[side.index()].buffer,
                &regions[side.peer().index()].buffer,
            );
            same_bytes("what was read", &own.to_vec(HALF..2 * HALF), &far.to_vec(0..HALF))?;
            same_bytes(
                "what the peer wrote",
                &own.to_vec(2 * HALF..3 * HALF),
                &far.to_vec(0..HALF),
            )?;
        }
    }
    scene.still_works(&pair)
}
