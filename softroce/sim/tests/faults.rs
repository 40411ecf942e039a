//! What the counters say of injected faults is what was injected, for every kind of rule.

use softroce_engine::Counters;
use softroce_sim::{Rules, World};
use verbs_api::{QpState, QueuePair, RecvWr, SendOp, SendWr, WcStatus};

use crate::pair::{Cq, Pair, SECOND, completion};

mod events;

impl Pair {
    fn new() -> Pair {
        Pair::in_world(5)
    }

    /// By one rule about packets.
    fn with(rule: &str) -> Pair {
        let mut pair = Pair::new();
        pair.load(&format!("[[packet]]\n{rule}"));
        pair
    }

    fn load(&mut self, text: &str) {
        let rules = Rules::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"));
        self.world.set_faults(Some(rules));
    }

    /// WRITEs of so many bytes each, one after the other; how they end.
    fn write(&mut self, count: usize, length: usize) -> Vec<WcStatus> {
        (0..count).map(|_| self.write_one(length)).collect()
    }

    fn write_one(&mut self, length: usize) -> WcStatus {
        self.post_write(length);
        wait(&mut self.world, &self.left.cq)
    }

    fn hits(&self) -> u64 {
        self.world.fault_tallies()[0].hits
    }

    fn counters(&self, device: usize) -> Counters {
        self.world.devices()[device].counters().engine
    }
}

fn wait(world: &mut World, cq: &Cq) -> WcStatus {
    completion(world, cq).expect("a completion").status
}

const LEFT: usize = 0;
const RIGHT: usize = 1;

/// Twenty WRITEs of one packet succeed in spite of a rule that hits some of them, and then this counter of this device
/// has counted the hits.
fn counted(rule: &str, device: usize, counter: fn(&Counters) -> u64) {
    let mut pair = Pair::with(rule);
    assert_eq!(pair.write(20, 8), [WcStatus::Success; 20], "{rule}");
    pair.world.run_for(SECOND);
    assert!(pair.hits() >= 4, "{rule}: {} hits", pair.hits());
    assert_eq!(counter(&pair.counters(device)), pair.hits(), "{rule}");
}

#[test]
fn every_kind_of_rule_about_packets_is_counted_where_it_works() {
    let request = "opcode = \"write\"\nevery = 4";
    let answer = "opcode = \"acknowledge\"\nsyndrome = \"ack\"\nevery = 4";
    counted(&format!("{request}\ndo = \"duplicate\""), RIGHT, |c| {
        c.duplicate_request
    });
    counted(
        &format!("{request}\ndirection = \"in\"\ndo = {{ duplicate = 1 }}"),
        RIGHT,
        |c| c.duplicate_request,
    );
    counted(&format!("{answer}\ndo = \"drop\""), RIGHT, |c| {
        c.duplicate_request
    });
    counted(&format!("{request}\ndo = \"drop\""), LEFT, |c| c.timeouts);
    counted(&format!("{request}\ndo = {{ corrupt = \"icrc\" }}"), RIGHT, |c| {
        c.icrc_errors
    });
    counted(&format!("{request}\ndo = {{ corrupt = \"bit\" }}"), RIGHT, |c| {
        c.icrc_errors
            + c.dropped_malformed
            + c.dropped_unknown_qp
            + c.dropped_wrong_transport
            + c.dropped_unsupported
    });
    counted(
        &format!("{request}\ndo = {{ corrupt = \"pkey\", set = 5, icrc = \"repaired\" }}"),
        RIGHT,
        |c| c.dropped_bad_pkey,
    );
    counted(
        &format!("{request}\ndo = {{ corrupt = \"dest_qp\", set = 7, icrc = \"repaired\" }}"),
        RIGHT,
        |c| c.dropped_unknown_qp,
    );
    counted(
        &format!("{request}\ndo = {{ corrupt = \"version\", set = 1, icrc = \"repaired\" }}"),
        RIGHT,
        |c| c.dropped_malformed,
    );
    counted(&format!("{request}\ndo = {{ truncate = 14 }}"), RIGHT, |c| {
        c.dropped_malformed
    });
    counted(&format!("{request}\ndo = {{ truncate = 36 }}"), RIGHT, |c| {
        c.icrc_errors
    });
    counted(
        &format!("{request}\ndo = {{ inject = \"stale-duplicate\", place = \"after\" }}"),
        RIGHT,
        |c| c.duplicate_request,
    );
    counted(&format!("{request}\ndo = \"mark-ce\""), RIGHT, |c| {
        c.np_ecn_marked_roce_packets
    });
    counted(&format!("{request}\ndo = {{ inject = \"cnp\" }}"), RIGHT, |c| {
        c.rp_cnp_handled
    });
    counted(&format!("{answer}\ndo = {{ inject = \"cnp\" }}"), LEFT, |c| {
        c.rp_cnp_handled
    });
    counted(
        &format!("{answer}\ndo = {{ inject = \"ghost-ack\" }}"),
        LEFT,
        |c| c.dropped_ghost_ack,
    );
    counted(
        &format!("{answer}\ndo = {{ inject = \"nak\", code = \"psn-sequence\" }}"),
        LEFT,
        |c| c.rcvd_seq_err,
    );
    counted(
        &format!("{answer}\ndo = {{ inject = \"rnr\", timer = 1 }}"),
        LEFT,
        |c| c.rcvd_rnr_err,
    );
}

