//! Extended reliable connections: one connection, many shared receive queues.

use std::fs::File;
use std::os::fd::AsRawFd;

use verbs_api::{
    Context as _, CqInit, ErrorKind, Object, ProtectionDomain, Provider, QpState, QpType, QueuePair, RecvWr,
    SendOp, SendWr, SharedReceiveQueue, SrqInit, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Region, Setup, Shared, full_access, pattern, read, same_bytes, send, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Xrc];

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
        Case::verbs(
            "X6",
            "an XRC domain in use cannot be closed",
            &["XRC-5"],
            domain_in_use,
        )
        .needing(NEEDS),
        Case::verbs(
            "X7",
            "a target queue pair opened twice lives until both handles are gone",
            &["XRC-6"],
            opened_twice,
        )
        .needing(NEEDS),
        Case::verbs(
            "X8",
            "domains opened through one file are one domain",
            &["XRC-5"],
            through_a_file,
        )
        .needing(NEEDS),
    ]
}

/// A shared receive queue in an XRC domain.
struct Mailbox<P: Provider> {
    srq: P::Srq,
    cq: P::Cq,
    sink: Region<P>,
}

/// The right end: a domain with its target queue pair.
struct Target<P: Provider> {
    domain: P::XrcDomain,
    node: Node<P>,
}

/// An initiator connected to a target.
struct Line<P: Provider> {
    left: Node<P>,
    right: Target<P>,
}

fn mailbox<B: Testbed>(
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
    fn recv(&self, wr_id: u64) -> CaseResult {
        let sges = [self.sink.whole()];
        Ok(self.srq.post_recv(&[RecvWr { wr_id, sges: &sges }])?)
    }
}

fn line<B: Testbed>(scene: &Scene<B>, setup: &Setup) -> Result<Line<B::P>, Failure> {
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
    fn post(&self, wr_id: u64, op: SendOp<'_, P>, srqn: u32, sges: &[verbs_api::Sge]) -> CaseResult {
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

/// Closing the domain must be refused with EBUSY.
fn stays<D: Object>(domain: D, user: &str) -> Result<D, Failure> {
    match domain.destroy() {
        Ok(()) => Err(Failure::new(format!("an XRC domain with {user} was closed"))),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            Ok(refused.object)
        }
    }
}

fn domain_in_use<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let Line { left, right } = line(scene, &Setup::default())?;
    let Target { domain, node } = right;
    let mailbox = mailbox(scene, &node.pd, &domain)?;
    let domain = stays(domain, "a target and a shared queue")?;
    node.qp.destroy()?;
    let domain = stays(domain, "a shared queue")?;
    mailbox.srq.destroy()?;
    domain.destroy()?;
    left.qp.destroy()?;
    Ok(())
}

fn opened_twice<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let line = line(scene, &Setup::default())?;
    let mailbox = mailbox(scene, &line.right.node.pd, &line.right.domain)?;
    let qpn = line.right.node.endpoint.qpn;
    let second = scene.context(Side::Right).open_qp(&line.right.domain, qpn)?;
    same!(second.qpn(), qpn, "number of the opened queue pair");
    same!(
        second.state()?,
        QpState::Rts,
        "state seen through the second handle"
    );
    let absent = scene.context(Side::Right).open_qp(&line.right.domain, qpn ^ 0x33);
    check!(
        absent.is_err(),
        "a target queue pair that is not there was opened"
    );
    let Line { left, right } = line;
    let Target { domain, node } = right;
    node.qp.destroy()?;
    // The second handle keeps the queue pair alive.
    mailbox.recv(2)?;
    let wr = SendWr {
        xrc_srqn: Some(mailbox.srq.srqn()),
        ..SendWr::inline(1, send(), b"alive")
    };
    left.qp.post_send(&[wr])?;
    scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&mailbox.cq, 2, WcStatus::Success)?;
    second.destroy()?;
    mailbox.srq.destroy()?;
    domain.destroy()?;
    Ok(())
}

fn through_a_file<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let path = std::env::temp_dir().join(format!(
        "conformance-xrc-{}-{}",
        std::process::id(),
        scene.gid(Side::Left)?.gid
    ));
    let cannot = |error: std::io::Error| Failure::new(format!("{} cannot be made: {error}", path.display()));
    let file = File::create(&path).map_err(cannot)?;
    let other_path = path.with_extension("other");
    let other_file = File::create(&other_path).map_err(cannot)?;
    // An open file keeps its number though its name is gone.
    let _ = (std::fs::remove_file(&path), std::fs::remove_file(&other_path));
    let context = scene.context(Side::Right);
    let first = context.open_xrc_domain(Some(file.as_raw_fd()))?;
    let same_one = context.open_xrc_domain(Some(file.as_raw_fd()))?;
    let other = context.open_xrc_domain(Some(other_file.as_raw_fd()))?;
    let target = Setup::of(QpType::XrcTarget);
    let initiator = Setup::of(QpType::XrcInitiator);
    let left = scene.node(Side::Left, &initiator)?;
    let shared = Shared {
        xrc_domain: Some(&first),
        ..Shared::default()
    };
    let node = scene.node_sharing(Side::Right, &target, &shared)?;
    left.connect(&initiator, &node.endpoint)?;
    node.connect(&target, &left.endpoint)?;
    let mailbox = mailbox(scene, &node.pd, &same_one)?;
    mailbox.recv(2)?;
    let wr = SendWr {
        xrc_srqn: Some(mailbox.srq.srqn()),
        ..SendWr::inline(1, send(), b"same domain")
    };
    left.qp.post_send(&[wr])?;
    scene.ends_with(&left.send_cq, 1, WcStatus::Success)?;
    scene.ends_with(&mailbox.cq, 2, WcStatus::Success)?;
    let opened = scene.context(Side::Right).open_qp(&other, node.endpoint.qpn);
    check!(opened.is_err(), "a target was opened through another domain");
    Ok(())
}
