//! Many processes on one address: none disturbs another by running, being stopped, or being killed.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use e2e::bed::{NOBODY, needs_root};
use e2e::case::ensure;
use e2e::listening::wait_for_traffic;
use e2e::{Bed, Case, Outcome, Running, Stop};
use nix::sys::signal::Signal;

use crate::pingpong::{Talk, Waiting, one_end_refuses};

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const LIMIT: Duration = Duration::from_secs(120);
/// More than any test waits for.
const ENDLESS: u32 = 1_000_000_000;

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("eight pairs at once on one address have no wrong byte", || {
            let bed = Bed::loopback()?;
            let pairs = start_pairs(&bed, 8)?;
            finish_pairs(pairs)
        }),
        Case::new("sixty-four processes at once share one address", || {
            let bed = Bed::loopback()?;
            let pairs = (0..32).map(|_| start_pair(&bed, &talk(200)));
            finish_pairs(pairs.collect::<Result<_, _>>()?)
        }),
        Case::new(
            "the peer of a killed process ends with an error and others do not notice",
            killed,
        ),
        Case::new(
            "a stopped process does not hold up the others on its address",
            stopped,
        ),
        Case::new(
            "a second user on the same address is told to take another loopback address",
            second_user,
        ),
    ]
}

fn talk(iterations: u32) -> Talk {
    Talk {
        size: 64,
        iterations,
        waiting: Waiting::Events,
        ..Talk::with(LOCALHOST)
    }
}

/// Starts this many pairs, each with a conversation that ends by itself.
fn start_pairs(bed: &Bed, count: usize) -> Result<Vec<(Running, Running)>, Stop> {
    (0..count).map(|_| start_pair(bed, &talk(2_000))).collect()
}

/// A server and its client, in that order.
fn start_pair(bed: &Bed, talk: &Talk) -> Result<(Running, Running), Stop> {
    let server = talk.start_server(bed, &bed.here, &[])?;
    let client = talk.start_client(bed, &bed.here, &[])?;
    Ok((server, client))
}

fn finish_pairs(pairs: Vec<(Running, Running)>) -> Outcome {
    for (server, client) in pairs {
        client.wait(LIMIT)?.succeeded()?;
        server.wait(LIMIT)?.succeeded()?;
    }
    Ok(())
}

fn killed() -> Outcome {
    let bed = Bed::loopback()?;
    let (victim, survivor) = start_pair(&bed, &talk(ENDLESS))?;
    wait_for_traffic(&victim)?;
    let others = start_pairs(&bed, 3)?;
    victim.signal(Signal::SIGKILL)?;
    let survivor = survivor.wait(LIMIT)?;
    survivor.refused_naming(&[])?;
    finish_pairs(others)
}

fn stopped() -> Outcome {
    let bed = Bed::loopback()?;
    let (victim, peer) = start_pair(&bed, &talk(ENDLESS))?;
    wait_for_traffic(&victim)?;
    let running = start_pairs(&bed, 2)?;
    victim.signal(Signal::SIGSTOP)?;
    // Conversations that were under way go on, and new ones begin and end, all while it is stopped.
    finish_pairs(running)?;
    finish_pairs(start_pairs(&bed, 2)?)?;
    victim.signal(Signal::SIGCONT)?;
    finish_pairs(start_pairs(&bed, 1)?)?;
    drop((victim, peer));
    Ok(())
}

fn second_user() -> Outcome {
    needs_root("run programs as two users")?;
    let bed = Bed::loopback()?;
    let (holder, client) = start_pair(&bed, &talk(ENDLESS))?;
    wait_for_traffic(&holder)?;
    let refused = one_end_refuses(&bed, NOBODY - 1, &[], &["127.0.0.1"], &["127.0.0.1"])?;
    let suggests_another = refused.stderr.replace("127.0.0.1", "").contains("127.");
    ensure(suggests_another, || {
        format!("the error should suggest another loopback address: {refused}")
    })?;
    drop((holder, client));
    Ok(())
}
