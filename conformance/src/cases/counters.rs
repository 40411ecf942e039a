//! What a device counts, against what was done to it.

use roce_wire::{Bth, Deth, Headers, ICRC_LEN, Opcode, PKey, Psn, QKey, Qpn, Syndrome};
use verbs_api::{SendOp, WcStatus};

use super::played::{SHORT, setup};
use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::{Setup, full_access, read, send, write};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Passing, Side, Testbed};

pub(super) const NEEDS: &[Need] = &[Need::Network, Need::Counters];

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::faults(
            "K0-PACKETS",
            "packets, bytes and messages are counted as they passed",
            &["COUNT-1"],
            packets,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::faults(
            "K0-DATAGRAMS",
            "datagrams are counted as they passed",
            &["COUNT-1"],
            datagrams,
        )
        .needing(&[Need::Network, Need::Counters, Need::Ud])
        .of_priority(2),
        Case::raw_peer(
            "K0-DROPS",
            "what is dropped is counted once, by its reason",
            &["COUNT-2"],
            drops,
        )
        .needing(NEEDS)
        .of_priority(2),
        Case::raw_peer(
            "K0-DROPS-UD",
            "datagrams that are dropped are counted once, by their reason",
            &["COUNT-2"],
            dropped_datagrams,
        )
        .needing(&[Need::Network, Need::Counters, Need::Ud])
        .of_priority(2),
        Case::raw_peer(
            "K0-DROPS-UC",
            "what UC drops is counted once, by its reason",
            &["COUNT-2"],
            dropped_by_uc,
        )
        .needing(&[Need::Network, Need::Counters, Need::Uc])
        .of_priority(2),
    ]
}

/// Counters of one end as they stood.
pub(super) struct Book {
    side: Side,
    before: Vec<(&'static str, u64)>,
}

impl Book {
    pub(super) fn open<B: Testbed>(scene: &Scene<B>, side: Side) -> Book {
        Book {
            side,
            before: scene.bed.counters(side),
        }
    }

    /// How much each of these has grown since.
    pub(super) fn grown<B: Testbed, const N: usize>(
        &self,
        scene: &Scene<B>,
        names: [&'static str; N],
    ) -> Result<[u64; N], Failure> {
        let now = scene.bed.counters(self.side);
        let value = |book: &[(&str, u64)], name: &str| {
            let found = book
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| *value);
            found.ok_or_else(|| Failure::new(format!("the device has no counter {name}")))
        };
        let mut grown = [0; N];
        for (name, grown) in names.into_iter().zip(&mut grown) {
            *grown = value(&now, name)?.wrapping_sub(value(&self.before, name)?);
        }
        Ok(grown)
    }

    /// All that have grown since, but for the packets and bytes that passed.
    pub(super) fn others<B: Testbed>(&self, scene: &Scene<B>) -> Vec<(&'static str, u64)> {
        let now = scene.bed.counters(self.side);
        let pairs = now.into_iter().zip(&self.before);
        pairs
            .map(|((name, now), (_, before))| (name, now.wrapping_sub(*before)))
            .filter(|(name, grown)| {
                *grown != 0 && !["sent_pkts", "sent_bytes", "rcvd_pkts", "rcvd_bytes"].contains(name)
            })
            .collect()
    }
}

/// Packets and bytes from one end.
fn sent_by(trace: &[Passing], side: Side) -> [u64; 2] {
    let own = || trace.iter().filter(|packet| packet.from == side);
    let bytes: usize = own().map(|packet| packet.bytes.len()).sum();
    [own().count() as u64, bytes as u64]
}

/// Both ends have counted what the network has seen.
fn as_seen<B: Testbed>(scene: &mut Scene<B>, books: &[Book; 2]) -> CaseResult {
    scene.rest(SHORT);
    let trace = scene.network().take_trace();
    for book in books {
        same!(
            book.grown(scene, ["sent_pkts", "sent_bytes"])?,
            sent_by(&trace, book.side),
            "packets and bytes that the {:?} device sent",
            book.side
        );
        same!(
            book.grown(scene, ["rcvd_pkts", "rcvd_bytes"])?,
            sent_by(&trace, book.side.peer()),
            "packets and bytes that the {:?} device received",
            book.side
        );
    }
    Ok(())
}

fn packets<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let pair = scene.pair(&Setup {
        mtu: verbs_api::Mtu::Mtu256,
        ..Setup::default()
    })?;
    let (own, far) = (
        pair.left.region(2000, full_access())?,
        pair.right.region(2000, full_access())?,
    );
    scene.network().take_trace();
    let books = Side::BOTH.map(|side| Book::open(scene, side));
    pair.right.recv(9, &[far.whole()])?;
    pair.left.send(1, write(far.remote(0)), &[own.sge(0..1999)])?;
    pair.left.send(2, send(), &[own.sge(0..700)])?;
    pair.left.send(3, read(far.remote(0)), &[own.sge(0..1001)])?;
    pair.left.send(4, write(far.remote(0)), &[own.sge(0..1)])?;
    for wr_id in 1..=4 {
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
    }
    scene.ends_with(&pair.right.recv_cq, 9, WcStatus::Success)?;
    if scene.bed.has(Need::Atomics) {
        let op = SendOp::FetchAdd {
            remote: far.remote(0),
            add: 1,
        };
        pair.left.send(5, op, &[own.sge(0..8)])?;
        scene.ends_with(&pair.left.send_cq, 5, WcStatus::Success)?;
    }
    as_seen(scene, &books)?;
    same!(
        books[0].grown(scene, ["rdma_sends", "rdma_recvs"])?,
        [3, 0],
        "messages of the left device, as requester and as responder"
    );
    same!(
        books[1].grown(scene, ["rdma_sends", "rdma_recvs"])?,
        [0, 3],
        "messages of the right device, as requester and as responder"
    );
    Ok(())
}

