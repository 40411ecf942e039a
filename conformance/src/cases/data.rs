//! The data path when nothing goes wrong.

use std::time::Duration;

use verbs_api::{
    Access, Context, LKey, Mtu, Payload, QueuePair, RecvWr, SendFlags, SendOp, SendWr, Sge, SqSigType,
    WcFlags, WcOpcode, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
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
        Case::verbs(
            "D5-SEND",
            "SEND carries its immediate",
            &["IMM-1"],
            send_immediate,
        ),
        Case::verbs(
            "D5-WRITE",
            "WRITE with immediate takes one receive",
            &["IMM-1", "IMM-2"],
            write_immediate,
        ),
        Case::verbs(
            "D6",
            "WRITE without immediate takes no receive",
            &["WRITE-2"],
            write_takes_no_receive,
        ),
        Case::verbs(
            "D9",
            "inline data is copied when posted",
            &["INLINE-1"],
            inline_data,
        ),
        Case::verbs(
            "D10",
            "unsignalled requests complete silently and free their slots",
            &["SIGNAL-1", "SIGNAL-2"],
            unsignalled,
        ),
        Case::verbs(
            "D10-all",
            "sq_sig_all makes every request complete",
            &["SIGNAL-1"],
            all_signalled,
        )
        .of_priority(2),
        Case::verbs(
            "D11-V",
            "a fenced request waits for earlier READs",
            &["FENCE-1"],
            fenced,
        )
        .of_priority(2),
        Case::verbs("D15", "the PSN wraps", &["PSN-1", "READ-2"], psn_wrap),
        Case::verbs(
            "D19",
            "READs and WRITEs cross each other on one queue pair",
            &["ORDER-1"],
            both_ways,
        ),
        Case::verbs(
            "D22",
            "a request above 2^31 bytes is refused",
            &["SEND-3"],
            too_long,
        )
        .of_priority(2),
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
    one: fn(&mut Scene<B>, &Pair<B::P>, &[Region<B::P>; 2], usize) -> CaseResult,
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

fn send_immediate<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (source, sink) = (
        pair.left.region(3000, full_access())?,
        pair.right.region(3000, full_access())?,
    );
    source.scribble(1);
    for (size, imm) in [
        (0usize, 0u32),
        (1, 0x0102_0304),
        (1024, 0xffff_ffff),
        (2500, 0xdead_beef),
    ] {
        pair.right.recv(2, &[sink.whole()])?;
        pair.left
            .send(1, SendOp::Send { imm: Some(imm) }, &[source.sge(0..size)])?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.right.recv_cq, 2, WcStatus::Success)?;
        same!(wc.immediate(), Some(imm), "immediate of a SEND of {size} bytes");
        same!(
            (wc.opcode, wc.byte_len as usize),
            (WcOpcode::Recv, size),
            "completion of the receive"
        );
        same_bytes(
            "message",
            &sink.buffer.to_vec(0..size),
            &source.buffer.to_vec(0..size),
        )?;
    }
    Ok(())
}

fn write_immediate<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (source, sink) = (
        pair.left.region(4096, full_access())?,
        pair.right.region(4096, full_access())?,
    );
    let receive = pair.right.region(64, Access::LOCAL_WRITE)?;
    receive.scribble(6);
    source.scribble(2);
    for (size, imm) in [(0usize, 1u32), (5, 0x8000_0001), (1024, 7), (4096, 0xfeed_f00d)] {
        sink.buffer.fill(0..4096, 0);
        pair.right.recv(u64::from(imm), &[receive.whole()])?;
        pair.left.send(
            1,
            SendOp::Write {
                remote: sink.remote(0),
                imm: Some(imm),
            },
            &[source.sge(0..size)],
        )?;
        let sent = scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        same!(sent.opcode, WcOpcode::RdmaWrite, "opcode at the requester");
        let wc = scene.ends_with(&pair.right.recv_cq, u64::from(imm), WcStatus::Success)?;
        same!(wc.opcode, WcOpcode::RecvRdmaWithImm, "opcode at the responder");
        same!(wc.immediate(), Some(imm), "immediate of a WRITE of {size} bytes");
        same!(wc.byte_len as usize, size, "byte_len of the receive");
        same_bytes(
            "written bytes",
            &sink.buffer.to_vec(0..size),
            &source.buffer.to_vec(0..size),
        )?;
        same_bytes(
            "the receive's own buffer",
            &receive.buffer.to_vec(0..64),
            &pattern(6, 64),
        )?;
    }
    Ok(())
}

fn write_takes_no_receive<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (source, sink) = (
        pair.left.region(2048, full_access())?,
        pair.right.region(2048, full_access())?,
    );
    pair.right.recv(42, &[sink.sge(0..16)])?;
    for wr_id in 0..100 {
        pair.left.send(
            wr_id,
            SendOp::Write {
                remote: sink.remote(0),
                imm: None,
            },
            &[source.whole()],
        )?;
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
    }
    scene.quiet(&[&pair.right.recv_cq], Duration::from_millis(5))?;
    pair.left
        .send(100, SendOp::Send { imm: None }, &[source.sge(0..16)])?;
    scene.ends_with(&pair.left.send_cq, 100, WcStatus::Success)?;
    let wc = scene.ends_with(&pair.right.recv_cq, 42, WcStatus::Success)?;
    same!(wc.opcode, WcOpcode::Recv, "the only completion");
    Ok(())
}

