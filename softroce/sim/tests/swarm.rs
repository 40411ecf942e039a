//! Runs of fixed and of fresh seeds.
//!
//! `SOFTROCE_SWARM_SEED=n` runs one seed; `SOFTROCE_SWARM_RUNS=n` so many, from a seed that the clock chose.

use std::time::SystemTime;

use softroce_sim::Random;
use softroce_sim::swarm::{self, Plan, Unreliable};

fn run(seed: u64) -> u64 {
    let plan = Plan::draw(seed);
    match swarm::run(&plan) {
        Ok(run) => run.trace_hash,
        Err(finding) => panic!("seed {seed}: {finding}; {plan:?}"),
    }
}

#[test]
fn swarms_of_fixed_seeds_end_and_end_right() {
    for seed in 0..60 {
        run(seed);
    }
}

/// A flipped bit once passed as a packet with another IPv4 identification, of which a UDP socket sees nothing.
#[test]
fn a_flipped_bit_is_no_other_identification() {
    let mut plan = Plan::draw(138);
    plan.streams.clear();
    swarm::run(&plan).expect("nothing is found");
}

#[test]
fn a_swarm_run_twice_sends_the_same_packets() {
    for seed in [7, 1000, 2001] {
        assert_eq!(run(seed), run(seed), "seed {seed}");
    }
}

#[test]
fn a_plan_written_and_read_again_gives_the_same_run() {
    let plan = Plan::draw(11);
    let text = serde_json::to_string(&plan).unwrap();
    let again: Plan = serde_json::from_str(&text).unwrap();
    assert_eq!(swarm::run(&plan), swarm::run(&again));
}

#[test]
fn fixed_seeds_have_all_services() {
    let plans: Vec<Plan> = (0..60).map(Plan::draw).collect();
    for service in [Unreliable::Uc, Unreliable::Ud] {
        assert!(
            plans
                .iter()
                .any(|p| p.streams.iter().any(|s| s.service == service))
        );
    }
}

#[test]
fn a_plan_that_is_none_is_refused_with_its_value() {
    let mut plan = Plan::draw(1);
    plan.conversations[0].ends[1] = 99;
    let finding = swarm::run(&plan).unwrap_err();
    assert_eq!(finding.what, "this is no plan: there is no device 99");
}

#[test]
fn swarms_of_fresh_seeds_end_and_end_right() {
    if let Some(seed) = number("SOFTROCE_SWARM_SEED") {
        println!("seed {seed}: {:#x}", run(seed));
        return;
    }
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64);
    let mut seeds = Random::new(now);
    for _ in 0..number("SOFTROCE_SWARM_RUNS").unwrap_or(20) {
        run(seeds.next_u64());
    }
}

fn number(variable: &str) -> Option<u64> {
    let value = std::env::var(variable).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{variable}={value:?} is not a number")),
    )
}

/// Plans of findings that were mended, kept as `softroce sim` wrote them.
#[test]
fn what_was_found_once_is_not_found_again() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/kept");
    for entry in std::fs::read_dir(folder).expect("the folder of kept plans is there") {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read_to_string(&path).unwrap();
            let plan: Plan = serde_json::from_str(&text).unwrap();
            if let Err(finding) = swarm::run(&plan) {
                panic!("{}: {finding}", path.display());
            }
        }
    }
}
