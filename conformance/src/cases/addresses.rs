//! Addresses of both IP families: handles, and the network header of received datagrams.

use roce_wire::ip::Ip;
use verbs_api::{ErrorKind, Gid, GidEntry, Object, ProtectionDomain, QpState, QueuePair, WcStatus};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Inbox, Node, Setup, datagram, full_access, pattern, read, same_bytes, write};
use crate::scene::Scene;
use crate::testbed::{Family, Need, Side, Testbed};
use crate::{check, same};

const DATAGRAMS: &[Need] = &[Need::Ud];
const BOTH: &[Need] = &[Need::Ud, Need::BothFamilies];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "A24",
            "connections work over IPv4 and over IPv6",
            &["GID-2", "ADDR-1"],
            both_families,
        )
        .needing(&[Need::BothFamilies]),
        Case::verbs(
            "A24-MIX",
            "addresses of two families do not go together",
            &["ADDR-2"],
            mixed_families,
        )
        .needing(&[Need::BothFamilies]),
        Case::verbs(
            "A24-UD",
            "an address handle between two families is refused",
            &["ADDR-2"],
            mixed_handle,
        )
        .needing(BOTH),
        Case::verbs(
            "A22",
            "traffic class and hop limit of a handle reach the receiver",
            &["ADDR-3"],
            traffic_class,
        )
        .needing(DATAGRAMS)
        .of_priority(2),
        Case::verbs(
            "B5",
            "a handle made from a completion leads back to the sender",
            &["AH-1"],
            |scene| way_back(scene, Family::Usual),
        )
        .needing(DATAGRAMS),
        Case::verbs(
            "B5-OTHER",
            "a handle made from a completion leads back, in the other family",
            &["AH-1"],
            |scene| way_back(scene, Family::Other),
        )
        .needing(BOTH),
        Case::verbs(
            "B5-NONE",
            "no handle is made from an area that is no network header",
            &["AH-2"],
            no_way_back,
        )
        .needing(DATAGRAMS),
        Case::verbs(
            "B6",
            "a datagram has its network header in front",
            &["UD-1", "GRH-1"],
            |scene| network_header(scene, Family::Usual),
        )
        .needing(DATAGRAMS),
        Case::verbs(
            "B6-OTHER",
            "a datagram has its network header in front, in the other family",
            &["UD-1", "GRH-1"],
            |scene| network_header(scene, Family::Other),
        )
        .needing(BOTH),
        Case::verbs("B0-AH", "handles to nowhere are refused", &["AH-3"], bad_handles)
            .needing(DATAGRAMS)
            .of_priority(2),
        Case::verbs(
            "B0-PD",
            "a domain with an address handle cannot go",
            &["CQ-6"],
            domain_in_use,
        )
        .needing(DATAGRAMS)
        .of_priority(2),
    ]
}

fn both_families<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mut seen = Vec::new();
    for family in [Family::Usual, Family::Other] {
        let setup = Setup {
            family,
            ..Setup::default()
        };
        let pair = scene.pair(&setup)?;
        seen.push(pair.left.endpoint.gid.gid.ip().is_ipv4());
        let (own, far) = (
            pair.left.region(10_000, full_access())?,
            pair.right.region(10_000, full_access())?,
        );
        far.scribble(6);
        pair.left.send(1, read(far.remote(0)), &[own.whole()])?;
        scene
            .ends_with(&pair.left.send_cq, 1, WcStatus::Success)
            .map_err(|e| e.during(format!("the {family:?} family")))?;
        same_bytes(
            "what was READ",
            &own.buffer.to_vec(0..10_000),
            &pattern(6, 10_000),
        )?;
        far.buffer.fill(0..10_000, 0);
        pair.left.send(2, write(far.remote(0)), &[own.whole()])?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        same_bytes(
            "what was written",
            &far.buffer.to_vec(0..10_000),
            &pattern(6, 10_000),
        )?;
        scene.still_works(&pair)?;
    }
    check!(seen[0] != seen[1], "both families of the bed are the same");
    Ok(())
}

