//! What a failed send does to the rest: the state SQE of unreliable services.

use verbs_api::{ErrorKind, LKey, Provider, QpAttr, QpState, QpType, QueuePair, SendOp, Sge, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Inbox, Node, Pair, Setup, datagram, full_access, same_bytes, send};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "C19",
            "a failed datagram puts its queue pair in SQE, which still receives and can go on",
            &["SQE-1", "SQE-2"],
            datagram_in_sqe,
        )
        .needing(&[Need::Ud])
        .of_priority(2),
        Case::verbs(
            "C19-UC",
            "a failed send over UC puts its queue pair in SQE, which still receives and can go on",
            &["SQE-1", "SQE-2"],
            connected_in_sqe,
        )
        .needing(&[Need::Uc])
        .of_priority(2),
        Case::verbs(
            "C19-ERR",
            "in SQE nothing but RTS, RESET and ERR can follow",
            &["SQE-2"],
            out_of_sqe,
        )
        .needing(&[Need::Ud])
        .of_priority(2),
        Case::verbs(
            "C23",
            "a privileged Q_Key is for privileged programs",
            &["UD-9"],
            privileged_qkey,
        )
        .needing(&[Need::Ud])
        .of_priority(2),
    ]
}

/// An entry that no key opens.
fn bad<P: Provider>(node: &Node<P>) -> Result<Sge, Failure> {
    let region = node.region(8, full_access())?;
    Ok(Sge {
        lkey: LKey(0),
        ..region.whole()
    })
}

/// One good send, one that fails, two behind it; afterwards the queue pair is in SQE.
fn fail<B: Testbed>(scene: &mut Scene<B>, node: &Node<B::P>, op: SendOp<'_, B::P>) -> CaseResult {
    let entry = bad(node)?;
    node.send(1, op, &[entry])?;
    node.send_inline(2, op, b"too late")?;
    scene.ends_with(&node.send_cq, 1, WcStatus::LocProtErr)?;
    node.is_in(QpState::Sqe)?;
    let mut flushed = scene.completions_now(&node.send_cq)?;
    if flushed.is_empty() {
        flushed.push(scene.completion(&node.send_cq)?);
    }
    same!(
        (flushed[0].wr_id, flushed[0].status),
        (2, WcStatus::WrFlushErr),
        "completion of the request behind the failed one"
    );
    node.send_inline(3, op, b"in SQE")?;
    scene.ends_with(&node.send_cq, 3, WcStatus::WrFlushErr)?;
    Ok(())
}

fn datagram_in_sqe<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let (left, right) = (&pair.left, &pair.right);
    let (there, back) = (left.handle_to(&right.endpoint)?, right.handle_to(&left.endpoint)?);
    let (inbox, own) = (Inbox::new(right, 64)?, Inbox::new(left, 64)?);
    right.recv(1, &[inbox.whole()])?;
    let qkey = pair.setup.qkey;
    fail(scene, left, datagram(&there, &right.endpoint, qkey))?;
    // It still receives.
    left.recv(5, &[own.whole()])?;
    right.send_inline(6, datagram(&back, &left.endpoint, qkey), b"still there?")?;
    scene.ends_with(&right.send_cq, 6, WcStatus::Success)?;
    let wc = scene.ends_with(&left.recv_cq, 5, WcStatus::Success)?;
    own.holds(&wc, b"still there?", &right.endpoint)?;
    // And sends again after RTS; nothing of before has arrived.
    left.go(QpState::Rts)?;
    left.send_inline(7, datagram(&there, &right.endpoint, qkey), b"yes")?;
    scene.ends_with(&left.send_cq, 7, WcStatus::Success)?;
    let wc = scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
    inbox.holds(&wc, b"yes", &left.endpoint)
}

fn connected_in_sqe<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair: Pair<B::P> = scene.pair(&Setup::of(QpType::Uc))?;
    let (left, right) = (&pair.left, &pair.right);
    let (sink, own) = (right.region(64, full_access())?, left.region(64, full_access())?);
    right.recv(1, &[sink.whole()])?;
    fail(scene, left, send())?;
    left.recv(5, &[own.whole()])?;
    right.send_inline(6, send(), b"still there?")?;
    scene.ends_with(&right.send_cq, 6, WcStatus::Success)?;
    scene.ends_with(&left.recv_cq, 5, WcStatus::Success)?;
    same_bytes("what arrived in SQE", &own.buffer.to_vec(0..12), b"still there?")?;
    left.go(QpState::Rts)?;
    left.send_inline(7, send(), b"yes")?;
    scene.ends_with(&left.send_cq, 7, WcStatus::Success)?;
    scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
    same_bytes("what was sent after SQE", &sink.buffer.to_vec(0..3), b"yes")
}

fn out_of_sqe<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for (to, allowed) in [
        (QpState::Init, false),
        (QpState::Rtr, false),
        (QpState::Sqd, false),
        (QpState::Err, true),
        (QpState::Reset, true),
        (QpState::Rts, true),
    ] {
        let pair = scene.pair(&Setup::datagrams())?;
        let ah = pair.left.handle_to(&pair.right.endpoint)?;
        fail(
            scene,
            &pair.left,
            datagram(&ah, &pair.right.endpoint, pair.setup.qkey),
        )?;
        match (pair.left.go(to), allowed) {
            (Ok(()), true) => pair.left.is_in(to)?,
            (Err(_), false) => pair.left.is_in(QpState::Sqe)?,
            (Ok(()), false) => {
                return Err(Failure::new(format!(
                    "SQE to {to:?} must be refused, but succeeded"
                )));
            }
            (Err(failure), true) => return Err(failure.during(format!("SQE to {to:?}"))),
        }
    }
    Ok(())
}

/// Who is privileged the case cannot know: either the key is refused and nothing changes, or it works.
fn privileged_qkey<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup {
        qkey: 0x8001_0000,
        ..Setup::datagrams()
    };
    let node = scene.node(Side::Left, &setup)?;
    let attr = setup.to_init(node.endpoint.gid.port);
    match node.qp.modify(&attr) {
        Err(error) => {
            same!(
                error.kind(),
                ErrorKind::Permission,
                "error of a privileged Q_Key ({error})"
            );
            node.is_in(QpState::Reset)
        }
        Ok(()) => {
            let seen: QpAttr = node.qp.query()?;
            same!(
                seen.qkey,
                Some(setup.qkey),
                "Q_Key after a privileged one was taken"
            );
            Ok(())
        }
    }
}