#[test]
fn what_rules_take_is_what_the_network_lost() {
    for rule in [
        "probability = \"20 %\"\ndo = \"drop\"",
        "direction = \"in\"\nprobability = 0.2\ndo = \"drop\"",
        "from = \"1us\"\nuntil = \"20ms\"\ndo = { blackhole = \"3ms\" }",
    ] {
        let mut pair = Pair::with(rule);
        assert_eq!(pair.write(30, 3000), [WcStatus::Success; 30], "{rule}");
        assert!(pair.hits() > 0);
        assert_eq!(pair.world.counters().lost, pair.hits(), "{rule}");
    }
}

#[test]
fn a_black_hole_ends_in_exhausted_retries_and_counts_every_try() {
    let mut pair = Pair::with("opcode = \"request\"\ndo = \"blackhole\"");
    assert_eq!(pair.write_one(8), WcStatus::RetryExcErr);
    assert_eq!(pair.hits(), pair.world.counters().lost);
    assert_eq!(pair.counters(LEFT).retry_exceeded_err, 1);
    assert_eq!(pair.hits(), pair.counters(LEFT).sent_pkts);
}

#[test]
fn marked_packets_carry_the_mark() {
    let mut pair = Pair::with("opcode = \"write\"\nevery = 3\ndo = \"mark-ce\"");
    assert_eq!(pair.write(20, 8), [WcStatus::Success; 20]);
    let (sent, _) = pair.world.sent_since(0);
    let marked = sent
        .iter()
        .filter(|sent| sent.path.traffic_class & 3 == 3)
        .count();
    assert_eq!((marked as u64, pair.hits()), (6, 6));
}

#[test]
fn a_packet_that_is_overtaken_costs_a_nak_and_one_that_is_late_only_time() {
    // Of a message of eight packets the third comes behind the next one: one gap, one NAK.
    let mut pair =
        Pair::with("opcode = \"write\"\npsn_in_message = 2\ntransmission = 1\ndo = { reorder = 1 }");
    assert_eq!(pair.write(5, 8192), [WcStatus::Success; 5]);
    assert_eq!(pair.hits(), 5);
    assert_eq!(pair.counters(LEFT).rcvd_seq_err, 5);
    let mut pair = Pair::with("opcode = \"write\"\ndo = { delay = \"1ms\" }");
    let before = pair.world.now();
    assert_eq!(pair.write(5, 8), [WcStatus::Success; 5]);
    assert_eq!((pair.hits(), pair.counters(LEFT).timeouts), (5, 0));
    assert!(pair.world.now().since(before) >= 5_000_000);
}

#[test]
fn a_slow_line_is_as_slow_as_it_says() {
    let mut pair = Pair::with("opcode = \"write\"\ndo = { rate = \"100 Mbit/s\" }");
    let before = pair.world.now();
    assert_eq!(pair.write(10, 8192), [WcStatus::Success; 10]);
    let wire_bytes = 10 * (8192 + 8 * (12 + 4 + 66) + 16);
    let least_ns = wire_bytes * 8 * 10;
    let took_ns = pair.world.now().since(before);
    assert!(
        (least_ns..least_ns * 11 / 10).contains(&took_ns),
        "{took_ns} ns, {least_ns} at least"
    );
    assert_eq!(pair.hits(), 80);
}

#[test]
fn what_a_slow_line_has_no_room_for_is_lost_and_the_rest_arrives() {
    let mut pair = Pair::with("opcode = \"write\"\ndo = { rate = \"100 Mbit/s\", queue = 4096 }");
    assert_eq!(pair.write(10, 8192), [WcStatus::Success; 10]);
    let (lost, arrived) = (pair.world.counters().lost, pair.counters(RIGHT).rcvd_pkts);
    assert!(lost > 0);
    assert_eq!(lost + arrived, pair.hits());
}