fn mixed_families<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::default();
    let other = Setup {
        family: Family::Other,
        ..Setup::default()
    };
    let left = scene.node(Side::Left, &setup)?;
    let right = scene.node(Side::Right, &other)?;
    left.init(&setup)?;
    let before = left.qp.query()?;
    match left.rtr(&setup, &right.endpoint) {
        Ok(()) => {
            return Err(Failure::new(
                "a way between two IP families must be refused, but was taken",
            ));
        }
        Err(_) => left.is_in(QpState::Init)?,
    }
    let refused = left.qp.modify(&setup.to_rtr(&left.endpoint, &right.endpoint));
    let kind = refused.err().map(|error| error.kind());
    same!(
        kind,
        Some(ErrorKind::Invalid),
        "error of a way between two IP families"
    );
    same!(left.qp.query()?, before, "attributes after the refusal");
    Ok(())
}

fn mixed_handle<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let left = scene.node(Side::Left, &setup)?;
    let other = Setup {
        family: Family::Other,
        ..setup
    };
    let right = scene.node(Side::Right, &other)?;
    let made = left.pd.create_ah(&left.endpoint.vector_to(&right.endpoint));
    let kind = made.err().map(|error| error.kind());
    same!(
        kind,
        Some(ErrorKind::Invalid),
        "error of a handle between two IP families"
    );
    Ok(())
}

fn traffic_class<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let inbox = Inbox::new(&pair.right, 64)?;
    for (class, hops) in [(0u8, 64u8), (0x68, 17), (0x20, 255)] {
        let ah = pair.left.handle_with(&pair.right.endpoint, |av| {
            av.traffic_class = class;
            av.hop_limit = hops;
        })?;
        pair.right.recv(1, &[inbox.whole()])?;
        let op = datagram(&ah, &pair.right.endpoint, pair.setup.qkey);
        pair.left.send_inline(2, op, b"class")?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
        let header = inbox.header()?;
        same!(header.traffic_class(), class, "traffic class at the receiver");
        check!(
            header.hop_limit() <= hops && header.hop_limit() > hops.saturating_sub(8),
            "hop limit at the receiver: {} of {hops}",
            header.hop_limit()
        );
    }
    Ok(())
}

fn datagrams(family: Family) -> Setup {
    Setup {
        family,
        ..Setup::datagrams()
    }
}

fn way_back<B: Testbed>(scene: &mut Scene<B>, family: Family) -> CaseResult {
    let pair = scene.pair(&datagrams(family))?;
    let (left, right) = (&pair.left, &pair.right);
    let there = left.handle_with(&right.endpoint, |av| av.traffic_class = 0x28)?;
    let (inbox, answer) = (Inbox::new(right, 64)?, Inbox::new(left, 64)?);
    right.recv(1, &[inbox.whole()])?;
    left.recv(2, &[answer.whole()])?;
    left.send_inline(
        3,
        datagram(&there, &right.endpoint, pair.setup.qkey),
        b"who are you?",
    )?;
    scene.ends_with(&left.send_cq, 3, WcStatus::Success)?;
    let wc = scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
    let back = right
        .pd
        .create_ah_from_wc(&wc, &inbox.area(), right.endpoint.gid.port)?;
    let to_sender = crate::pair::Endpoint {
        qpn: wc.src_qp,
        ..left.endpoint.clone()
    };
    right.send_inline(4, datagram(&back, &to_sender, pair.setup.qkey), b"the right one")?;
    scene.ends_with(&right.send_cq, 4, WcStatus::Success)?;
    let wc = scene
        .ends_with(&left.recv_cq, 2, WcStatus::Success)
        .map_err(|e| e.during("the answer"))?;
    answer.holds(&wc, b"the right one", &right.endpoint)?;
    let class = answer.header()?.traffic_class();
    same!(
        class,
        0x28,
        "traffic class of the answer, which is that of the question"
    );
    Ok(())
}

fn no_way_back<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let (left, right) = (&pair.left, &pair.right);
    let there = left.handle_to(&right.endpoint)?;
    let inbox = Inbox::new(right, 64)?;
    right.recv(1, &[inbox.whole()])?;
    left.send_inline(3, datagram(&there, &right.endpoint, pair.setup.qkey), b"hello")?;
    let wc = scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
    let port = right.endpoint.gid.port;
    let garbage = [0xA5; 40];
    check!(
        right.pd.create_ah_from_wc(&wc, &garbage, port).is_err(),
        "a handle was made from an area of 40 bytes 0xa5"
    );
    check!(
        right.pd.create_ah_from_wc(&wc, &[0; 40], port).is_err(),
        "a handle was made from an area of zeros"
    );
    let without = verbs_api::Wc {
        flags: verbs_api::WcFlags::empty(),
        ..wc
    };
    check!(
        right.pd.create_ah_from_wc(&without, &inbox.area(), port).is_err(),
        "a handle was made from a completion without GRH flag"
    );
    Ok(())
}

