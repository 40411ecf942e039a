//! The device's limits: what lies beyond is refused, and nothing less.

use verbs_api::{
    Buffer, Context as _, CqInit, ErrorKind, EventKind, EventSource, MwType, Object, PortState,
    ProtectionDomain, QpAttr, QpCap, QpInit, QpState, QpType, QueuePair, SendWr, SrqInit, WcStatus,
};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, same_bytes, send};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// Limits up to this are tried out; one more object is asked for than they permit.
const TRIED_UP_TO: u32 = 1 << 17;

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "B10-PD",
            "as many domains as the device says can be had, and no more",
            &["DEV-2", "DEV-3"],
            domains,
        )
        .of_priority(2),
        Case::verbs(
            "B10-CQ",
            "as many completion queues as the device says can be had, and no more",
            &["DEV-2", "DEV-3"],
            completion_queues,
        )
        .of_priority(2),
        Case::verbs(
            "B10-MR",
            "as many regions as the device says can be had, and no more",
            &["DEV-2", "DEV-3"],
            regions,
        )
        .of_priority(3),
        Case::verbs(
            "B10-MW",
            "as many memory windows as the device says can be had, and no more",
            &["DEV-2", "DEV-3"],
            windows,
        )
        .needing(&[Need::MwType1])
        .of_priority(3),
        Case::verbs(
            "B10-SRQS",
            "as many shared receive queues as the device says can be had, and no more",
            &["DEV-2", "DEV-3"],
            all_shared_queues,
        )
        .needing(&[Need::Srq])
        .of_priority(3),
        Case::verbs(
            "B10-FULL",
            "a queue pair of all the greatest sizes works",
            &["DEV-3"],
            greatest_sizes,
        )
        .of_priority(2),
        Case::verbs(
            "B10-SRQ",
            "shared receive queues beyond the limits are refused",
            &["DEV-2"],
            shared_queues,
        )
        .needing(&[Need::Srq])
        .of_priority(2),
        Case::verbs(
            "B10-RDATOM",
            "more READs outstanding than the device can are refused",
            &["DEV-2"],
            read_depth,
        )
        .of_priority(2),
        Case::verbs(
            "B10-TYPE",
            "queue pairs lack nothing that their type needs",
            &["QP-17"],
            incomplete_queue_pairs,
        )
        .of_priority(2),
        Case::verbs(
            "B9",
            "a path MTU above the port's is refused, or carried",
            &["MTU-1"],
            path_mtu,
        )
        .of_priority(2),
        Case::verbs(
            "B7",
            "a port that goes down and up says so, and its connections survive",
            &["PORT-1"],
            port_down_and_up,
        )
        .needing(&[Need::PortControl])
        .of_priority(2),
    ]
}

/// Make objects until one is refused. There must be `limit` at least, and the refusal one of ENOMEM or EINVAL; once
/// one is given back another can be made.
fn exhaust<T: Object>(limit: u32, what: &str, mut make: impl FnMut() -> verbs_api::Result<T>) -> CaseResult {
    if limit > TRIED_UP_TO {
        return Ok(());
    }
    let mut all = Vec::with_capacity(limit as usize);
    let error = loop {
        match make() {
            Ok(object) => all.push(object),
            Err(error) => break error,
        }
        check!(
            all.len() <= limit as usize,
            "{} {what} were made, the device says {limit}",
            all.len()
        );
    };
    same!(
        all.len(),
        limit as usize,
        "{what} that could be made before {error}"
    );
    check!(
        matches!(error.kind(), ErrorKind::NoMemory | ErrorKind::Invalid),
        "{what} beyond the limit must be ENOMEM or EINVAL, is {error} (errno {})",
        error.errno()
    );
    if let Some(one) = all.pop() {
        one.destroy()?;
        all.push(make()?);
    }
    Ok(())
}

fn domains<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    exhaust(context.query_device()?.max_pd, "domains", || context.alloc_pd())
}

fn completion_queues<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let device = context.query_device()?;
    if device.max_cqe <= 1 << 20 {
        context.create_cq(&CqInit::new(device.max_cqe))?.destroy()?;
        check!(
            context.create_cq(&CqInit::new(device.max_cqe + 1)).is_err(),
            "a completion queue of more than {} was created",
            device.max_cqe
        );
    }
    exhaust(context.query_device()?.max_cq, "completion queues", || {
        context.create_cq(&CqInit::new(1))
    })
}

fn regions<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let pd = context.alloc_pd()?;
    let buffer = Buffer::new(64);
    exhaust(context.query_device()?.max_mr, "regions", || {
        pd.reg_mr(&buffer, full_access())
    })
}

fn windows<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let pd = context.alloc_pd()?;
    exhaust(context.query_device()?.max_mw, "memory windows", || {
        pd.alloc_mw(MwType::Type1)
    })
}

