//! `softroce perf` with many messages under way.

use std::time::Duration;

use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Case, Finished, Outcome, Stop, softroce};
use serde_json::Value;

use crate::pingpong::free_port;

const LIMIT: Duration = Duration::from_secs(60);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for operation in ["send", "write", "read"] {
        let name = format!("eight queue pairs busy with {operation}s recover nothing by a timeout");
        cases.push(Case::new(name, move || no_timeouts(operation)));
    }
    for (operation, more) in [
        ("send", &["--transport", "uc"][..]),
        ("write", &["--transport", "uc"]),
        ("send", &["--transport", "ud", "--srq"]),
        ("send", &["--transport", "srq", "--qps", "4"]),
        ("send", &["--transport", "xrc", "--qps", "4"]),
        ("write", &["--transport", "xrc"]),
        ("read", &["--transport", "xrc"]),
        ("atomic", &["--transport", "xrc"]),
    ] {
        let name = format!("the bandwidth of {operation} {} is measured", more.join(" "));
        cases.push(Case::new(name, move || {
            let arguments = ["--size", if operation == "atomic" { "8" } else { "1024" }];
            let (_, client) = measure(operation, &[&arguments, more].concat())?;
            let rate = report(&client)?.get("messages_per_s").and_then(Value::as_f64);
            ensure(rate.is_some_and(|rate| rate > 0.0), || {
                format!("no message rate: {client}")
            })
        }));
    }
    cases
}

/// Server and client to their successful ends; what each has printed.
fn measure(operation: &str, arguments: &[&str]) -> Result<(Finished, Finished), Stop> {
    let bed = Bed::loopback()?;
    let port = free_port().to_string();
    let words = [
        "perf",
        operation,
        "bw",
        "--json",
        "--counters",
        "--iters",
        "2000",
        "--port",
        &port,
    ];
    let program = |place| -> Result<_, Stop> {
        let program = bed.program(place, [softroce()?.as_os_str()]);
        Ok(program.args(words).args(arguments))
    };
    let server = program(&bed.here)?.start()?;
    wait_for_listener(&server, port.parse().unwrap_or_default())?;
    let client = program(bed.there())?.args(["127.0.0.1"]).finish(LIMIT)?;
    client.succeeded()?;
    let server = server.wait(LIMIT)?;
    server.succeeded()?;
    Ok((server, client))
}

fn report(client: &Finished) -> Result<Value, Stop> {
    serde_json::from_str(&client.stdout).map_err(|error| Stop::Fail(format!("no JSON ({error}): {client}")))
}

fn no_timeouts(operation: &str) -> Outcome {
    let (server, client) = measure(operation, &["--qps", "8", "--size", "65536"])?;
    for end in [&server, &client] {
        // Only counters that are not zero are printed.
        let timeouts = end.stderr.lines().find(|line| line.starts_with("timeouts "));
        ensure(timeouts.is_none() && end.stderr.contains("rcvd_pkts"), || {
            format!("a timeout, or no counters: {end}")
        })?;
    }
    Ok(())
}
