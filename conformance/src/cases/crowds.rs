//! Many queue pairs at once, and one after the other.

use verbs_api::{Object, Provider, SendOp, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Pair, Region, Setup, full_access, pattern, read, same_bytes, send, write};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "D18",
            "sixty-four connections with all operations keep their data apart",
            &["WRITE-1", "READ-1", "SEND-1", "CQ-7"],
            many_at_once,
        )
        .of_priority(2),
        Case::verbs(
            "K10",
            "a thousand connections come and go, and leave nothing behind",
            &["QP-15", "QP-13"],
            many_in_a_row,
        )
        .of_priority(2),
    ]
}

const CONNECTIONS: usize = 64;
const LENGTH: usize = 5000; // a multiple of eight: a word stands behind it

/// One connection with memory for what it does.
struct Line<P: Provider> {
    pair: Pair<P>,
    own: Region<P>,
    back: Region<P>,
    far: Region<P>,
    sink: Region<P>,
}

impl<P: Provider> Line<P> {
    /// The one of this number.
    fn new<B: Testbed<P = P>>(scene: &mut Scene<B>, n: usize) -> Result<Self, Failure> {
        let pair = scene.pair(&Setup {
            // Every connection begins elsewhere, some just before the wrap.
            psn: [0xff_ffff - n as u32, n as u32],
            retry_cnt: 7,
            ..Setup::default()
        })?;
        let own = pair.left.region(LENGTH, full_access())?;
        own.scribble(n as u64 + 1);
        Ok(Line {
            own,
            back: pair.left.region(LENGTH, full_access())?,
            far: pair.right.region(LENGTH + 8, full_access())?,
            sink: pair.right.region(LENGTH, full_access())?,
            pair,
        })
    }
}

fn many_at_once<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let lines = (0..CONNECTIONS)
        .map(|n| Line::new(scene, n))
        .collect::<Result<Vec<_>, _>>()?;
    let atomics = scene.bed.has(Need::Atomics);
    for round in 0..3u64 {
        for line in &lines {
            let (left, right) = (&line.pair.left, &line.pair.right);
            right.recv(9, &[line.sink.whole()])?;
            left.send(1, write(line.far.remote(0)), &[line.own.whole()])?;
            left.send(2, send(), &[line.own.whole()])?;
            left.send(3, read(line.far.remote(0)), &[line.back.whole()])?;
            if atomics {
                let op = SendOp::FetchAdd {
                    remote: line.far.remote(LENGTH),
                    add: round,
                };
                left.send(4, op, &[line.own.sge(0..8)])?;
            }
        }
        for (n, line) in lines.iter().enumerate() {
            let (left, right) = (&line.pair.left, &line.pair.right);
            for wr_id in 1..=if atomics { 4 } else { 3 } {
                let wc = scene
                    .ends_with(&left.send_cq, wr_id, WcStatus::Success)
                    .map_err(|e| e.during(format!("connection {n} in round {round}")))?;
                same!(wc.qp_num, left.endpoint.qpn, "queue pair of a completion");
            }
            let wc = scene.ends_with(&right.recv_cq, 9, WcStatus::Success)?;
            same!(
                (wc.qp_num, wc.byte_len as usize),
                (right.endpoint.qpn, LENGTH),
                "queue pair and length of a receive"
            );
            let expected = pattern(n as u64 + 1, LENGTH);
            same_bytes("what was written", &line.far.buffer.to_vec(0..LENGTH), &expected)?;
            same_bytes("what was sent", &line.sink.buffer.to_vec(0..LENGTH), &expected)?;
            same_bytes("what was READ", &line.back.buffer.to_vec(0..LENGTH), &expected)?;
            // The atomic left its answer in the first word.
            line.own.scribble(n as u64 + 1);
        }
    }
    if atomics {
        for line in &lines {
            same!(line.far.buffer.load_u64(LENGTH), 3, "sum of 0, 1 and 2");
        }
    }
    Ok(())
}

fn many_in_a_row<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for round in 0..1000u32 {
        let pair = scene.pair(&Setup {
            psn: [round, round],
            ..Setup::default()
        })?;
        if round % 50 == 0 {
            scene.still_works(&pair)?;
        } else {
            // Left alone with a request under way.
            pair.left.send_inline(1, send(), b"whoever it is")?;
        }
        let Pair { left, right, .. } = pair;
        let (first, second) = if round % 2 == 0 {
            (left, right)
        } else {
            (right, left)
        };
        first.qp.destroy()?;
        second.qp.destroy()?;
        for node in [
            (first.send_cq, first.recv_cq, first.pd),
            (second.send_cq, second.recv_cq, second.pd),
        ] {
            node.0.destroy()?;
            node.1.destroy()?;
            node.2.destroy()?;
        }
    }
    let last = scene.pair(&Setup::default())?;
    scene.still_works(&last)?;
    last.node(Side::Left).is_in(verbs_api::QpState::Rts)
}
