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
/// A datagram fits into one packet.
const DATAGRAM_SIZES: [&str; 2] = ["1", "4096"];

/// A program of rdma-core that sends messages back and forth.
#[derive(Clone, Copy)]
struct Pingpong {
    program: &'static str,
    sizes: &'static [&'static str],
    /// Options beyond those that all of them have. With `-c`, most check every byte.
    options: &'static [&'static str],
    /// Ways to run it that only it has, each named by what it does.
    ways: &'static [(&'static str, &'static [&'static str])],
    /// What both ends print when all went well.
    told: &'static str,
}

const RC: Pingpong = Pingpong {
    program: "ibv_rc_pingpong",
    sizes: &SIZES,
    options: &["-c"],
    ways: &[
        ("with timestamps", &["-t"]),
        ("through the new send interface", &["-N"]),
        ("through the new send interface awaited by events", &["-N", "-e"]),
        ("in device memory", &["-j"]),
        (
            "in device memory through the new send interface with timestamps",
            &["-j", "-N", "-t"],
        ),
        ("with a service level and few receives", &["-l", "3", "-r", "3"]),
        ("on demand", &["-o"]),
        (
            "on demand with prefetching and awaited by events",
            &["-o", "-P", "-e"],
        ),
        ("implicitly on demand", &["-O"]),
        ("implicitly on demand with prefetching", &["-O", "-P"]),
    ],
    told: "200 iters in",
};
const PINGPONGS: [Pingpong; 5] = [
    RC,
    Pingpong {
        program: "ibv_uc_pingpong",
        sizes: &SIZES,
        options: &["-c"],
        ways: &[("with a service level and few receives", &["-l", "3", "-r", "3"])],
        told: "200 iters in",
    },
    Pingpong {
        program: "ibv_ud_pingpong",
        sizes: &DATAGRAM_SIZES,
        options: &["-c"],
        ways: &[("with a service level and few receives", &["-l", "3", "-r", "3"])],
        told: "200 iters in",
    },
    Pingpong {
        program: "ibv_srq_pingpong",
        sizes: &SIZES,
        options: &["-c"],
        ways: &[
            ("over one queue pair", &["-q", "1"]),
            ("over forty queue pairs awaited by events", &["-q", "40", "-e"]),
            ("on demand", &["-o"]),
        ],
        told: "200 iters in",
    },
    Pingpong {
        program: "ibv_xsrq_pingpong",
        sizes: &SIZES,
        options: &[],
        ways: &[("on demand", &["-o"])],
        told: "success",
    },
];
/// Those that have an option for it.
const MTUS: [&str; 5] = ["256", "512", "1024", "2048", "4096"];

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
        Case::new(
            "ibv devices and ibv devinfo show each of two devices",
            two_devices,
        ),
        Case::new("a capture of a foreign program holds nothing malformed", captured),
    ];
    for which in PINGPONGS {
        cases.extend(pingpong_cases(which));
    }
    cases
}

/// One tool in every size, polled and by events, at every MTU, and in the ways of its own.
fn pingpong_cases(which: Pingpong) -> Vec<Case> {
    let name = which.program.replace('_', " ");
    let mut cases = Vec::new();
    let mut case = |how: &str, runs: Vec<Vec<&'static str>>| {
        cases.push(Case::new(format!("{name} {how} runs unmodified"), move || {
            for options in runs {
                pingpong(which, &Bed::loopback()?, &[], options)?;
            }
            Ok(())
        }));
    };
    for (option, how) in [(None, "polled"), (Some("-e"), "awaited by events")] {
        for size in which.sizes {
            let options = ["-s", size, "-n", "200"].into_iter().chain(option);
            case(&format!("of {size} bytes {how}"), vec![options.collect()]);
        }
    }
    // Datagrams have the size of a packet, so that tool has no such option.
    if which.program != "ibv_ud_pingpong" {
        let at = |mtu| vec!["-s", "9001", "-n", "200", "-m", mtu];
        case("at every path MTU", MTUS.map(at).to_vec());
    }
    for (how, options) in which.ways {
        let options = ["-s", "2048", "-n", "200"].iter().chain(*options);
        case(how, vec![options.copied().collect()]);
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

fn two_devices() -> Outcome {
    let addresses = ["--device-address".into(), "127.0.0.1,127.0.0.2".into()];
    let run = |words: &[&str]| -> Result<String, Stop> {
        let finished = under_softroce(&Bed::loopback()?, &addresses, words)?.finish(LIMIT)?;
        finished.succeeded()?;
        Ok(finished.stdout)
    };
    let listed = run(&["ibv_devices"])?;
    ensure(
        listed.contains("softroce0") && listed.contains("softroce1"),
        || listed.clone(),
    )?;
    for (device, gid) in [
        ("softroce0", "::ffff:127.0.0.1"),
        ("softroce1", "::ffff:127.0.0.2"),
    ] {
        let printed = run(&["ibv_devinfo", "-v", "-d", device, "-i", "1"])?;
        ensure(printed.contains(device) && printed.contains(gid), || {
            printed.clone()
        })?;
    }
    Ok(())
}

/// Both ends of a program, which check the data that they get.
fn pingpong(which: Pingpong, bed: &Bed, run_options: &[OsString], options: Vec<&str>) -> Outcome {
    let port = free_port();
    let port_word = port.to_string();
    let mut words = vec![which.program, "-g", "0", "-p", &port_word];
    words.extend(which.options);
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
        ensure(end.stdout.contains(which.told), || {
            format!("both ends should print `{}`: {end}", which.told)
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
        RC,
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
