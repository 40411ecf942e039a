//! Datagrams that are dropped: what becomes of the receive, and of the next one.

use verbs_api::{Context as _, Provider, QpState, SendOp, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Inbox, Pair, Setup, datagram, same_bytes};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};

const NEEDS: &[Need] = &[Need::Ud];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "G12",
            "a datagram with another Q_Key is dropped, and counted",
            &["UD-3"],
            wrong_qkey,
        )
        .needing(NEEDS),
        Case::verbs(
            "G14",
            "a datagram without a receive is dropped",
            &["UD-5"],
            no_receive,
        )
        .needing(NEEDS),
        Case::verbs(
            "G15",
            "a datagram longer than the receive is dropped and leaves it",
            &["UD-5"],
            receive_too_small,
        )
        .needing(NEEDS),
        Case::verbs(
            "G22",
            "faulty datagrams leave the oldest receive to the next good one",
            &["UD-5", "UD-3"],
            faults_leave_the_receive,
        )
        .needing(NEEDS),
        Case::verbs(
            "G22-QPN",
            "a datagram to a queue pair that is not there, or of another kind, disturbs nobody",
            &["UD-5", "HDR-2", "HDR-4"],
            nobody_there,
        )
        .needing(NEEDS),
    ]
}

/// One datagram from left to right, which must arrive in the receive `wr_id` that lies in `inbox`.
fn arrives<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    ah: &<B::P as Provider>::Ah,
    wr_id: u64,
    inbox: &Inbox<B::P>,
) -> CaseResult {
    let op = datagram(ah, &pair.right.endpoint, pair.setup.qkey);
    pair.left.send_inline(77, op, b"a good one")?;
    scene.ends_with(&pair.left.send_cq, 77, WcStatus::Success)?;
    let wc = scene
        .ends_with(&pair.right.recv_cq, wr_id, WcStatus::Success)
        .map_err(|e| e.during("a good datagram"))?;
    inbox.holds(&wc, b"a good one", &pair.left.endpoint)
}

/// One datagram from left to right that must be lost, though the sender does not learn of it. A datagram to a third
/// queue pair, which travels the same way behind it, tells that its time is over.
fn is_lost<B: Testbed>(
    scene: &mut Scene<B>,
    pair: &Pair<B::P>,
    op: SendOp<'_, B::P>,
    bytes: &[u8],
) -> CaseResult {
    pair.left.send_inline(66, op, bytes)?;
    scene.ends_with(&pair.left.send_cq, 66, WcStatus::Success)?;
    let marker = scene.node(Side::Right, &pair.setup)?;
    marker.connect(&pair.setup, &pair.left.endpoint)?;
    let inbox = Inbox::new(&marker, 8)?;
    marker.recv(1, &[inbox.whole()])?;
    let ah = pair.left.handle_to(&marker.endpoint)?;
    let op = datagram(&ah, &marker.endpoint, pair.setup.qkey);
    pair.left.send_inline(67, op, b"marker")?;
    scene.ends_with(&pair.left.send_cq, 67, WcStatus::Success)?;
    scene
        .ends_with(&marker.recv_cq, 1, WcStatus::Success)
        .map_err(|e| e.during("a datagram to a queue pair beside"))?;
    // Devices may serve their queue pairs one beside the other: the first may be a little behind.
    let behind = scene.bed.slack() / 50;
    scene.quiet(&[&pair.right.recv_cq], behind)
}

fn wrong_qkey<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let pair = scene.pair(&setup)?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let inbox = Inbox::new(&pair.right, 64)?;
    pair.right.recv(1, &[inbox.whole()])?;
    let violations = |scene: &Scene<B>| -> Result<u32, Failure> {
        Ok(scene.context(Side::Right).query_port(1)?.qkey_viol_cntr)
    };
    let before = violations(scene)?;
    for qkey in [0, setup.qkey ^ 1, setup.qkey ^ 0x4000_0000] {
        is_lost(scene, &pair, datagram(&ah, &pair.right.endpoint, qkey), b"wrong")?;
    }
    pair.right.is_in(QpState::Rts)?;
    arrives(scene, &pair, &ah, 1, &inbox)?;
    let counted = violations(scene)?.wrapping_sub(before);
    same!(counted, 3, "rise of the port's count of Q_Key violations");
    Ok(())
}

fn no_receive<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    for _ in 0..3 {
        let op = datagram(&ah, &pair.right.endpoint, pair.setup.qkey);
        is_lost(scene, &pair, op, b"nobody listens")?;
    }
    pair.left.is_in(QpState::Rts)?;
    pair.right.is_in(QpState::Rts)?;
    let inbox = Inbox::new(&pair.right, 64)?;
    pair.right.recv(1, &[inbox.whole()])?;
    arrives(scene, &pair, &ah, 1, &inbox)
}

fn receive_too_small<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let inbox = Inbox::new(&pair.right, 32)?;
    // 10 bytes fit with the 40 in front; 11 do not.
    pair.right.recv(1, &[inbox.region.sge(0..50)])?;
    let op = datagram(&ah, &pair.right.endpoint, pair.setup.qkey);
    is_lost(scene, &pair, op, b"11 bytes ..")?;
    pair.right.is_in(QpState::Rts)?;
    same_bytes(
        "the bytes behind the receive",
        &inbox.region.buffer.to_vec(50..72),
        &[0; 22],
    )?;
    arrives(scene, &pair, &ah, 1, &inbox)
}

fn faults_leave_the_receive<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let (left, right) = (&pair.left, &pair.right);
    let ah = left.handle_to(&right.endpoint)?;
    let first = Inbox::new(right, 10)?;
    let second = Inbox::new(right, 10)?;
    right.recv(1, &[first.whole()])?;
    right.recv(2, &[second.whole()])?;
    let wrong_key = datagram(&ah, &right.endpoint, pair.setup.qkey ^ 2);
    is_lost(scene, &pair, wrong_key, b"wrong key")?;
    let too_long = datagram(&ah, &right.endpoint, pair.setup.qkey);
    is_lost(scene, &pair, too_long, b"eleven long")?;
    arrives(scene, &pair, &ah, 1, &first)?;
    arrives(scene, &pair, &ah, 2, &second)?;
    right.is_in(QpState::Rts)
}

fn nobody_there<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let connected = scene.pair(&Setup::default())?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let inbox = Inbox::new(&pair.right, 64)?;
    pair.right.recv(1, &[inbox.whole()])?;
    for qpn in [connected.right.endpoint.qpn, 0xFF_FFFE] {
        let op = SendOp::SendTo {
            ah: &ah,
            remote_qpn: qpn,
            remote_qkey: pair.setup.qkey,
            imm: None,
        };
        is_lost(scene, &pair, op, b"astray")?;
    }
    arrives(scene, &pair, &ah, 1, &inbox)?;
    scene.still_works(&connected)
}
