//! Unreliable datagrams: what arrives and what does not.

use std::time::Duration;

use roce_wire::{Deth, Opcode, Psn, QKey, Qpn};
use verbs_api::{
    Context as _, ErrorKind, Object, QpState, QueuePair, RKey, RemoteAddr, SendOp, SendWr, WcFlags, WcStatus,
};

use super::played::SHORT;
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Inbox, Node, Setup, datagram, full_access, read, same_bytes, send, write};
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

const NEEDS: &[Need] = &[Need::Ud];
const RAW: &[Need] = &[Need::Network, Need::Ud];
/// How long to wait for what must not come.
const WHILE: Duration = Duration::from_millis(5);

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "G10",
            "datagrams up to the MTU arrive whole",
            &["UD-1", "UD-2"],
            lengths,
        )
        .needing(NEEDS),
        Case::verbs(
            "G10-LONG",
            "a datagram longer than the MTU is not sent",
            &["UD-2"],
            too_long,
        )
        .needing(NEEDS),
        Case::verbs(
            "G11",
            "a datagram's completion has its length with 40 bytes in front, its sender and the GRH flag",
            &["UD-1"],
            completion,
        )
        .needing(NEEDS),
        Case::verbs(
            "G13",
            "a Q_Key with its highest bit set stands for the sender's own",
            &["UD-4"],
            controlled_qkey,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer("G16", "datagrams with any PSN are taken", &["UD-6"], any_psn)
            .needing(RAW)
            .of_priority(2),
        Case::verbs(
            "G17",
            "a datagram brings its immediate",
            &["UD-1", "IMM-1"],
            immediate,
        )
        .needing(NEEDS),
        Case::verbs(
            "G20",
            "datagram queue pairs refuse everything but SEND",
            &["UD-7"],
            refused_operations,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::verbs(
            "G21",
            "an address handle of another domain sends nothing",
            &["UD-8"],
            foreign_handle,
        )
        .needing(NEEDS)
        .of_priority(2),
    ]
}

fn mtu<B: Testbed>(scene: &Scene<B>) -> Result<usize, Failure> {
    Ok(scene.context(Side::Left).query_port(1)?.active_mtu.bytes())
}

fn lengths<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mtu = mtu(scene)?;
    let setup = Setup::datagrams();
    let pair = scene.pair(&setup)?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let source = pair.left.region(mtu, full_access())?;
    source.scribble(1);
    for length in [0, 1, 2, 3, 4, 5, 255, 256, 257, 1023, 1024, mtu - 1, mtu] {
        if length > mtu {
            continue;
        }
        let inbox = Inbox::new(&pair.right, length)?;
        pair.right.recv(1, &[inbox.whole()])?;
        let sges = [source.sge(0..length)];
        pair.left
            .send_to(2, &ah, &pair.right.endpoint, setup.qkey, &sges)?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        let wc = scene
            .ends_with(&pair.right.recv_cq, 1, WcStatus::Success)
            .map_err(|e| e.during(format!("{length} bytes")))?;
        inbox
            .holds(&wc, &source.buffer.to_vec(0..length), &pair.left.endpoint)
            .map_err(|e| e.during(format!("{length} bytes")))?;
    }
    Ok(())
}

fn too_long<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let mtu = mtu(scene)?;
    let setup = Setup::datagrams();
    let pair = scene.pair(&setup)?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let source = pair.left.region(mtu + 1, full_access())?;
    let inbox = Inbox::new(&pair.right, mtu + 1)?;
    pair.right.recv(1, &[inbox.whole()])?;
    let sges = [source.whole()];
    let wr = SendWr::new(2, datagram(&ah, &pair.right.endpoint, setup.qkey), &sges);
    match pair.left.qp.post_send(&[wr]) {
        Err(refused) => same!(
            refused.error.kind(),
            ErrorKind::Invalid,
            "error of a datagram of {} bytes ({})",
            mtu + 1,
            refused.error
        ),
        Ok(()) => {
            let wc = scene.completion(&pair.left.send_cq)?;
            check!(
                matches!(wc.status, WcStatus::Success | WcStatus::LocLenErr),
                "a datagram of {} bytes must be refused, end with LOC_LEN_ERR, or be lost; it ended with {:?}",
                mtu + 1,
                wc.status
            );
        }
    }
    scene.quiet(&[&pair.right.recv_cq], WHILE)?;
    pair.right.is_in(QpState::Rts)
}

