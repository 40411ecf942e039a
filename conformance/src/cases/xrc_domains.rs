//! XRC domains: who holds them, and who finds what through them.

use std::fs::File;
use std::os::fd::AsRawFd;

use verbs_api::{
    Context as _, ErrorKind, Object, QpState, QpType, QueuePair, SendWr, SharedReceiveQueue, WcStatus,
};

use super::xrc::{Line, NEEDS, Target, line, mailbox};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, Shared, send};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
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