fn datagrams<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let pair = scene.pair(&setup)?;
    let ah = pair.left.handle_to(&pair.right.endpoint)?;
    let (own, far) = (
        pair.left.region(1000, full_access())?,
        pair.right.region(2000, full_access())?,
    );
    scene.network().take_trace();
    let books = Side::BOTH.map(|side| Book::open(scene, side));
    for (wr_id, length) in [(1, 0usize), (2, 99), (3, 1000)] {
        pair.right.recv(wr_id, &[far.whole()])?;
        pair.left.send_to(
            wr_id,
            &ah,
            &pair.right.endpoint,
            setup.qkey,
            &[own.sge(0..length)],
        )?;
        scene.ends_with(&pair.left.send_cq, wr_id, WcStatus::Success)?;
        scene.ends_with(&pair.right.recv_cq, wr_id, WcStatus::Success)?;
    }
    as_seen(scene, &books)?;
    same!(
        [
            books[0].grown(scene, ["rdma_sends"])?,
            books[1].grown(scene, ["rdma_recvs"])?
        ],
        [[3], [3]],
        "messages sent by the left and received by the right device"
    );
    Ok(())
}

/// A packet to `dest` with `change` made to its header.
fn forged(
    opcode: Opcode,
    dest: u32,
    psn: Psn,
    change: impl FnOnce(&mut Headers),
) -> Result<Headers, Failure> {
    let dest = Qpn::new(dest).ok_or_else(|| Failure::new("queue pair numbers have 24 bits"))?;
    let mut headers = Headers::new(Bth::new(opcode, dest, psn));
    change(&mut headers);
    Ok(headers)
}

/// This counter has grown by one since, and no other.
pub(super) fn counted_once<B: Testbed>(scene: &mut Scene<B>, book: &Book, name: &'static str) -> CaseResult {
    scene
        .until("a counter to grow", |scene| {
            Ok((!book.others(scene).is_empty()).then_some(()))
        })
        .map_err(|e| e.during(name))?;
    scene.rest(SHORT);
    same!(
        book.others(scene),
        vec![(name, 1)],
        "counters that have grown, but for packets and bytes"
    );
    Ok(())
}

