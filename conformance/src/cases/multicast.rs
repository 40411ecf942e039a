//! Multicast: one datagram, many receivers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use verbs_api::{Context as _, ErrorKind, Gid, Object, Provider, QpState, QueuePair, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Endpoint, Inbox, Node, Setup, datagram};
use crate::scene::Scene;
use crate::testbed::{Family, Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Ud, Need::Multicast];
/// Where datagrams to a group go.
const MULTICAST_QPN: u32 = 0xFF_FFFF;
/// How long to wait for what must not come.
const WHILE: Duration = Duration::from_millis(20);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "G18",
            "each queue pair in a group gets each datagram once, others none",
            &["MCAST-1", "UD-3"],
            |scene| everyone_once(scene, Family::Usual),
        )
        .needing(NEEDS),
        Case::verbs(
            "G18-OTHER",
            "each queue pair in a group gets each datagram once, in the other family",
            &["MCAST-1", "UD-3"],
            |scene| everyone_once(scene, Family::Other),
        )
        .needing(&[
            Need::Ud,
            Need::Multicast,
            Need::BothFamilies,
            Need::MulticastInBothFamilies,
        ]),
        Case::verbs(
            "G18-LEAVE",
            "a queue pair that left a group gets nothing more",
            &["MCAST-2"],
            leaving,
        )
        .needing(NEEDS),
        Case::verbs(
            "G18-SELF",
            "a member gets copies of what others on its own device send",
            &["MCAST-3"],
            loopback_copies,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "G18-BAD",
            "attaching to what is no group, or without datagrams, is refused",
            &["MCAST-4"],
            bad_attach,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "B10-GROUPS",
            "as many groups, and members of one, as the device says can be, and no more",
            &["DEV-3", "MCAST-2"],
            full,
        )
        .needing(NEEDS)
        .of_priority(3),
        Case::verbs(
            "C22",
            "a queue pair in a group cannot be destroyed",
            &["MCAST-5"],
            destroy_attached,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

/// A group that hardly anybody else on this machine uses.
fn group<P: Provider>(node: &Node<P>) -> Gid {
    let [_, a, b, c] = node.endpoint.qpn.to_be_bytes();
    match node.endpoint.gid.gid.ip() {
        IpAddr::V4(_) => Gid::from(Ipv4Addr::new(239, a | 1, b, c)),
        // Admin-local scope; on the loopback interface and in a simulator alike.
        IpAddr::V6(_) => Gid::from(IpAddr::V6(Ipv6Addr::new(
            0xff14,
            0,
            0,
            0,
            0,
            0x4791,
            a.into(),
            u16::from_be_bytes([b, c]),
        ))),
    }
}

/// The same, and the bed knows that both ends will join it.
fn announced<B: Testbed>(scene: &mut Scene<B>, node: &Node<B::P>) -> Gid {
    let group = group(node);
    for side in Side::BOTH {
        scene.bed.expect_group(side, group);
    }
    group
}

fn members(from: &Endpoint, group: Gid) -> Endpoint {
    let mut to = from.clone();
    (to.gid.gid, to.qpn) = (group, MULTICAST_QPN);
    to
}

/// A datagram queue pair with one receive of 64 bytes.
struct Member<P: Provider> {
    node: Node<P>,
    inbox: Inbox<P>,
}

fn member<B: Testbed>(scene: &Scene<B>, side: Side, setup: &Setup) -> Result<Member<B::P>, Failure> {
    let node = scene.node(side, setup)?;
    node.connect(setup, &node.endpoint)?;
    let inbox = Inbox::new(&node, 64)?;
    Ok(Member { node, inbox })
}

impl<P: Provider> Member<P> {
    fn listen(&self, wr_id: u64) -> CaseResult {
        self.node.recv(wr_id, &[self.inbox.whole()])
    }

    fn hears<B: Testbed<P = P>>(
        &self,
        scene: &mut Scene<B>,
        wr_id: u64,
        text: &[u8],
        from: &Endpoint,
    ) -> CaseResult {
        let wc = scene.ends_with(&self.node.recv_cq, wr_id, WcStatus::Success)?;
        self.inbox.holds(&wc, text, from)
    }
}

fn speak<B: Testbed>(
    scene: &mut Scene<B>,
    speaker: &Node<B::P>,
    group: Gid,
    qkey: u32,
    text: &[u8],
) -> CaseResult {
    let to = members(&speaker.endpoint, group);
    let ah = speaker.handle_to(&to)?;
    speaker.send_inline(900, datagram(&ah, &to, qkey), text)?;
    scene.ends_with(&speaker.send_cq, 900, WcStatus::Success)?;
    Ok(())
}

fn everyone_once<B: Testbed>(scene: &mut Scene<B>, family: Family) -> CaseResult {
    let setup = Setup {
        family,
        ..Setup::datagrams()
    };
    let speaker = scene.node(Side::Left, &setup)?;
    speaker.connect(&setup, &speaker.endpoint)?;
    let group = announced(scene, &speaker);
    let other_key = Setup {
        qkey: setup.qkey ^ 1,
        ..setup.clone()
    };
    let inside = [
        member(scene, Side::Right, &setup)?,
        member(scene, Side::Right, &setup)?,
        member(scene, Side::Right, &setup)?,
    ];
    let wrong_key = member(scene, Side::Right, &other_key)?;
    let outside = member(scene, Side::Right, &setup)?;
    for member in inside.iter().chain([&wrong_key]) {
        member.node.qp.attach_mcast(group, 0)?;
    }
    // Attaching twice is attaching once.
    inside[0].node.qp.attach_mcast(group, 0)?;
    for member in [&wrong_key, &outside] {
        member.listen(0)?;
    }
    for round in 0..20u64 {
        let text = format!("message {round}");
        for member in &inside {
            member.listen(round)?;
        }
        speak(scene, &speaker, group, setup.qkey, text.as_bytes())?;
        for member in &inside {
            member
                .hears(scene, round, text.as_bytes(), &speaker.endpoint)
                .map_err(|e| e.during(format!("round {round}")))?;
        }
    }
    // A second copy would find this receive.
    for member in &inside {
        member.listen(99)?;
    }
    for member in inside.iter().chain([&wrong_key, &outside]) {
        scene.quiet(&[&member.node.recv_cq], WHILE)?;
        member.node.is_in(QpState::Rts)?;
    }
    for member in inside.iter().chain([&wrong_key]) {
        member.node.qp.detach_mcast(group, 0)?;
    }
    Ok(())
}

fn leaving<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let speaker = scene.node(Side::Left, &setup)?;
    speaker.connect(&setup, &speaker.endpoint)?;
    let group = announced(scene, &speaker);
    let stays = member(scene, Side::Right, &setup)?;
    let leaves = member(scene, Side::Right, &setup)?;
    for member in [&stays, &leaves] {
        member.node.qp.attach_mcast(group, 0)?;
        member.listen(1)?;
        member.listen(2)?;
    }
    speak(scene, &speaker, group, setup.qkey, b"one")?;
    stays.hears(scene, 1, b"one", &speaker.endpoint)?;
    leaves.hears(scene, 1, b"one", &speaker.endpoint)?;
    leaves.node.qp.detach_mcast(group, 0)?;
    speak(scene, &speaker, group, setup.qkey, b"two")?;
    stays.hears(scene, 2, b"two", &speaker.endpoint)?;
    scene.quiet(&[&leaves.node.recv_cq], WHILE)?;
    let again = leaves.node.qp.detach_mcast(group, 0);
    check!(again.is_err(), "a queue pair left a group that it is not in");
    // The last one leaves; a group without members is no error for who speaks.
    stays.node.qp.detach_mcast(group, 0)?;
    speak(scene, &speaker, group, setup.qkey, b"three")?;
    stays.listen(3)?;
    scene.quiet(&[&stays.node.recv_cq, &leaves.node.recv_cq], WHILE)?;
    // And may come back.
    leaves.node.qp.attach_mcast(group, 0)?;
    speak(scene, &speaker, group, setup.qkey, b"four")?;
    leaves.hears(scene, 2, b"four", &speaker.endpoint)?;
    leaves.node.qp.detach_mcast(group, 0)?;
    Ok(())
}

