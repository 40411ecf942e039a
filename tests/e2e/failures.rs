//! A failing program under `softroce run`: one line names the cause, and a capture shows it.

use std::path::PathBuf;
use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::process::{Finished, Running};
use e2e::{Bed, Case, Outcome, Program, Stop, compiled, softroce, tshark};
use nix::sys::signal::Signal;

use crate::pingpong::free_port;

const LIMIT: Duration = Duration::from_secs(60);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = MISTAKES
        .iter()
        .map(|mistake| {
            Case::new(
                format!(
                    "a run tells of {} and its capture shows the packets",
                    mistake.what
                ),
                || fails(mistake),
            )
        })
        .collect();
    cases.extend([
        Case::new("a run tells of a peer that was killed", killed_peer),
        Case::new(
            "a run that times out tells what queue pairs wait for and ends all processes",
            hangs,
        ),
        Case::new("a run tells of connections that do not come about", unconnected),
        Case::new(
            "a run tells of a verb that failed when nothing else did",
            wrong_index,
        ),
        Case::new(
            "a run that succeeds says nothing and leaves no capture of failures",
            succeeds,
        ),
        Case::new(
            "a run passes signals on and ends by the signal that ended its program",
            signals,
        ),
        Case::new(
            "a run within a run explains once and hands the status back",
            nested,
        ),
        Case::new(
            "the processes of a run write one capture in which all packets are whole",
            one_capture,
        ),
        Case::new(
            "a run of programs by the printed environment is on softroce",
            environment,
        ),
        Case::new("a run hears when softroce port takes its port down and up", ports),
    ]);
    cases
}

struct Mistake {
    name: &'static str,
    what: &'static str,
    /// How the program ends.
    ended: &'static str,
    /// What the first line says.
    told: &'static [&'static str],
    /// Opcodes that the capture must hold. The first line names a packet of the first one.
    opcodes: &'static [u64],
}

/// RC's SEND ONLY and RDMA WRITE ONLY, and the first packet of a longer SEND.
const SEND: u64 = 4;
const WRITE: u64 = 10;
const SEND_FIRST: u64 = 0;
/// An acknowledgement, positive or not.
const ACKNOWLEDGE: u64 = 17;

const MISTAKES: [Mistake; 6] = [
    Mistake {
        name: "absent",
        what: "a peer that is not there",
        ended: "fails ended with status 1: ",
        told: &["nobody answered at 127.0.0.1", "the peer has ended"],
        opcodes: &[SEND],
    },
    Mistake {
        name: "wrong-gid",
        what: "a wrong GID",
        ended: "fails ended with status 1: ",
        told: &["nobody answered at 127.9.9.9", "its GID is wrong"],
        opcodes: &[SEND],
    },
    Mistake {
        name: "no-receive",
        what: "a missing receive",
        ended: "fails ended with status 1: ",
        told: &["the peer posted no receive", "after 2 retries"],
        opcodes: &[SEND, ACKNOWLEDGE],
    },
    Mistake {
        name: "wrong-rkey",
        what: "a wrong rkey",
        ended: "fails ended with status 1: ",
        told: &["wrong rkey", "asked for 64 bytes at"],
        opcodes: &[WRITE, ACKNOWLEDGE],
    },
    Mistake {
        name: "long-message",
        what: "a message longer than its receive",
        ended: "fails ended with status 1: ",
        told: &[
            "a message is longer than its receive",
            "for a receive of 100 bytes",
        ],
        opcodes: &[SEND_FIRST, ACKNOWLEDGE],
    },
    Mistake {
        name: "crash",
        what: "a program that crashes after an error",
        ended: "fails was killed by SIGSEGV: ",
        told: &["wrong rkey"],
        opcodes: &[WRITE, ACKNOWLEDGE],
    },
];

/// `softroce run` with these options.
fn run(bed: &Bed, options: &[&str]) -> Result<Program, Stop> {
    Ok(bed.program(&bed.here, [softroce()?]).args(["run"]).args(options))
}

