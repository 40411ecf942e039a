//! What a device counts of NAKs, repetitions and requests that are given up; and of its objects.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome};
use verbs_api::{
    Buffer, Context as _, CqInit, LKey, MwType, Object, ProtectionDomain, QpInit, QpType, Sge, SrqInit,
    WcStatus,
};

use super::counters::{Book, NEEDS, counted_once};
use super::played::{FAR, SHORT, impatient, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, read, send};
use crate::raw::RawPeer;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "K0-OBJECTS",
            "objects are counted while they exist",
            &["COUNT-4"],
            objects,
        )
        .needing(&[
            Need::Counters,
            Need::Srq,
            Need::MwType1,
            Need::DeviceMemory,
            Need::Xrc,
            Need::Ud,
            Need::Multicast,
        ])
        .of_priority(2),
        Case::raw_peer(
            "K0-RESPONDER",
            "repetitions, gaps and refusals of a responder are counted",
            &["COUNT-3"],
            responder,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "K0-REQUESTER",
            "what a requester is told, and sends again, is counted",
            &["COUNT-3"],
            requester,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "K0-ENDS",
            "requests that are given up are counted by their reason",
            &["COUNT-3"],
            ends,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

fn responder<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let psn = |peer: &RawPeer<B>, n| peer.peer_psn(n);
    let first = psn(&peer, 0);
    peer.still_serves(scene, first)?;
    let book = Book::open(scene, Side::Left);
    peer.still_serves(scene, first)?;
    counted_once(scene, &book, "duplicate_request")?;
    // The second and the third behind a gap: one NAK for both.
    let book = Book::open(scene, Side::Left);
    let expected = psn(&peer, 1);
    for n in [2, 3] {
        let ahead = psn(&peer, n);
        peer.write_only(scene, ahead, FAR, &[]);
        if n == 2 {
            peer.expect_aeth(scene, expected, Syndrome::Nak(NakCode::PsnSequence))?;
        }
    }
    scene.rest(SHORT);
    same!(
        book.others(scene),
        vec![("out_of_seq_request", 2), ("dropped_after_nak", 1)],
        "counters that have grown with two requests behind a gap"
    );
    let book = Book::open(scene, Side::Left);
    peer.send_only(scene, expected, b"anybody?");
    let timer = RnrTimer::new(peer.setup.min_rnr_timer).ok_or_else(|| Failure::new("an RNR timer code"))?;
    peer.expect_aeth(scene, expected, Syndrome::RnrNak(timer))?;
    counted_once(scene, &book, "send_rnr_err")
}

fn requester<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut peer = scene.raw_peer(&setup())?;
    let psn = peer.own_psn(0);
    peer.node.send_inline(1, send(), b"message")?;
    let length = peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?.bytes.len() as u64;
    let book = Book::open(scene, Side::Left);
    let timer = RnrTimer::new(1).ok_or_else(|| Failure::new("an RNR timer code"))?;
    peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    same!(
        book.others(scene),
        vec![("rcvd_rnr_err", 1), ("retransmitted_bytes", length)],
        "counters that have grown with an RNR NAK"
    );
    let book = Book::open(scene, Side::Left);
    peer.acknowledge(scene, psn, Syndrome::Nak(NakCode::PsnSequence), 0);
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    same!(
        book.others(scene),
        vec![
            ("rcvd_seq_err", 1),
            ("completer_retry_err", 1),
            ("retransmitted_bytes", length)
        ],
        "counters that have grown with a sequence NAK"
    );
    peer.acknowledge(scene, psn, Syndrome::ACK, 1);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::Success)?;
    // An acknowledgement behind a READ says that its answer was lost.
    let own = peer.node.region(100, full_access())?;
    let (second, third) = (peer.own_psn(1), peer.own_psn(2));
    peer.node.send(2, read(FAR), &[own.whole()])?;
    peer.node.send_inline(3, send(), b"behind")?;
    let asked = peer.expect(scene, Opcode::RC_READ_REQUEST, second)?.bytes.len();
    let behind = peer.expect(scene, Opcode::RC_SEND_ONLY, third)?.bytes.len();
    let book = Book::open(scene, Side::Left);
    peer.acknowledge(scene, third, Syndrome::ACK, 3);
    peer.expect(scene, Opcode::RC_READ_REQUEST, second)?;
    peer.expect(scene, Opcode::RC_SEND_ONLY, third)?;
    same!(
        book.others(scene),
        vec![
            ("completer_retry_err", 1),
            ("retransmitted_bytes", (asked + behind) as u64)
        ],
        "counters that have grown with an implied NAK"
    );
    Ok(())
}