fn loopback_copies<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let speaker = member(scene, Side::Left, &setup)?;
    let beside = member(scene, Side::Left, &setup)?;
    let far = member(scene, Side::Right, &setup)?;
    let group = announced(scene, &speaker.node);
    for member in [&beside, &far] {
        member.node.qp.attach_mcast(group, 0)?;
    }
    for round in 0..3 {
        for member in [&beside, &far] {
            member.listen(round)?;
        }
        speak(scene, &speaker.node, group, setup.qkey, b"to all")?;
        for member in [&beside, &far] {
            member.hears(scene, round, b"to all", &speaker.node.endpoint)?;
        }
    }
    for member in [&beside, &far] {
        member.listen(9)?;
        scene.quiet(&[&member.node.recv_cq], WHILE)?;
        member.node.qp.detach_mcast(group, 0)?;
    }
    Ok(())
}

fn bad_attach<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let datagrams = scene.node(Side::Left, &setup)?;
    let connected = scene.node(Side::Left, &Setup::default())?;
    let group = group(&datagrams);
    let attempts = [
        ("a connected queue pair to a group", &connected, group),
        (
            "a queue pair to an address that is no group",
            &datagrams,
            datagrams.endpoint.gid.gid,
        ),
        ("a queue pair to the zero GID", &datagrams, Gid([0; 16])),
    ];
    for (what, node, gid) in attempts {
        match node.qp.attach_mcast(gid, 0) {
            Ok(()) => return Err(Failure::new(format!("{what} was attached"))),
            Err(error) => same!(
                error.kind(),
                ErrorKind::Invalid,
                "error of attaching {what} ({error})"
            ),
        }
    }
    let absent = datagrams.qp.detach_mcast(group, 0);
    check!(absent.is_err(), "a queue pair left a group that it never was in");
    Ok(())
}

