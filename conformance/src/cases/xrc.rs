//! Extended reliable connections: one connection, many shared receive queues.

use verbs_api::{
    Context as _, CqInit, ErrorKind, ProtectionDomain, Provider, QpState, QpType, QueuePair, RecvWr, SendOp,
    SendWr, SharedReceiveQueue, SrqInit, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Region, Setup, Shared, full_access, pattern, read, same_bytes, send, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

pub(super) const NEEDS: &[Need] = &[Need::Xrc];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "X1",
            "an XRC SEND goes to the shared queue that it names",
            &["XRC-1"],
            named_queue,
        )
        .needing(NEEDS),
        Case::verbs(
            "X2",
            "WRITE, READ and atomics work over XRC",
            &["XRC-2"],
            one_sided,
        )
        .needing(NEEDS),
        Case::verbs(
            "X3",
            "an XRC SEND to a shared queue that is not there, or of another domain, is refused",
            &["XRC-3"],
            wrong_queue,
        )
        .needing(NEEDS),
        Case::verbs(
            "X4",
            "XRC queue pairs refuse what their half does not have",
            &["XRC-4"],
            halves,
        )
        .needing(NEEDS),
        Case::verbs(
            "X5",
            "an empty XRC shared queue is RNR",
            &["XRC-1", "RNR-1", "RNR-2"],
            empty_is_rnr,
        )
        .needing(NEEDS),
    ]
}

/// A shared receive queue in an XRC domain.
pub(super) struct Mailbox<P: Provider> {
    pub(super) srq: P::Srq,
    pub(super) cq: P::Cq,
    pub(super) sink: Region<P>,
}

/// The right end: a domain with its target queue pair.
pub(super) struct Target<P: Provider> {
    pub(super) domain: P::XrcDomain,
    pub(super) node: Node<P>,
}

/// An initiator connected to a target.
pub(super) struct Line<P: Provider> {
    pub(super) left: Node<P>,
    pub(super) right: Target<P>,
}

pub(super) fn mailbox<B: Testbed>(
    scene: &Scene<B>,
    pd: &<B::P as Provider>::Pd,
    domain: &<B::P as Provider>::XrcDomain,
) -> Result<Mailbox<B::P>, Failure> {
    let cq = scene.context(Side::Right).create_cq(&CqInit::new(64))?;
    let srq = pd.create_srq(&SrqInit {
        max_wr: 16,
        max_sge: 1,
        limit: 0,
        cookie: 0,
        xrc: Some((domain, &cq)),
    })?;
    let sink = Region::new(pd, verbs_api::Buffer::new(4096), full_access())?;
    Ok(Mailbox { srq, cq, sink })
}

impl<P: Provider> Mailbox<P> {
    pub(super) fn recv(&self, wr_id: u64) -> CaseResult {
        let sges = [self.sink.whole()];
        Ok(self.srq.post_recv(&[RecvWr { wr_id, sges: &sges }])?)
    }
}

pub(super) fn line<B: Testbed>(scene: &Scene<B>, setup: &Setup) -> Result<Line<B::P>, Failure> {
    let domain = scene.context(Side::Right).open_xrc_domain(None)?;
    let (initiator, target) = (
        setup.with_type(QpType::XrcInitiator),
        setup.with_type(QpType::XrcTarget),
    );
    let left = scene.node(Side::Left, &initiator)?;
    let shared = Shared {
        xrc_domain: Some(&domain),
        ..Shared::default()
    };
    let node = scene.node_sharing(Side::Right, &target, &shared)?;
    left.connect(&initiator, &node.endpoint)?;
    node.connect(&target, &left.endpoint)?;
    Ok(Line {
        left,
        right: Target { domain, node },
    })
}

impl<P: Provider> Line<P> {
    /// Post a signalled request to the shared queue `srqn`.
    pub(super) fn post(
        &self,
        wr_id: u64,
        op: SendOp<'_, P>,
        srqn: u32,
        sges: &[verbs_api::Sge],
    ) -> CaseResult {
        let wr = SendWr {
            xrc_srqn: Some(srqn),
            ..SendWr::new(wr_id, op, sges)
        };
        Ok(self.left.qp.post_send(&[wr])?)
    }
}

fn named_queue<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let line = line(scene, &Setup::default())?;
    let (pd, domain) = (&line.right.node.pd, &line.right.domain);
    let boxes = [mailbox(scene, pd, domain)?, mailbox(scene, pd, domain)?];
    check!(
        boxes[0].srq.srqn() != boxes[1].srq.srqn(),
        "two shared queues have the number {:#x}",
        boxes[0].srq.srqn()
    );
    let source = line.left.region(4096, full_access())?;
    for (n, length) in [(0usize, 0usize), (1, 5), (0, 1024), (1, 3000), (1, 1), (0, 4096)] {
        let mailbox = &boxes[n];
        source.scribble(length as u64);
        mailbox.recv(7)?;
        let op = SendOp::Send {
            imm: Some(length as u32),
        };
        line.post(1, op, mailbox.srq.srqn(), &[source.sge(0..length)])?;
        scene.ends_with(&line.left.send_cq, 1, WcStatus::Success)?;
        let wc = scene.ends_with(&mailbox.cq, 7, WcStatus::Success)?;
        same!(
            (wc.byte_len, wc.immediate()),
            (length as u32, Some(length as u32)),
            "length and immediate of an XRC SEND"
        );
        same_bytes(
            "an XRC SEND",
            &mailbox.sink.buffer.to_vec(0..length),
            &source.buffer.to_vec(0..length),
        )?;
        let other = scene.completions_now(&boxes[1 - n].cq)?;
        check!(other.is_empty(), "the other shared queue completed {other:?}");
    }
    Ok(())
}