fn all_shared_queues<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let pd = context.alloc_pd()?;
    exhaust(context.query_device()?.max_srq, "shared receive queues", || {
        pd.create_srq(&SrqInit {
            max_wr: 1,
            max_sge: 1,
            limit: 0,
            cookie: 0,
            xrc: None,
        })
    })
}

fn greatest_sizes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let device = scene.context(Side::Left).query_device()?;
    let cap = QpCap {
        max_send_wr: device.max_qp_wr,
        max_recv_wr: device.max_qp_wr,
        max_send_sge: device.max_sge,
        max_recv_sge: device.max_sge,
        max_inline_data: device.max_inline_data,
    };
    let pair = scene.pair(&Setup {
        cap,
        rd_atomic: u8::try_from(device.max_qp_rd_atom).unwrap_or(u8::MAX),
        ..Setup::default()
    })?;
    let granted = pair.left.qp.cap();
    check!(
        granted.max_send_wr >= cap.max_send_wr
            && granted.max_recv_wr >= cap.max_recv_wr
            && granted.max_send_sge >= cap.max_send_sge
            && granted.max_recv_sge >= cap.max_recv_sge
            && granted.max_inline_data >= cap.max_inline_data,
        "asked for {cap:?}, granted {granted:?}"
    );
    let count = device.max_sge as usize;
    let (own, far) = (
        pair.left.region(count, full_access())?,
        pair.right.region(count, full_access())?,
    );
    own.scribble(1);
    let gather: Vec<_> = (0..count).map(|at| own.sge(at..at + 1)).collect();
    let scatter: Vec<_> = (0..count).rev().map(|at| far.sge(at..at + 1)).collect();
    pair.right.recv(1, &scatter)?;
    pair.left.send(2, send(), &gather)?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
    let mut turned = own.buffer.to_vec(0..count);
    turned.reverse();
    same_bytes("bytes scattered backwards", &far.buffer.to_vec(0..count), &turned)?;
    let bytes = vec![7; device.max_inline_data as usize];
    let sink = pair.right.region(bytes.len().max(1), full_access())?;
    pair.right.recv(3, &[sink.whole()])?;
    pair.left.send_inline(4, send(), &bytes)?;
    scene.ends_with(&pair.left.send_cq, 4, WcStatus::Success)?;
    scene.ends_with(&pair.right.recv_cq, 3, WcStatus::Success)?;
    // One more of anything is too much.
    let one_more = vec![own.sge(0..1); count + 1];
    let beyond = vec![7; granted.max_inline_data as usize + 1];
    for (what, refused) in [
        (
            "a SEND with one entry more",
            pair.left.qp.post_send(&[SendWr::new(5, send(), &one_more)]).err(),
        ),
        (
            "a SEND with one inline byte more",
            pair.left
                .qp
                .post_send(&[SendWr::inline(6, send(), &beyond)])
                .err(),
        ),
    ] {
        same!(
            refused.map(|refused| refused.error.kind()),
            (granted.max_send_sge as usize == count || what.contains("inline")).then_some(ErrorKind::Invalid),
            "error of {what} than granted"
        );
    }
    scene.still_works(&pair)
}

fn shared_queues<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let device = scene.context(Side::Left).query_device()?;
    check!(
        device.max_srq > 0 && device.max_srq_wr > 0 && device.max_srq_sge > 0,
        "shared receive queues are offered, but a limit of theirs is 0: {device:?}"
    );
    let pd = scene.context(Side::Left).alloc_pd()?;
    let greatest = pd.create_srq(&SrqInit {
        max_wr: device.max_srq_wr,
        max_sge: device.max_srq_sge,
        limit: device.max_srq_wr,
        cookie: 0,
        xrc: None,
    })?;
    greatest.destroy()?;
    for (max_wr, max_sge) in [(device.max_srq_wr + 1, 1), (1, device.max_srq_sge + 1)] {
        let made = pd.create_srq(&SrqInit {
            max_wr,
            max_sge,
            limit: 0,
            cookie: 0,
            xrc: None,
        });
        match made {
            Ok(_) => {
                return Err(Failure::new(format!(
                    "a shared queue of {max_wr} receives of {max_sge} entries was made"
                )));
            }
            Err(error) => check!(
                matches!(error.kind(), ErrorKind::NoMemory | ErrorKind::Invalid),
                "error of a shared queue beyond the limits: {error}"
            ),
        }
    }
    Ok(())
}

