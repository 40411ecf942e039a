//! Unmodified programs of rdma-core under `softroce run`.

use std::ffi::OsString;
use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Case, Outcome, Program, Stop, softroce, tshark};

use crate::pingpong::free_port;

const LIMIT: Duration = Duration::from_secs(60);
const SIZES: [&str; 4] = ["1", "4096", "65536", "1048576"];

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("ibv devices lists a device", || {
            let finished = run_alone(&["ibv_devices"])?;
            let devices = finished
                .lines()
                .skip_while(|line| !line.contains("-----"))
                .skip(1);
            ensure(devices.count() >= 1, || {
                format!("no device below the header:\n{finished}")
            })
        }),
        Case::new("ibv devinfo shows an active port and its addresses", || {
            let printed = run_alone(&["ibv_devinfo", "-v"])?;
            for wanted in ["PORT_ACTIVE", "max_qp:", "active_mtu:", "link_layer:", "GID["] {
                ensure(printed.contains(wanted), || {
                    format!("ibv_devinfo -v prints no `{wanted}`:\n{printed}")
                })?;
            }
            Ok(())
        }),
        Case::new("a capture of a foreign program holds nothing malformed", captured),
    ];
    for (option, how) in [(None, "polled"), (Some("-e"), "awaited by events")] {
        for size in SIZES {
            let sentence = format!("ibv rc pingpong of {size} bytes {how} runs unmodified");
            cases.push(Case::new(sentence, move || {
                let options = ["-s", size, "-n", "200"];
                pingpong(
                    &Bed::loopback()?,
                    &[],
                    options.iter().copied().chain(option).collect(),
                )
            }));
        }
    }
    cases
}

/// A program under `softroce run` with these options of `run`.
fn under_softroce(bed: &Bed, options: &[OsString], words: &[&str]) -> Result<Program, Stop> {
    needs_program(words[0], "ibverbs-utils")?;
    Ok(bed
        .program(&bed.here, [softroce()?])
        .args(["run"])
        .args(options)
        .args(["--"])
        .args(words))
}

/// Runs it to its successful end, and returns what it printed.
fn run_alone(words: &[&str]) -> Result<String, Stop> {
    let finished = under_softroce(&Bed::loopback()?, &[], words)?.finish(LIMIT)?;
    finished.succeeded()?;
    Ok(finished.stdout)
}

/// Both ends of `ibv_rc_pingpong`, which check the data that they get.
fn pingpong(bed: &Bed, run_options: &[OsString], options: Vec<&str>) -> Outcome {
    let port = free_port();
    let port_word = port.to_string();
    let mut words = vec!["ibv_rc_pingpong", "-g", "0", "-c", "-p", &port_word];
    words.extend(options);
    let server = under_softroce(bed, &[], &words)?.start()?;
    wait_for_listener(&server, port)?;
    words.push("127.0.0.1");
    let client = under_softroce(bed, run_options, &words)?.start()?.wait(LIMIT)?;
    client.succeeded().map_err(|stop| match stop {
        Stop::Fail(message) => Stop::Fail(format!("{message}\nthe server:\n{}", server.report())),
        skip @ Stop::Skip(_) => skip,
    })?;
    let server = server.wait(LIMIT)?;
    server.succeeded()?;
    for end in [&client, &server] {
        ensure(end.stdout.contains("200 iters in"), || {
            format!("both ends should tell their speed: {end}")
        })?;
        ensure(!end.stdout.contains("invalid data"), || {
            format!("wrong data: {end}")
        })?;
    }
    Ok(())
}

fn captured() -> Outcome {
    needs_program("tshark", "tshark")?;
    let bed = Bed::loopback()?;
    let capture = bed.scratch.file("foreign.pcapng");
    pingpong(
        &bed,
        &["--capture".into(), capture.clone().into()],
        vec!["-s", "4097", "-n", "200"],
    )?;
    let malformed = tshark::malformed(&bed.scratch, &capture)?;
    ensure(malformed.is_empty(), || malformed.join("\n"))?;
    let packets = tshark::roce_packets(&bed.scratch, &capture)?.len();
    ensure(packets >= 400, || {
        format!("{packets} packets captured, 400 messages were exchanged")
    })
}