fn inline_data<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let room = pair.left.qp.cap().max_inline_data as usize;
    check!(room >= 64, "asked for 64 bytes inline, granted {room}");
    let sink = pair.right.region(8192, full_access())?;
    for size in [0, 1, 63, room] {
        pair.right.recv(2, &[sink.whole()])?;
        let mut bytes = pattern(size as u64, size);
        let expected = bytes.clone();
        pair.left
            .qp
            .post_send(&[SendWr::inline(1, SendOp::Send { imm: None }, &bytes)])?;
        bytes.fill(0); // may be reused at once
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.right.recv_cq, 2, WcStatus::Success)?;
        same!(wc.byte_len as usize, size, "byte_len");
        same_bytes("inline SEND", &sink.buffer.to_vec(0..size), &expected)?;

        let op = SendOp::Write {
            remote: sink.remote(4096),
            imm: None,
        };
        pair.left.qp.post_send(&[SendWr::inline(3, op, &expected)])?;
        scene.ends_with(&pair.left.send_cq, 3, WcStatus::Success)?;
        same_bytes("inline WRITE", &sink.buffer.to_vec(4096..4096 + size), &expected)?;
    }
    let too_long = vec![0; room + 1];
    check!(
        pair.left
            .qp
            .post_send(&[SendWr::inline(4, SendOp::Send { imm: None }, &too_long)])
            .is_err(),
        "{} bytes inline were accepted, {room} were granted",
        room + 1
    );
    scene.still_works(&pair)
}

fn unsignalled<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let slots = u64::from(pair.left.qp.cap().max_send_wr);
    let sink = pair.right.region(64, full_access())?;
    let write = |wr_id| {
        SendWr::inline(
            wr_id,
            SendOp::Write {
                remote: sink.remote(0),
                imm: None,
            },
            b"quietly",
        )
    };
    // Many times the send queue's length, one signalled request in each half queue.
    let period = (slots / 2).clamp(1, 32);
    for burst in 0..8 {
        for n in 0..period {
            let wr_id = burst * period + n;
            let flags = if n + 1 == period {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            pair.left.qp.post_send(&[write(wr_id).with_flags(flags)])?;
        }
        scene.ends_with(&pair.left.send_cq, (burst + 1) * period - 1, WcStatus::Success)?;
    }
    scene.quiet(&[&pair.left.send_cq], Duration::from_millis(5))?;
    scene.still_works(&pair)
}

fn all_signalled<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        sq_sig: SqSigType::All,
        ..Setup::default()
    })?;
    let sink = pair.right.region(64, full_access())?;
    for wr_id in 0..10 {
        let op = SendOp::Write {
            remote: sink.remote(0),
            imm: None,
        };
        pair.left
            .qp
            .post_send(&[SendWr::inline(wr_id, op, b"loudly").with_flags(SendFlags::empty())])?;
    }
    for wr_id in 0..10 {
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
    }
    Ok(())
}

fn fenced<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    let (own, far) = (
        pair.left.region(40_000, full_access())?,
        pair.right.region(40_000, full_access())?,
    );
    for round in 0..5u64 {
        far.scribble(round);
        own.buffer.fill(0..40_000, 0);
        // READ into own memory, then WRITE the same bytes on: without the fence the WRITE would carry zeroes.
        let read = SendWr::new(
            1,
            SendOp::Read {
                remote: far.remote(0),
            },
            &[],
        );
        let (first, second) = ([own.sge(0..20_000)], [own.sge(0..20_000)]);
        let read = SendWr {
            payload: Payload::Sges(&first),
            ..read
        };
        let write = SendWr::new(
            2,
            SendOp::Write {
                remote: far.remote(20_000),
                imm: None,
            },
            &second,
        )
        .with_flags(SendFlags::SIGNALED | SendFlags::FENCE);
        pair.left.qp.post_send(&[read, write])?;
        scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        same_bytes(
            "what was read and written on",
            &far.buffer.to_vec(20_000..40_000),
            &far.buffer.to_vec(0..20_000),
        )?;
    }
    Ok(())
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

fn too_long<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let pair = scene.pair(&setup)?;
    let region = pair.left.region(64, full_access())?;
    let sge = Sge {
        length: u32::MAX,
        ..region.whole()
    };
    let sges = [sge, sge];
    match pair
        .left
        .qp
        .post_send(&[SendWr::new(1, SendOp::Send { imm: None }, &sges)])
    {
        Err(refused) => same!(refused.posted, 0, "requests accepted"),
        Ok(()) => {
            let wc = scene.completion(&pair.left.send_cq)?;
            if wc.status != WcStatus::LocLenErr {
                return Err(Failure::new(format!(
                    "8 GiB in one SEND ended with {:?}",
                    wc.status
                )));
            }
            return Ok(());
        }
    }
    // A bad key beside a good request: the good one is accepted.
    let bad = [Sge {
        lkey: LKey(0),
        ..region.whole()
    }; 5];
    let sink = pair.right.region(64, Access::LOCAL_WRITE)?;
    let receive = [sink.whole()];
    pair.right.qp.post_recv(&[RecvWr {
        wr_id: 9,
        sges: &receive,
    }])?;
    let good = [region.whole()];
    let list = [
        SendWr::new(2, SendOp::Send { imm: None }, &good),
        SendWr::new(3, SendOp::Send { imm: None }, &bad),
        SendWr::new(4, SendOp::Send { imm: None }, &good),
    ];
    match pair.left.qp.post_send(&list) {
        Ok(()) => {
            return Err(Failure::new(format!(
                "5 entries were accepted, {} granted",
                pair.left.qp.cap().max_send_sge
            )));
        }
        Err(refused) => same!(
            refused.posted,
            1,
            "requests accepted before the one with too many entries"
        ),
    }
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&pair.right.recv_cq, 9, WcStatus::Success)?;
    scene.quiet(&[&pair.left.send_cq], Duration::from_millis(5))
}