/// Waits until a program has printed something.
fn printed(running: &Running, wanted: &str) -> Outcome {
    for _ in 0..1000 {
        if running.stdout().contains(wanted) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err(Stop::fail(format!("no `{wanted}`: {}", running.report())))
}

fn first_line(finished: &Finished) -> &str {
    let mut lines = finished.stderr.lines();
    lines
        .find(|line| line.starts_with("softroce: "))
        .unwrap_or_default()
}

fn fails(mistake: &Mistake) -> Outcome {
    needs_program("tshark", "tshark")?;
    let bed = Bed::loopback()?;
    let program = compiled::own(&bed.scratch, "fails")?;
    let capture = bed.scratch.file("failure.pcapng");
    let finished = run(&bed, &["--capture-on-failure"])?
        .args([&capture])
        .args(["--"])
        .args([&program, &PathBuf::from(mistake.name)])
        .finish(LIMIT)?;
    ensure(finished.code() != Some(0), || format!("should fail: {finished}"))?;
    let line = first_line(&finished);
    for word in [mistake.ended].iter().chain(mistake.told) {
        ensure(line.contains(word), || {
            format!("the first line should say `{word}`: {finished}")
        })?;
    }
    let number: usize = line
        .split_once("(packet ")
        .and_then(|(_, rest)| rest.split_once(" of the capture)"))
        .and_then(|(number, _)| number.parse().ok())
        .ok_or_else(|| Stop::Fail(format!("the first line names no packet: {finished}")))?;
    ensure(finished.stderr.contains("failure.pcapng (the last "), || {
        format!("no word of the capture: {finished}")
    })?;
    let packets = tshark::roce_packets(&bed.scratch, &capture)?;
    let malformed = tshark::malformed(&bed.scratch, &capture)?;
    ensure(malformed.is_empty(), || malformed.join("\n"))?;
    for opcode in mistake.opcodes {
        ensure(packets.iter().any(|packet| packet.opcode == *opcode), || {
            format!("no packet of opcode {opcode} in {packets:?}")
        })?;
    }
    // The packet that the line names is the one that failed: to the queue pair that it names.
    let packet = number.checked_sub(1).and_then(|index| packets.get(index));
    ensure(
        packet.is_some_and(|packet| {
            packet.opcode == mistake.opcodes[0] && line.contains(&format!("{:#x}", packet.dest_qp))
        }),
        || format!("packet {number} is {packet:?}: {finished}"),
    )
}

/// Two runs: only the client's knows of the failure.
fn killed_peer() -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let port = free_port();
    let port = (port, port.to_string());
    let words = [
        "--",
        // What it prints goes to a file, line by line all the same.
        "stdbuf",
        "-oL",
        "ibv_rc_pingpong",
        "-g",
        "0",
        "-n",
        "100000000",
        "-p",
        &port.1,
    ];
    let server = run(&bed, &[])?.args(words).start()?;
    wait_for_listener(&server, port.0)?;
    let client = run(&bed, &["--timeout", "6"])?
        .args(words)
        .args(["127.0.0.1"])
        .start()?;
    printed(&client, "remote address")?;
    std::thread::sleep(Duration::from_millis(100));
    server.signal(Signal::SIGKILL)?;
    let client = client.wait(LIMIT)?;
    let line = first_line(&client);
    // It was the client's turn, whose message nobody answers; or the peer's, for whose message it waits, as with a card.
    let is_told = match client.code() {
        Some(1) => line.contains("127.0.0.1 stopped answering") && line.contains("the peer has ended"),
        Some(124) => line.contains("waits for a message of the peer"),
        Some(_) | None => false,
    };
    ensure(is_told, || format!("no cause: {client}"))
}