fn network_header<B: Testbed>(scene: &mut Scene<B>, family: Family) -> CaseResult {
    let pair = scene.pair(&datagrams(family))?;
    let (left, right) = (&pair.left, &pair.right);
    let ah = left.handle_to(&right.endpoint)?;
    let inbox = Inbox::new(right, 64)?;
    for payload in [b"".as_slice(), b"12345", b"12345678"] {
        inbox.region.buffer.fill(0..104, 0);
        right.recv(1, &[inbox.whole()])?;
        left.send_inline(2, datagram(&ah, &right.endpoint, pair.setup.qkey), payload)?;
        scene.ends_with(&left.send_cq, 2, WcStatus::Success)?;
        scene.ends_with(&right.recv_cq, 1, WcStatus::Success)?;
        // Reading the header checks that the checksum of an IPv4 header is right.
        let header = inbox.header()?;
        same!(
            (header.src(), header.dst()),
            (left.endpoint.gid.gid.ip(), right.endpoint.gid.gid.ip()),
            "addresses in front of a datagram"
        );
        let area = inbox.area();
        // UDP header, BTH, DETH, payload with its pad, ICRC.
        let behind = 8 + 12 + 8 + payload.len().next_multiple_of(4) + 4;
        match header {
            Ip::V4(_) => {
                same!(area[20], 0x45, "version and length of the IPv4 header");
                same!(
                    usize::from(u16::from_be_bytes([area[22], area[23]])),
                    20 + behind,
                    "total length of the IPv4 header"
                );
                same!(area[29], 17, "protocol of the IPv4 header");
            }
            Ip::V6(_) => {
                same!(
                    usize::from(u16::from_be_bytes([area[4], area[5]])),
                    behind,
                    "payload length of the IPv6 header"
                );
                same!(area[6], 17, "next header of the IPv6 header");
            }
        }
    }
    Ok(())
}

fn bad_handles<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let left = scene.node(Side::Left, &setup)?;
    let right = scene.node(Side::Right, &setup)?;
    let beyond = |entry: &GidEntry| entry.index as u8 + 100;
    type Change = fn(&mut verbs_api::AddressVector);
    let changes: [(&str, Change); 3] = [
        ("port 0", |av| av.port = 0),
        ("port 9", |av| av.port = 9),
        ("no GID", |av| av.dgid = None),
    ];
    for (what, change) in changes {
        is_refused(&left, &right, what, change)?;
    }
    is_refused(&left, &right, "a GID index beyond the table", |av| {
        av.sgid_index = beyond(&left.endpoint.gid);
    })?;
    is_refused(&left, &right, "the zero GID", |av| av.dgid = Some(Gid([0; 16])))
}

fn is_refused<P: verbs_api::Provider>(
    left: &Node<P>,
    right: &Node<P>,
    what: &str,
    change: impl FnOnce(&mut verbs_api::AddressVector),
) -> CaseResult {
    let mut av = left.endpoint.vector_to(&right.endpoint);
    change(&mut av);
    match left.pd.create_ah(&av) {
        Ok(_) => Err(Failure::new(format!("a handle to {what} was created"))),
        Err(error) => {
            check!(
                matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NotFound),
                "a handle to {what} must be refused with EINVAL, not {error} (errno {})",
                error.errno()
            );
            Ok(())
        }
    }
}

fn domain_in_use<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let node = scene.node(Side::Left, &setup)?;
    let ah = node.handle_to(&node.endpoint)?;
    let Node { qp, pd, .. } = node;
    qp.destroy()?;
    let pd = match pd.destroy() {
        Ok(()) => return Err(Failure::new("a domain with an address handle was freed")),
        Err(refused) => {
            same!(refused.error.kind(), ErrorKind::Busy, "error ({})", refused.error);
            refused.object
        }
    };
    ah.destroy()?;
    pd.destroy()?;
    Ok(())
}
