//! What else a request may carry: immediates, inline data, flags.

use std::time::Duration;

use verbs_api::{
    Access, LKey, Payload, QueuePair, RecvWr, SendFlags, SendOp, SendWr, Sge, SqSigType, WcOpcode, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, pattern, same_bytes};
use crate::scene::Scene;
use crate::testbed::Testbed;
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
        Case::verbs(
            "D22",
            "a request above 2^31 bytes is refused",
            &["SEND-3"],
            too_long,
        )
        .of_priority(2),
    ]
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
