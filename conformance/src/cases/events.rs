//! Completion events.

use std::time::Duration;

use verbs_api::{
    CompletionChannel, CompletionQueue, Context, CqInit, Notify, Provider, QpState, QueuePair, SendFlags,
    SendOp, SendWr, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Node, Pair, Setup, full_access};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "I2",
            "an armed queue raises one event, at the next completion",
            &["CQ-2", "CQ-3"],
            notify,
        ),
        Case::verbs(
            "I3",
            "a queue armed for solicited completions ignores others, errors excepted",
            &["CQ-4"],
            solicited,
        ),
        Case::verbs(
            "I3-SEND",
            "a send that fails counts as solicited, one that succeeds does not",
            &["CQ-4"],
            failed_send_is_solicited,
        ),
    ]
}

/// A node whose receives complete on a queue with a channel.
struct Notified<P: Provider> {
    pair: Pair<P>,
    channel: P::Channel,
}

fn with_channel<B: Testbed>(scene: &mut Scene<B>) -> Result<Notified<B::P>, Failure> {
    let setup = Setup::default();
    let context = scene.context(Side::Right);
    let channel = context.create_channel()?;
    let pd = context.alloc_pd()?;
    let send_cq = context.create_cq(&CqInit::new(64))?;
    let recv_cq = context.create_cq(&CqInit {
        channel: Some(&channel),
        cookie: 4711,
        ..CqInit::new(64)
    })?;
    let right = scene.node_with(Side::Right, &setup, &pd, &send_cq, &recv_cq)?;
    let left = scene.node(Side::Left, &setup)?;
    left.connect(&setup, &right.endpoint)?;
    right.connect(&setup, &left.endpoint)?;
    Ok(Notified {
        pair: Pair { left, right, setup },
        channel,
    })
}

impl<P: Provider> Notified<P> {
    fn message<B: Testbed<P = P>>(&self, scene: &mut Scene<B>, flags: SendFlags) -> CaseResult {
        self.pair.right.recv(1, &[])?;
        let send = SendWr::inline(2, SendOp::Send { imm: None }, &[]).with_flags(flags | SendFlags::SIGNALED);
        self.pair.left.qp.post_send(&[send])?;
        scene.ends_with(&self.pair.left.send_cq, 2, WcStatus::Success)?;
        Ok(())
    }

    fn event<B: Testbed<P = P>>(&self, scene: &mut Scene<B>) -> CaseResult {
        let event = scene.until("an event of the completion channel", |_| {
            Ok(self.channel.wait(Some(Duration::ZERO))?)
        })?;
        same!(event.cookie(), 4711, "cookie of the event");
        Ok(())
    }

    fn no_event<B: Testbed<P = P>>(&self, scene: &mut Scene<B>, when: &str) -> CaseResult {
        scene.rest(Duration::from_millis(5));
        check!(
            self.channel.wait(Some(Duration::ZERO))?.is_none(),
            "an event came {when}"
        );
        Ok(())
    }

    fn node(&self) -> &Node<P> {
        &self.pair.right
    }
}

fn notify<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let it = with_channel(scene)?;
    let cq = &it.node().recv_cq;
    it.message(scene, SendFlags::empty())?;
    it.no_event(scene, "though the queue was not armed")?;
    cq.req_notify(Notify::Any)?;
    it.no_event(scene, "for a completion that was there before arming")?;
    scene.ends_with(cq, 1, WcStatus::Success)?;
    it.message(scene, SendFlags::empty())?;
    it.event(scene)?;
    scene.ends_with(cq, 1, WcStatus::Success)?;
    it.message(scene, SendFlags::SOLICITED)?;
    it.no_event(scene, "a second time after arming once")?;
    scene.ends_with(cq, 1, WcStatus::Success)?;
    // Armed twice still raises one; armed for solicited after armed for any stays armed for any.
    cq.req_notify(Notify::Any)?;
    cq.req_notify(Notify::SolicitedOnly)?;
    it.message(scene, SendFlags::empty())?;
    it.event(scene)?;
    it.no_event(scene, "a second time after arming twice")
}

fn solicited<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let it = with_channel(scene)?;
    let cq = &it.node().recv_cq;
    cq.req_notify(Notify::SolicitedOnly)?;
    it.message(scene, SendFlags::empty())?;
    it.no_event(scene, "for a completion that nobody solicited")?;
    it.message(scene, SendFlags::SOLICITED)?;
    it.event(scene)?;
    scene.completions(cq, 2)?;
    // A WRITE with immediate can be solicited too.
    let far = it.node().region(8, full_access())?;
    cq.req_notify(Notify::SolicitedOnly)?;
    it.node().recv(3, &[])?;
    let op = SendOp::Write {
        remote: far.remote(0),
        imm: Some(1),
    };
    it.pair
        .left
        .qp
        .post_send(&[SendWr::inline(4, op, b"x").with_flags(SendFlags::SIGNALED | SendFlags::SOLICITED)])?;
    scene.ends_with(&it.pair.left.send_cq, 4, WcStatus::Success)?;
    it.event(scene)?;
    scene.ends_with(cq, 3, WcStatus::Success)?;
    // An error counts as solicited.
    cq.req_notify(Notify::SolicitedOnly)?;
    it.node().recv(5, &[])?;
    it.node().go(QpState::Err)?;
    it.event(scene)?;
    scene.flushed(cq, [5])
}

fn failed_send_is_solicited<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let context = scene.context(Side::Left);
    let channel = context.create_channel()?;
    let pd = context.alloc_pd()?;
    let init = CqInit {
        channel: Some(&channel),
        ..CqInit::new(64)
    };
    let (send_cq, recv_cq) = (context.create_cq(&init)?, context.create_cq(&CqInit::new(64))?);
    let left = scene.node_with(Side::Left, &setup, &pd, &send_cq, &recv_cq)?;
    let right = scene.node(Side::Right, &setup)?;
    left.connect(&setup, &right.endpoint)?;
    right.connect(&setup, &left.endpoint)?;
    let far = right.region(64, full_access())?;
    let own = left.region(64, full_access())?;
    let op = SendOp::Write {
        remote: far.remote(0),
        imm: None,
    };
    send_cq.req_notify(Notify::SolicitedOnly)?;
    left.send(1, op, &[own.whole()])?;
    scene.ends_with(&send_cq, 1, WcStatus::Success)?;
    scene.rest(Duration::from_millis(5));
    check!(
        channel.wait(Some(Duration::ZERO))?.is_none(),
        "an event came for a send that succeeded"
    );
    let bad = verbs_api::Sge {
        lkey: verbs_api::LKey(0),
        ..own.whole()
    };
    left.send(2, op, &[bad])?;
    scene.until("an event for a send that failed", |_| {
        Ok(channel.wait(Some(Duration::ZERO))?)
    })?;
    scene.ends_with(&send_cq, 2, WcStatus::LocProtErr)?;
    Ok(())
}
