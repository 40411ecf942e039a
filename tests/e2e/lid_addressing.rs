//! Programs written for InfiniBand, which address by LID, are refused as on a RoCE card, and told why.

use std::path::PathBuf;
use std::time::Duration;

use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Case, Outcome, Program, Stop, compiled, softroce};

const LIMIT: Duration = Duration::from_secs(30);
/// A folder with two programs of a public tutorial, which are not part of this repository.
const FOLDER: &str = "SOFTROCE_TUTORIAL_PROGRAMS";
/// The port that the tutorial's program listens on.
const TUTORIAL_PORT: u16 = 18515;
/// What the log says of an address without a GID.
const REASON: &str = "RoCE has no LIDs";

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("a program that addresses by LID is refused and told why", own),
        Case::new(
            "the tutorial program that lists devices runs unmodified",
            tutorial_devices,
        ),
        Case::new(
            "the tutorial program that addresses by LID is refused and told why",
            tutorial_pingpong,
        ),
    ]
}

fn explained(bed: &Bed, program: &PathBuf) -> Result<Program, Stop> {
    Ok(bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--"])
        .args([program])
        .variable("SOFTROCE_DEBUG", "1"))
}

fn own() -> Outcome {
    let bed = Bed::loopback()?;
    let finished = explained(&bed, &compiled::own(&bed.scratch, "lid_addressed")?)?.finish(LIMIT)?;
    finished.succeeded()?;
    for verb in ["ibv_modify_qp", "ibv_create_ah"] {
        ensure(
            finished
                .stderr
                .lines()
                .any(|line| line.contains(verb) && line.contains(REASON)),
            || format!("the log should tell why {verb} failed: {finished}"),
        )?;
    }
    Ok(())
}

fn tutorial(bed: &Bed, name: &str) -> Result<PathBuf, Stop> {
    let folder = std::env::var_os(FOLDER).ok_or_else(|| {
        Stop::skip(format!(
            "{FOLDER} names no folder with rdma_device.cc and pingpong.cc"
        ))
    })?;
    let source = PathBuf::from(folder).join(name);
    compiled::compile(&bed.scratch, &source, "g++", &["-std=c++2a", "-w"])
}

fn tutorial_devices() -> Outcome {
    let bed = Bed::loopback()?;
    let finished = explained(&bed, &tutorial(&bed, "rdma_device.cc")?)?.finish(LIMIT)?;
    finished.succeeded()?;
    ensure(
        finished.stdout.contains("softroce0") && finished.stdout.contains("max_qp_wr: 32768"),
        || finished.to_string(),
    )
}

fn tutorial_pingpong() -> Outcome {
    let bed = Bed::loopback()?;
    let pingpong = tutorial(&bed, "pingpong.cc")?;
    let server = explained(&bed, &pingpong)?.start()?;
    wait_for_listener(&server, TUTORIAL_PORT)?;
    let client = explained(&bed, &pingpong)?.args(["127.0.0.1"]).start()?;
    let server = server.wait(LIMIT)?;
    ensure(
        server.code() == Some(1)
            && server.stderr.contains("Failed to modify QP to RTR")
            && server.stderr.contains(REASON),
        || format!("the server should be refused, and its log say why: {server}"),
    )?;
    let client = client.wait(LIMIT)?;
    ensure(client.code() == Some(1), || {
        format!("the client should miss its server: {client}")
    })
}