fn hangs() -> Outcome {
    let bed = Bed::loopback()?;
    let program = compiled::own(&bed.scratch, "fails")?;
    let finished = run(&bed, &["--timeout", "1", "--"])?
        .args([&program, &PathBuf::from("hang")])
        .finish(LIMIT)?;
    ensure(finished.code() == Some(124), || format!("no timeout: {finished}"))?;
    let line = first_line(&finished);
    ensure(
        line.contains("did not end within 1s") && line.contains("waits for the peer to post a receive"),
        || format!("no cause: {finished}"),
    )?;
    // Neither a process that hears no SIGTERM nor one whose parent has gone outlives the time.
    let script = "trap '' TERM; (sleep 77.25 &); while :; do sleep 1; done";
    let finished = run(&bed, &["--timeout", "0.5", "--", "sh", "-c", script])?.finish(LIMIT)?;
    ensure(finished.code() == Some(124), || format!("no timeout: {finished}"))?;
    let left = Program::new(&bed.scratch, ["pgrep", "-f", "^sleep 77.25$"]).finish(LIMIT)?;
    ensure(left.stdout.is_empty(), || format!("left behind: {left}"))
}

/// One line names the cause, and nothing is said that is not so.
fn unconnected() -> Outcome {
    needs_program("rping", "rdmacm-utils")?;
    let bed = Bed::loopback()?;
    let port = free_port().to_string();
    let told = |options: &[&str], words: &[&str], wanted: &[&str]| {
        let finished = run(&bed, options)?.args(["--"]).args(words).finish(LIMIT)?;
        let line = first_line(&finished);
        for word in wanted {
            ensure(line.contains(word), || {
                format!("the first line should say `{word}`: {finished}")
            })?;
        }
        ensure(
            finished.code() != Some(0) && !finished.stderr.contains("modify it to RTR"),
            || format!("should fail without this advice: {finished}"),
        )
    };
    let client = |address| ["rping", "-c", "-C", "1", "-p", port.as_str(), "-a", address];
    let nobody = format!(
        "rdma_connect to 127.0.0.1:{port} was rejected: nobody listens on TCP port {port} there (reason 8)"
    );
    told(&[], &client("127.0.0.1"), &[&nobody])?;
    told(
        &[],
        &client("192.0.2.77"),
        &["rdma_resolve_addr of 192.0.2.77:", "--device-address"],
    )?;
    let vain = format!("a request to 127.77.0.77:{port} has no answer since ");
    told(
        &["--timeout", "0.5"],
        &client("127.77.0.77"),
        &[&vain, "no process with a device at 127.77.0.77"],
    )?;
    let listens = format!("listens on TCP port {port} of 127.0.0.1, and no request has come");
    told(&["--timeout", "0.5"], &["rping", "-s", "-p", &port], &[&listens])?;
    told(
        &[],
        &["udaddy", "-s", "127.0.0.1"],
        &["nobody listens on UDP port 7174 there (SIDR status 1)"],
    )
}

fn wrong_index() -> Outcome {
    let bed = Bed::loopback()?;
    let program = compiled::own(&bed.scratch, "fails")?;
    let finished = run(&bed, &["--"])?
        .args([&program, &PathBuf::from("wrong-index")])
        .finish(LIMIT)?;
    let line = first_line(&finished);
    ensure(
        finished.code() == Some(1) && line.contains("ibv_modify_qp: the GID table has no entry 77"),
        || format!("no cause: {finished}"),
    )
}