fn one_sided<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let line = line(scene, &Setup::default())?;
    let mailbox = mailbox(scene, &line.right.node.pd, &line.right.domain)?;
    let srqn = mailbox.srq.srqn();
    let (own, far) = (line.left.region(3000, full_access())?, &mailbox.sink);
    own.scribble(9);
    line.post(1, write(far.remote(0)), srqn, &[own.whole()])?;
    scene.ends_with(&line.left.send_cq, 1, WcStatus::Success)?;
    same_bytes("an XRC WRITE", &far.buffer.to_vec(0..3000), &pattern(9, 3000))?;
    far.scribble(10);
    line.post(2, read(far.remote(0)), srqn, &[own.whole()])?;
    scene.ends_with(&line.left.send_cq, 2, WcStatus::Success)?;
    same_bytes(
        "an XRC READ",
        &own.buffer.to_vec(0..3000),
        &far.buffer.to_vec(0..3000),
    )?;
    if scene.bed.has(Need::Atomics) {
        far.buffer.store_u64(0, 40);
        let op = SendOp::FetchAdd {
            remote: far.remote(0),
            add: 2,
        };
        line.post(3, op, srqn, &[own.sge(0..8)])?;
        scene.ends_with(&line.left.send_cq, 3, WcStatus::Success)?;
        same!(
            (own.buffer.load_u64(0), far.buffer.load_u64(0)),
            (40, 42),
            "old and new value of an XRC fetch and add"
        );
    }
    mailbox.recv(5)?;
    let op = SendOp::Write {
        remote: far.remote(64),
        imm: Some(6),
    };
    line.post(4, op, srqn, &[own.sge(0..100)])?;
    scene.ends_with(&line.left.send_cq, 4, WcStatus::Success)?;
    let wc = scene.ends_with(&mailbox.cq, 5, WcStatus::Success)?;
    same!(
        (wc.immediate(), wc.byte_len),
        (Some(6), 100),
        "immediate and length of an XRC WRITE with immediate"
    );
    Ok(())
}

fn wrong_queue<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for foreign in [false, true] {
        let line = line(scene, &Setup::default())?;
        let own = mailbox(scene, &line.right.node.pd, &line.right.domain)?;
        let domain = scene.context(Side::Right).open_xrc_domain(None)?;
        let other = mailbox(scene, &line.right.node.pd, &domain)?;
        own.recv(1)?;
        other.recv(2)?;
        let srqn = if foreign {
            other.srq.srqn()
        } else {
            own.srq.srqn() ^ 0x55
        };
        line.post(3, send(), srqn, &[])?;
        let wc = scene.completion(&line.left.send_cq)?;
        check!(
            matches!(
                wc.status,
                WcStatus::RemInvReqErr | WcStatus::RemAccessErr | WcStatus::RemOpErr
            ),
            "a SEND to a wrong shared queue must be refused by the peer, it ended with {:?}",
            wc.status
        );
        line.left.is_in(QpState::Err)?;
        for mailbox in [&own, &other] {
            let done = scene.completions_now(&mailbox.cq)?;
            check!(
                done.iter().all(|wc| wc.status != WcStatus::Success),
                "a message to a wrong shared queue was received: {done:?}"
            );
        }
    }
    Ok(())
}

fn halves<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let line = line(scene, &Setup::default())?;
    let (left, right) = (&line.left, &line.right.node);
    let refusals = [
        (
            "a receive on an initiator",
            left.qp.post_recv(&[RecvWr::default()]),
        ),
        ("a receive on a target", right.qp.post_recv(&[RecvWr::default()])),
        (
            "a send on a target",
            right.qp.post_send(&[SendWr::inline(1, send(), &[])]),
        ),
    ];
    for (what, answer) in refusals {
        match answer {
            Ok(()) => return Err(Failure::new(format!("{what} was accepted"))),
            Err(refused) => same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error of {what} ({})",
                refused.error
            ),
        }
    }
    same!(left.qp.qp_type(), QpType::XrcInitiator, "type of the initiator");
    same!(right.qp.qp_type(), QpType::XrcTarget, "type of the target");
    Ok(())
}

fn empty_is_rnr<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let impatient = line(
        scene,
        &Setup {
            rnr_retry: 0,
            ..Setup::default()
        },
    )?;
    let empty = mailbox(scene, &impatient.right.node.pd, &impatient.right.domain)?;
    impatient.post(1, send(), empty.srq.srqn(), &[])?;
    scene.ends_with(&impatient.left.send_cq, 1, WcStatus::RnrRetryExcErr)?;
    let patient = line(
        scene,
        &Setup {
            rnr_retry: 7,
            ..Setup::default()
        },
    )?;
    let mailbox = mailbox(scene, &patient.right.node.pd, &patient.right.domain)?;
    patient.post(2, send(), mailbox.srq.srqn(), &[])?;
    scene.quiet(&[&patient.left.send_cq], std::time::Duration::from_millis(3))?;
    mailbox.recv(3)?;
    scene.ends_with(&patient.left.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&mailbox.cq, 3, WcStatus::Success)?;
    Ok(())
}