fn read_depth<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let device = scene.context(Side::Left).query_device()?;
    let Ok(beyond) = u8::try_from(device.max_qp_rd_atom + 1) else {
        return Ok(());
    };
    let setup = Setup::default();
    let pair = scene.unconnected(&setup)?;
    let (left, peer) = (&pair.left, &pair.right.endpoint);
    left.init(&setup)?;
    let attr = QpAttr {
        max_dest_rd_atomic: Some(beyond),
        ..setup.to_rtr(&left.endpoint, peer)
    };
    let answer = left.qp.modify(&attr);
    same!(
        answer.err().map(|error| error.kind()),
        Some(ErrorKind::Invalid),
        "error of max_dest_rd_atomic {beyond}"
    );
    left.is_in(QpState::Init)?;
    left.rtr(&setup, peer)?;
    let Ok(beyond) = u8::try_from(device.max_qp_init_rd_atom + 1) else {
        return Ok(());
    };
    let attr = QpAttr {
        max_rd_atomic: Some(beyond),
        ..setup.to_rts(&left.endpoint)
    };
    let answer = left.qp.modify(&attr);
    same!(
        answer.err().map(|error| error.kind()),
        Some(ErrorKind::Invalid),
        "error of max_rd_atomic {beyond}"
    );
    left.is_in(QpState::Rtr)
}

fn incomplete_queue_pairs<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let node = scene.node(Side::Left, &Setup::default())?;
    let whole = QpInit {
        send_cq: Some(&node.send_cq),
        recv_cq: Some(&node.recv_cq),
        ..QpInit::rc(&node.send_cq)
    };
    let attempts = [
        (
            "without a queue for sends",
            QpInit {
                send_cq: None,
                ..whole
            },
        ),
        (
            "without a queue for receives",
            QpInit {
                recv_cq: None,
                send_cq: Some(&node.send_cq),
                ..QpInit::rc(&node.send_cq)
            },
        ),
        (
            "as an XRC initiator without a queue for sends",
            QpInit {
                qp_type: QpType::XrcInitiator,
                send_cq: None,
                recv_cq: None,
                ..QpInit::rc(&node.send_cq)
            },
        ),
        (
            "as an XRC target without a domain",
            QpInit {
                qp_type: QpType::XrcTarget,
                send_cq: None,
                recv_cq: None,
                ..QpInit::rc(&node.send_cq)
            },
        ),
    ];
    for (what, init) in attempts {
        match node.pd.create_qp(&init) {
            Ok(_) => return Err(Failure::new(format!("a queue pair {what} was created"))),
            Err(error) => check!(
                matches!(error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported),
                "error of a queue pair {what}: {error} (errno {})",
                error.errno()
            ),
        }
    }
    Ok(())
}

fn path_mtu<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let active = scene.context(Side::Left).query_port(1)?.active_mtu;
    let setup = Setup::default();
    for mtu in verbs_api::Mtu::ALL {
        let pair = scene.unconnected(&setup)?;
        let (left, right) = (&pair.left, &pair.right);
        let setup = Setup { mtu, ..setup.clone() };
        left.init(&setup)?;
        let answer = left.qp.modify(&setup.to_rtr(&left.endpoint, &right.endpoint));
        match answer {
            Err(error) if mtu > active => {
                same!(
                    error.kind(),
                    ErrorKind::Invalid,
                    "error of {mtu:?} on a port of {active:?} ({error})"
                );
                left.is_in(QpState::Init)?;
            }
            Err(error) => {
                return Err(Failure::new(format!(
                    "{mtu:?} on a port of {active:?} was refused: {error}"
                )));
            }
            Ok(()) => {
                left.rts(&setup)?;
                right.connect(&setup, &left.endpoint)?;
                let (own, far) = (
                    left.region(20_000, full_access())?,
                    right.region(20_000, full_access())?,
                );
                own.scribble(3);
                left.send(1, crate::pair::write(far.remote(0)), &[own.whole()])?;
                scene
                    .ends_with(&left.send_cq, 1, WcStatus::Success)
                    .map_err(|e| e.during(format!("{mtu:?} on a port of {active:?}")))?;
                same_bytes(
                    "what was written",
                    &far.buffer.to_vec(0..20_000),
                    &own.buffer.to_vec(0..20_000),
                )?;
            }
        }
    }
    Ok(())
}

fn port_down_and_up<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::default())?;
    scene.still_works(&pair)?;
    scene.other_events(Side::Right)?;
    let port = scene.gid(Side::Right)?.port;
    for (up, kind, state) in [
        (false, EventKind::PortErr, PortState::Down),
        (true, EventKind::PortActive, PortState::Active),
    ] {
        scene.bed.set_port_up(Side::Right, up);
        scene.event(
            Side::Right,
            verbs_api::AsyncEvent {
                kind,
                source: EventSource::Port(port),
            },
        )?;
        same!(
            scene.context(Side::Right).query_port(port)?.state,
            state,
            "state of the port after {kind:?}"
        );
        let others = scene.other_events(Side::Right)?;
        check!(
            !others.iter().any(|event| matches!(
                event.kind,
                EventKind::GidChange | EventKind::PortErr | EventKind::PortActive
            )),
            "events besides {kind:?} of a port that keeps its addresses: {others:?}"
        );
    }
    scene.still_works(&pair)
}