fn succeeds() -> Outcome {
    needs_program("ibv_devinfo", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let capture = bed.scratch.file("failure.pcapng");
    let finished = run(&bed, &["--capture-on-failure"])?
        .args([&capture])
        .args(["--timeout", "60", "--devices", "3", "--", "ibv_devinfo"])
        .finish(LIMIT)?;
    finished.succeeded()?;
    ensure(finished.stderr.is_empty() && !capture.exists(), || {
        format!("something was said: {finished}")
    })?;
    ensure(finished.stdout.matches("hca_id:").count() == 3, || {
        format!("three devices were wanted: {finished}")
    })
}

fn signals() -> Outcome {
    let bed = Bed::loopback()?;
    let script = "trap 'echo heard' USR1; echo ready; while :; do sleep 0.05; done";
    let running = run(&bed, &["--", "sh", "-c", script])?.start()?;
    printed(&running, "ready")?;
    running.signal(Signal::SIGUSR1)?;
    printed(&running, "heard")?;
    running.signal(Signal::SIGTERM)?;
    let finished = running.wait(LIMIT)?;
    ensure(
        finished.code().is_none() && finished.to_string().contains("ended by signal 15"),
        || format!("should end by SIGTERM: {finished}"),
    )?;
    // Who is asked to end does not wonder why.
    ensure(finished.stderr.is_empty(), || {
        format!("something was said: {finished}")
    })
}

fn nested() -> Outcome {
    let bed = Bed::loopback()?;
    let program = compiled::own(&bed.scratch, "fails")?;
    let finished = run(&bed, &["--"])?
        .args([softroce()?])
        .args(["run", "--"])
        .args([&program, &PathBuf::from("wrong-gid")])
        .finish(LIMIT)?;
    let told = finished.stderr.matches("nobody answered at 127.9.9.9").count();
    ensure(finished.code() == Some(1) && told == 1, || {
        format!("should tell once: {finished}")
    })
}

fn one_capture() -> Outcome {
    needs_program("tshark", "tshark")?;
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let capture = bed.scratch.file("all.pcapng");
    let pair = |port: u16| {
        let words = format!("ibv_rc_pingpong -g 0 -s 9000 -n 200 -p {port}");
        format!(
            "{words} > /dev/null &
            until ss -ltn | grep -q :{port}; do kill -0 $! || exit; sleep 0.05; done
            {words} 127.0.0.1 > /dev/null &
            "
        )
    };
    let script = format!("{} {} wait", pair(free_port()), pair(free_port()));
    let finished = run(&bed, &["--capture"])?
        .args([&capture])
        .args(["--", "sh", "-c", &script])
        .finish(LIMIT)?;
    finished.succeeded()?;
    let malformed = tshark::malformed(&bed.scratch, &capture)?;
    ensure(malformed.is_empty(), || malformed.join("\n"))?;
    let packets = tshark::roce_packets(&bed.scratch, &capture)?.len();
    // Two pairs of 200 messages each way, of nine packets, seen at both ends.
    ensure(packets >= 2 * 2 * 200 * 9 * 2, || format!("{packets} packets"))
}

fn environment() -> Outcome {
    needs_program("ibv_devinfo", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let script = "eval \"$($0 env --device-address 127.0.0.9)\"; ibv_devinfo -v";
    let finished = bed
        .program(&bed.here, ["sh", "-c", script])
        .args([softroce()?])
        .finish(LIMIT)?;
    finished.succeeded()?;
    ensure(finished.stdout.contains("::ffff:127.0.0.9"), || {
        format!("not on softroce: {finished}")
    })?;
    for (format, begins) in [
        ("github", "LD_PRELOAD="),
        ("dockerfile", "ENV LD_PRELOAD=\""),
        ("json", "{"),
    ] {
        let printed = bed
            .program(&bed.here, [softroce()?])
            .args(["env", "--timeout", "5", "--format", format])
            .finish(LIMIT)?;
        printed.succeeded()?;
        ensure(
            printed.stdout.starts_with(begins) && printed.stdout.contains("SOFTROCE_TIMEOUT"),
            || format!("{printed}"),
        )?;
    }
    let finished = bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--", "sh", "-c", "sleep 50"])
        .variable("SOFTROCE_TIMEOUT", "0.3")
        .finish(LIMIT)?;
    ensure(finished.code() == Some(124), || format!("no timeout: {finished}"))
}

fn ports() -> Outcome {
    needs_program("ibv_asyncwatch", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let watching = run(&bed, &["--", "stdbuf", "-oL", "ibv_asyncwatch"])?.start()?;
    printed(&watching, "async event FD")?;
    let run = watching.pid().to_string();
    for (state, event) in [("down", "IBV_EVENT_PORT_ERR"), ("up", "IBV_EVENT_PORT_ACTIVE")] {
        bed.program(&bed.here, [softroce()?])
            .args(["port", state, "--run", &run])
            .finish(LIMIT)?
            .succeeded()?;
        printed(&watching, event)?;
    }
    Ok(())
}