#[test]
fn a_forged_nak_fails_the_request_with_what_it_says() {
    for (code, status) in [
        ("\"invalid-request\"", WcStatus::RemInvReqErr),
        ("\"remote-access\"", WcStatus::RemAccessErr),
        ("\"remote-operational\"", WcStatus::RemOpErr),
    ] {
        let rule = format!(
            "opcode = \"acknowledge\"\nnth = 3\ndo = {{ inject = \"nak\", code = {code}, place = \"instead\" }}"
        );
        let mut pair = Pair::with(&rule);
        let ends = pair.write(3, 8);
        assert_eq!(ends, [WcStatus::Success, WcStatus::Success, status]);
        assert_eq!(pair.hits(), 1);
    }
}

#[test]
fn a_send_that_is_made_to_fail_takes_its_queue_pair_along_and_flushes_the_rest() {
    for (word, status) in [
        ("RETRY_EXC_ERR", WcStatus::RetryExcErr),
        ("REM_ACCESS_ERR", WcStatus::RemAccessErr),
        ("LOC_PROT_ERR", WcStatus::LocProtErr),
        ("GENERAL_ERR", WcStatus::GeneralErr),
    ] {
        let mut pair = Pair::new();
        pair.load(&format!(
            "[[completion]]\nof = \"send\"\nnth = 3\nstatus = \"{word}\""
        ));
        assert_eq!(pair.write(3, 8), [WcStatus::Success, WcStatus::Success, status]);
        assert_eq!(pair.left.qp.state().unwrap(), QpState::Err);
        assert_eq!(pair.write_one(8), WcStatus::WrFlushErr);
        assert_eq!(pair.hits(), 1);
        // The peer finds nobody who answers.
        assert_eq!(pair.right.qp.state().unwrap(), QpState::Rts);
    }
}

#[test]
fn a_receive_that_is_made_to_fail_is_refused_to_the_peer() {
    for (word, here, there) in [
        ("LOC_LEN_ERR", WcStatus::LocLenErr, WcStatus::RemInvReqErr),
        ("LOC_PROT_ERR", WcStatus::LocProtErr, WcStatus::RemOpErr),
        ("LOC_ACCESS_ERR", WcStatus::LocAccessErr, WcStatus::RemAccessErr),
    ] {
        let mut pair = Pair::new();
        pair.load(&format!("[[completion]]\nof = \"receive\"\nstatus = \"{word}\""));
        let into = pair.right.sge(64);
        pair.right
            .qp
            .post_recv(&[RecvWr {
                wr_id: 9,
                sges: &into,
            }])
            .unwrap();
        let from = pair.left.sge(8);
        let send = SendWr::new(1, SendOp::Send { imm: None }, &from);
        pair.left.qp.post_send(&[send]).unwrap();
        assert_eq!(wait(&mut pair.world, &pair.left.cq), there, "{word}");
        assert_eq!(wait(&mut pair.world, &pair.right.cq), here, "{word}");
        assert_eq!(pair.hits(), 1);
    }
}

#[test]
fn a_call_that_is_made_to_fail_does_nothing_and_a_list_is_posted_up_to_it() {
    let mut pair = Pair::new();
    pair.load("[[verb]]\ncall = \"post_send\"\nnth = 3\nerrno = \"ENOMEM\"");
    let (sges, remote) = (pair.left.sge(8), pair.right.remote());
    let write = |id| SendWr::new(id, SendOp::Write { remote, imm: None }, &sges);
    let refused = pair
        .left
        .qp
        .post_send(&[write(1), write(2), write(3), write(4)])
        .unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (2, 12));
    for _ in 0..2 {
        assert_eq!(wait(&mut pair.world, &pair.left.cq), WcStatus::Success);
    }
    assert_eq!(pair.hits(), 1);
    pair.world.set_faults(None);
    assert_eq!(pair.write_one(8), WcStatus::Success);
}

#[test]
fn the_same_seed_makes_the_same_faults() {
    let run = |seed: u64| {
        let mut pair = Pair::new();
        pair.load(&format!(
            "seed = {seed}\n[[packet]]\nprobability = 0.1\ndo = \"drop\"\n\
             [[packet]]\nprobability = 0.1\ndo = {{ reorder = 2 }}\n\
             [[packet]]\nprobability = 0.1\ndo = {{ delay = \"10us\", jitter = \"50us\" }}"
        ));
        assert_eq!(pair.write(50, 8192), [WcStatus::Success; 50]);
        pair.world.trace_hash()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}