fn completion<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let inbox = Inbox::new(&pair.right, 100)?;
    pair.right.recv(3, &[inbox.whole()])?;
    let op = datagram(&ah, &pair.right.endpoint, pair.setup.qkey);
    pair.left.send_inline(1, op, b"who is there?")?;
    scene.ends_with(&pair.left.send_cq, 1, WcStatus::Success)?;
    let wc = scene.ends_with(&pair.right.recv_cq, 3, WcStatus::Success)?;
    inbox.holds(&wc, b"who is there?", &pair.left.endpoint)?;
    same!(wc.qp_num, pair.right.endpoint.qpn, "receiving queue pair");
    same!(wc.pkey_index, 0, "P_Key index of a datagram");
    check!(
        !wc.flags.contains(WcFlags::WITH_IMM),
        "no immediate was sent, but the flags are {:?}",
        wc.flags
    );
    // The area may be scattered apart from the payload.
    let (area, payload) = (
        pair.right.region(40, full_access())?,
        pair.right.region(64, full_access())?,
    );
    pair.right.recv(4, &[area.whole(), payload.whole()])?;
    let op = datagram(&ah, &pair.right.endpoint, pair.setup.qkey);
    pair.left.send_inline(2, op, b"two entries")?;
    scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
    let wc = scene.ends_with(&pair.right.recv_cq, 4, WcStatus::Success)?;
    same!(wc.byte_len, 51, "length of the datagram in two entries");
    same_bytes("the second entry", &payload.buffer.to_vec(0..11), b"two entries")
}

fn controlled_qkey<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let pair = scene.pair(&setup)?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let inbox = Inbox::new(&pair.right, 64)?;
    for qkey in [0x8000_0000, 0xffff_ffff, setup.qkey | 0x8000_0000] {
        pair.right.recv(1, &[inbox.whole()])?;
        let op = datagram(&ah, &pair.right.endpoint, qkey);
        pair.left.send_inline(2, op, b"own key")?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        let wc = scene
            .ends_with(&pair.right.recv_cq, 1, WcStatus::Success)
            .map_err(|e| e.during(format!("sent with Q_Key {qkey:#x}")))?;
        inbox.holds(&wc, b"own key", &pair.left.endpoint)?;
    }
    Ok(())
}

/// A datagram from nowhere with this PSN.
fn forge<B: Testbed>(
    scene: &mut Scene<B>,
    node: &Node<B::P>,
    psn: Psn,
    qkey: u32,
    payload: &[u8],
) -> CaseResult {
    let dest = Qpn::new(node.endpoint.qpn).ok_or_else(|| Failure::new("queue pair numbers have 24 bits"))?;
    let source_qp = Qpn::new(0xABC).ok_or_else(|| Failure::new("queue pair numbers have 24 bits"))?;
    let mut headers = roce_wire::Headers::new(roce_wire::Bth::new(Opcode::UD_SEND_ONLY, dest, psn));
    headers.deth = Some(Deth {
        qkey: QKey(qkey),
        source_qp,
    });
    scene.network().inject(node.endpoint.side, &headers, payload);
    Ok(())
}

