//! Messages of all kinds through fault rules that lose packets: data are exact, and everything happens once; and what
//! that costs.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};

use softroce::Softroce;
use softroce_sim::swarm::{Conversation, Setup};
use softroce_sim::{Link, Random, Rules, World};

/// Messages that must arrive at each rate of loss; a tenth where there is little time (`SOFTROCE_QUICK=1`).
fn messages() -> usize {
    let is_quick = std::env::var_os("SOFTROCE_QUICK").is_some();
    if is_quick { 10_000 } else { 100_000 }
}
/// Messages of one conversation.
const BATCH: usize = 500;
const STEPS: u64 = 20_000_000;

fn setup(longest: usize, depth: usize) -> Setup {
    Setup {
        ends: [0, 1],
        mtu: 1024,
        // 1.05 ms, as often as can be.
        timeout: 8,
        retry_cnt: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        rd_atomic: 8,
        psn: [0xff_ff00, 0xff_fff0],
        messages: Vec::new(),
        longest,
        depth,
        late_receives: 0,
    }
}

/// What one conversation did.
struct Outcome {
    /// Messages that completed with success.
    done: usize,
    bytes: u64,
    nanos: u64,
    /// Packets that the rule took, and that the network lost.
    lost: (u64, u64),
}

/// One conversation through this loss, from one end to another end.
fn converse(seed: u64, percent: f64, messages: usize, setup: Setup) -> Outcome {
    let mut random = Random::new(seed);
    let mut world = World::new(random.next_u64());
    let names = ["sim0".to_owned(), "sim1".to_owned()];
    let devices = (0u8..2)
        .map(|n| {
            let address = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + n));
            world.add_device(&names[usize::from(n)], address)
        })
        .collect();
    let provider = Softroce::from_devices(devices);
    world.set_all_links(Link {
        latency_ns: 5_000,
        rate_bps: Some(10_000_000_000),
        ..Link::default()
    });
    let text = format!("seed = {seed}\n[[packet]]\nprobability = \"{percent} %\"\ndo = \"drop\"");
    world.set_faults(Some(Rules::parse(&text).expect("a right file")));
    let setup = setup.with_messages(messages, &mut random);
    let mut conversation = Conversation::open(&provider, &names, &setup);
    for step in 0.. {
        assert!(step < STEPS, "no end; seed {seed}");
        conversation
            .work(&mut random)
            .unwrap_or_else(|error| panic!("{error}; seed {seed}, {percent} %"));
        if conversation.is_over() {
            break;
        }
        world.advance(softroce_sim::Time::MAX);
    }
    conversation
        .check_end()
        .unwrap_or_else(|error| panic!("{error}; seed {seed}, {percent} %"));
    let (done, bytes) = conversation.success();
    Outcome {
        done,
        bytes,
        nanos: world.now().as_nanos(),
        lost: (world.fault_tallies()[0].hits, world.counters().lost),
    }
}

/// Where retries run out, which they may, the queue pair ends as it should, and another one goes on.
fn lose(percent: f64) {
    let mut done = 0;
    for seed in 0.. {
        let outcome = converse(seed, percent, BATCH, setup(3000, 16));
        assert_eq!(outcome.lost.0, outcome.lost.1, "the rule's count is the truth");
        assert!(outcome.lost.0 > 0);
        done += outcome.done;
        if done >= messages() {
            break;
        }
        assert!(
            seed < 3 * (messages() / BATCH) as u64,
            "{done} messages only at {percent} %"
        );
    }
}

#[test]
fn a_hundred_thousand_messages_of_all_kinds_arrive_once_and_exactly_at_1_percent_of_loss() {
    lose(1.0);
}

#[test]
fn a_hundred_thousand_messages_of_all_kinds_arrive_once_and_exactly_at_5_percent_of_loss() {
    lose(5.0);
}

#[test]
fn a_hundred_thousand_messages_of_all_kinds_arrive_once_and_exactly_at_20_percent_of_loss() {
    lose(20.0);
}

/// Virtual time makes the table exact. After a change of the protocol that is meant,
/// `SOFTROCE_SNAPSHOT=1 cargo test -p softroce-sim losses` writes it anew.
#[test]
fn throughput_against_loss_and_window_is_as_in_the_table() {
    let windows = [1, 4, 16, 64];
    let mut table = String::from(
        "# Payload in Mbit/s of virtual time: messages of all kinds up to 16 KiB, RC, MTU 1024, over a line of\n\
         # 10 Gbit/s and 10 us there and back, timeout 1.05 ms. Rows: loss each way. Columns: requests outstanding.\n",
    );
    let _ = writeln!(table, "{:>7} {:>7} {:>7} {:>7} {:>7}", "loss", 1, 4, 16, 64);
    for percent in [0.0, 0.1, 1.0, 5.0, 20.0] {
        let _ = write!(table, "{percent:>6}%");
        for window in windows {
            let (mut bytes, mut nanos) = (0, 0);
            for seed in 0..4 {
                let outcome = converse(seed, percent, 400, setup(16_384, window));
                bytes += outcome.bytes;
                nanos += outcome.nanos;
            }
            let _ = write!(table, " {:>7}", bytes * 8 * 1_000 / nanos);
        }
        table.push('\n');
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/throughput.txt");
    if std::env::var_os("SOFTROCE_SNAPSHOT").is_some() {
        std::fs::write(file, &table).expect("the table can be written");
    }
    let kept = std::fs::read_to_string(file).unwrap_or_default();
    assert_eq!(kept, table, "throughput has changed");
}