fn drops<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let peer = scene.raw_peer(&setup())?;
    let idle = scene.node(Side::Left, &setup())?;
    idle.init(&setup())?;
    let qpn = peer.node.endpoint.qpn;
    let psn = peer.peer_psn(0);
    let partition = |h: &mut Headers| h.bth.pkey = PKey(0x8123);
    let acknowledgement = |h: &mut Headers| {
        h.aeth = Some(roce_wire::Aeth {
            syndrome: Syndrome::ACK,
            msn: roce_wire::Msn::new(0),
        });
    };
    let nothing = |_: &mut Headers| {};
    let table = [
        (
            "dropped_unknown_qp",
            forged(Opcode::RC_SEND_ONLY, qpn ^ 0x40, psn, nothing)?,
        ),
        (
            "dropped_wrong_transport",
            forged(Opcode::UC_SEND_ONLY, qpn, psn, nothing)?,
        ),
        (
            "dropped_wrong_state",
            forged(Opcode::RC_SEND_ONLY, idle.endpoint.qpn, psn, nothing)?,
        ),
        (
            "dropped_bad_pkey",
            forged(Opcode::RC_SEND_ONLY, qpn, psn, partition)?,
        ),
        (
            "dropped_unsupported",
            forged(Opcode::new(0x5f), qpn, psn, nothing)?,
        ),
        (
            "dropped_ghost_ack",
            forged(Opcode::RC_ACKNOWLEDGE, qpn, peer.own_psn(7), acknowledgement)?,
        ),
    ];
    for (name, headers) in table {
        let book = Book::open(scene, Side::Left);
        scene.network().inject(Side::Left, &headers, &[]);
        counted_once(scene, &book, name)?;
        // What is for nobody here is not received; an acknowledgement of nothing is.
        let received = u64::from(name == "dropped_ghost_ack");
        same!(
            book.grown(scene, ["sent_pkts", "rcvd_pkts"])?,
            [0, received],
            "packets sent and received when {name} grew"
        );
    }
    let good = forged(Opcode::RC_SEND_ONLY, qpn, psn, nothing)?;
    let mut bytes = vec![0; good.len() + ICRC_LEN];
    good.emit(&mut bytes)
        .map_err(|error| Failure::new(error.to_string()))?;
    // Half of the bits wrong: no other identification explains them.
    let book = Book::open(scene, Side::Left);
    scene.network().inject_raw(Side::Left, &bytes);
    counted_once(scene, &book, "icrc_errors")?;
    let book = Book::open(scene, Side::Left);
    scene.network().inject_raw(Side::Left, &bytes[..11]);
    counted_once(scene, &book, "dropped_malformed")
}

fn dropped_datagrams<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = Setup::datagrams();
    let node = scene.node(Side::Left, &setup)?;
    node.connect(&setup, &node.endpoint)?;
    let small = node.region(64, full_access())?;
    let datagram = |qkey: u32| {
        forged(Opcode::UD_SEND_ONLY, node.endpoint.qpn, Psn::new(7), |h| {
            h.deth = Qpn::new(0xABC).map(|source_qp| Deth {
                qkey: QKey(qkey),
                source_qp,
            });
        })
    };
    let book = Book::open(scene, Side::Left);
    scene
        .network()
        .inject(Side::Left, &datagram(setup.qkey ^ 1)?, b"wrong");
    counted_once(scene, &book, "dropped_bad_qkey")?;
    let book = Book::open(scene, Side::Left);
    scene
        .network()
        .inject(Side::Left, &datagram(setup.qkey)?, b"no receive");
    counted_once(scene, &book, "dropped_no_receive")?;
    node.recv(1, &[small.whole()])?;
    let book = Book::open(scene, Side::Left);
    scene
        .network()
        .inject(Side::Left, &datagram(setup.qkey)?, &[7; 100]);
    counted_once(scene, &book, "dropped_unserved")
}

fn dropped_by_uc<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let setup = setup().with_type(verbs_api::QpType::Uc);
    let peer = scene.raw_peer(&setup)?;
    let far = peer.node.region(64, full_access())?;
    let book = Book::open(scene, Side::Left);
    peer.send(
        scene,
        Opcode::UC_SEND_ONLY,
        peer.peer_psn(0),
        b"no receive",
        |_| {},
    );
    counted_once(scene, &book, "dropped_no_receive")?;
    let book = Book::open(scene, Side::Left);
    peer.send(scene, Opcode::UC_SEND_MIDDLE, peer.peer_psn(1), &[7; 256], |_| {});
    counted_once(scene, &book, "dropped_unserved")?;
    peer.node.recv(1, &[far.whole()])?;
    let book = Book::open(scene, Side::Left);
    peer.send(
        scene,
        Opcode::UC_SEND_ONLY,
        peer.peer_psn(9),
        b"behind a gap",
        |_| {},
    );
    scene.ends_with(&peer.node.recv_cq, 1, WcStatus::Success)?;
    same!(
        book.others(scene),
        vec![("out_of_seq_request", 1), ("rdma_recvs", 1)],
        "counters that have grown with a message behind a gap"
    );
    Ok(())
}