fn any_psn<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let node = scene.node(Side::Left, &setup)?;
    node.connect(&setup, &node.endpoint)?;
    let inbox = Inbox::new(&node, 64)?;
    for (wr_id, psn) in [(1, 0u32), (2, 0x80_0000), (3, 5), (4, 5), (5, 0xff_ffff)] {
        node.recv(wr_id, &[inbox.whole()])?;
        forge(scene, &node, Psn::new(psn), setup.qkey, b"hello")?;
        let wc = scene
            .ends_with(&node.recv_cq, wr_id, WcStatus::Success)
            .map_err(|e| e.during(format!("PSN {psn:#x}")))?;
        same!(
            (wc.src_qp, wc.byte_len),
            (0xABC, 45),
            "sender and length with PSN {psn:#x}"
        );
    }
    // Datagrams get no answer.
    scene.rest(SHORT);
    let from_it = scene.network().take_trace();
    same!(from_it.len(), 0, "packets sent in answer to datagrams");
    Ok(())
}

fn immediate<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let inbox = Inbox::new(&pair.right, 64)?;
    for payload in [b"".as_slice(), b"with a payload"] {
        pair.right.recv(1, &[inbox.whole()])?;
        let op = SendOp::SendTo {
            ah: &ah,
            remote_qpn: pair.right.endpoint.qpn,
            remote_qkey: pair.setup.qkey,
            imm: Some(0xA1B2_C3D4),
        };
        pair.left.send_inline(2, op, payload)?;
        scene.ends_with(&pair.left.send_cq, 2, WcStatus::Success)?;
        let wc = scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
        same!(wc.immediate(), Some(0xA1B2_C3D4), "immediate of a datagram");
        inbox.holds(&wc, payload, &pair.left.endpoint)?;
    }
    Ok(())
}

fn refused_operations<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let own = pair.left.region(8, full_access())?;
    let remote = RemoteAddr {
        addr: own.remote(0).addr,
        rkey: RKey(1),
    };
    let operations = [
        ("a SEND without address", send()),
        ("WRITE", write(remote)),
        ("READ", read(remote)),
        ("fetch and add", SendOp::FetchAdd { remote, add: 1 }),
        (
            "SEND with invalidate",
            SendOp::SendWithInvalidate { rkey: RKey(1) },
        ),
    ];
    for (name, op) in operations {
        let sges = [own.whole()];
        match pair.left.qp.post_send(&[SendWr::new(1, op, &sges)]) {
            Ok(()) => {
                return Err(Failure::new(format!(
                    "{name} must be refused on a datagram queue pair, but was accepted"
                )));
            }
            Err(refused) => check!(
                refused.posted == 0
                    && matches!(refused.error.kind(), ErrorKind::Invalid | ErrorKind::Unsupported),
                "{name} must be refused with EINVAL, not {}",
                refused.error
            ),
        }
    }
    // And a connected queue pair refuses a datagram.
    let connected = scene.pair(&Setup::default())?;
    let ah = connected.left.handle_to(&connected.right.endpoint)?;
    let op = datagram(&ah, &connected.right.endpoint, 1);
    match connected.left.qp.post_send(&[SendWr::inline(1, op, b"x")]) {
        Ok(()) => Err(Failure::new(
            "a connected queue pair must refuse a datagram, but accepted it",
        )),
        Err(refused) => {
            same!(
                refused.error.kind(),
                ErrorKind::Invalid,
                "error of a datagram on a connected queue pair ({})",
                refused.error
            );
            scene.still_works(&connected)
        }
    }
}

fn foreign_handle<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup::datagrams())?;
    let other = scene.node(Side::Left, &Setup::datagrams())?;
    let foreign = other.handle_to(&pair.right.endpoint)?;
    let inbox = Inbox::new(&pair.right, 64)?;
    pair.right.recv(1, &[inbox.whole()])?;
    let op = datagram(&foreign, &pair.right.endpoint, pair.setup.qkey);
    match pair.left.qp.post_send(&[SendWr::inline(1, op, b"foreign")]) {
        Err(refused) => same!(
            refused.error.kind(),
            ErrorKind::Invalid,
            "error of a handle of another domain ({})",
            refused.error
        ),
        Ok(()) => {
            scene.ends_with(&pair.left.send_cq, 1, WcStatus::LocQpOpErr)?;
        }
    }
    scene.quiet(&[&pair.right.recv_cq], WHILE)?;
    foreign.destroy()?;
    Ok(())
}