fn destroy_attached<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let node = scene.node(Side::Left, &setup)?;
    let group = group(&node);
    node.qp.attach_mcast(group, 0)?;
    let qp = match node.qp.destroy() {
        Ok(()) => return Err(Failure::new("a queue pair in a group was destroyed")),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            refused.object
        }
    };
    qp.detach_mcast(group, 0)?;
    qp.destroy()?;
    Ok(())
}

/// Attaching is refused: ENOMEM or EINVAL.
fn is_refused<P: Provider>(node: &Node<P>, group: Gid, what: &str) -> CaseResult {
    match node.qp.attach_mcast(group, 0) {
        Ok(()) => Err(Failure::new(format!("{what} was attached"))),
        Err(error) => {
            check!(
                matches!(error.kind(), ErrorKind::NoMemory | ErrorKind::Invalid),
                "error of {what}: {error} (errno {})",
                error.errno()
            );
            Ok(())
        }
    }
}

fn full<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    /// Groups and members up to this many are tried out.
    const TRIED_UP_TO: u32 = 512;
    let setup = Setup {
        family: Family::Usual,
        ..Setup::datagrams()
    };
    let device = scene.context(Side::Left).query_device()?;
    let first = scene.node(Side::Left, &setup)?;
    first.connect(&setup, &first.endpoint)?;
    let numbered = |n: u32| match first.endpoint.gid.gid.ip() {
        IpAddr::V4(_) => Gid::from(Ipv4Addr::new(239, 201, (n >> 8) as u8, n as u8)),
        IpAddr::V6(_) => Gid::from(IpAddr::V6(Ipv6Addr::new(
            0xff14, 0, 0, 0, 0, 0x4791, 0xc9, n as u16,
        ))),
    };
    if device.max_mcast_grp <= TRIED_UP_TO {
        for n in 0..device.max_mcast_grp {
            first.qp.attach_mcast(numbered(n), 0)?;
        }
        let beyond = numbered(device.max_mcast_grp);
        is_refused(
            &first,
            beyond,
            "a queue pair in one group more than the device has",
        )?;
        first.qp.detach_mcast(numbered(3), 0)?;
        first.qp.attach_mcast(beyond, 0)?;
        first.qp.detach_mcast(beyond, 0)?;
        for n in (0..device.max_mcast_grp).filter(|n| *n != 3) {
            first.qp.detach_mcast(numbered(n), 0)?;
        }
    }
    if device.max_mcast_qp_attach <= TRIED_UP_TO {
        let group = numbered(7);
        let mut members = Vec::new();
        for _ in 0..device.max_mcast_qp_attach {
            let node = scene.node(Side::Left, &setup)?;
            node.qp.attach_mcast(group, 0)?;
            members.push(node);
        }
        is_refused(&first, group, "a member more than a group has")?;
        // Who is in it already stays.
        members[0].qp.attach_mcast(group, 0)?;
        members[1].qp.detach_mcast(group, 0)?;
        first.qp.attach_mcast(group, 0)?;
        first.qp.detach_mcast(group, 0)?;
        for (n, node) in members.iter().enumerate() {
            if n != 1 {
                node.qp.detach_mcast(group, 0)?;
            }
        }
    }
    Ok(())
}