fn ends<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let book = Book::open(scene, Side::Left);
    let peer = scene.raw_peer(&Setup {
        retry_cnt: 2,
        ..impatient(scene)
    })?;
    peer.node.send_inline(1, send(), b"message")?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::RetryExcErr)?;
    same!(
        book.grown(
            scene,
            ["timeouts", "retry_exceeded_err", "retry_rnr_exceeded_err"]
        )?,
        [3, 1, 0],
        "time-outs and requests given up with a retry count of 2"
    );
    let book = Book::open(scene, Side::Left);
    let mut peer = scene.raw_peer(&Setup {
        rnr_retry: 0,
        ..setup()
    })?;
    peer.node.send_inline(1, send(), b"message")?;
    let psn = peer.own_psn(0);
    peer.expect(scene, Opcode::RC_SEND_ONLY, psn)?;
    let timer = RnrTimer::new(1).ok_or_else(|| Failure::new("an RNR timer code"))?;
    peer.acknowledge(scene, psn, Syndrome::RnrNak(timer), 0);
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::RnrRetryExcErr)?;
    same!(
        book.others(scene),
        vec![("rcvd_rnr_err", 1), ("retry_rnr_exceeded_err", 1)],
        "counters that have grown with an RNR NAK and no RNR retry"
    );
    let book = Book::open(scene, Side::Left);
    let peer = scene.raw_peer(&setup())?;
    let nowhere = [Sge {
        addr: 0x1000,
        length: 8,
        lkey: LKey(0xdead_be00),
    }];
    peer.node.send(1, send(), &nowhere)?;
    scene.ends_with(&peer.node.send_cq, 1, WcStatus::LocProtErr)?;
    same!(
        book.others(scene),
        vec![("send_err", 1)],
        "counters that have grown with a SEND from memory that is not there"
    );
    if scene.bed.has(Need::Uc) {
        let book = Book::open(scene, Side::Left);
        let peer = scene.raw_peer(&setup().with_type(QpType::Uc))?;
        peer.node.send(1, send(), &nowhere)?;
        scene.ends_with(&peer.node.send_cq, 1, WcStatus::LocProtErr)?;
        same!(
            book.others(scene),
            vec![("send_err", 1)],
            "counters that have grown with the same over UC"
        );
    }
    Ok(())
}

/// Two objects of a kind more, then one less.
fn counted<B: Testbed, T: Object>(
    scene: &Scene<B>,
    kind: &str,
    before: usize,
    mut make: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let number = |scene: &Scene<B>| -> Option<usize> {
        let objects = scene.bed.leftovers()?;
        let (_, rest) = objects.split_once(&format!(" {kind}: "))?;
        rest.split([',', ' ']).next()?.parse().ok()
    };
    let (one, other) = (make()?, make()?);
    same!(number(scene), Some(before + 2), "{kind} with two more");
    other.destroy()?;
    same!(number(scene), Some(before + 1), "{kind} with one more");
    Ok(one)
}

fn objects<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    check!(
        scene.bed.leftovers().is_none(),
        "objects from the start: {:?}",
        scene.bed.leftovers()
    );
    let pd = counted(scene, "pds", 0, || Ok(context.alloc_pd()?))?;
    let cq = counted(scene, "cqs", 0, || Ok(context.create_cq(&CqInit::new(16))?))?;
    let srq = SrqInit {
        max_wr: 8,
        max_sge: 1,
        limit: 0,
        cookie: 0,
        xrc: None,
    };
    let buffer = Buffer::new(64);
    let srq = counted(scene, "srqs", 0, || Ok(pd.create_srq(&srq)?))?;
    let mr = counted(scene, "mrs", 0, || Ok(pd.reg_mr(&buffer, full_access())?))?;
    let mw = counted(scene, "mws", 0, || Ok(pd.alloc_mw(MwType::Type1)?))?;
    let dm = counted(scene, "dms", 0, || Ok(context.alloc_dm(64, 0)?))?;
    let qp = counted(scene, "qps", 0, || Ok(pd.create_qp(&QpInit::rc(&cq))?))?;
    let node = scene.node(Side::Left, &Setup::datagrams())?;
    let ah = counted(scene, "ahs", 0, || node.handle_to(&node.endpoint))?;
    ah.destroy()?;
    qp.destroy()?;
    dm.destroy()?;
    mw.destroy()?;
    mr.destroy()?;
    srq.destroy()?;
    Ok(())
}
