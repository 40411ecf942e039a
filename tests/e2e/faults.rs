//! Unmodified programs under fault rules: `softroce run --faults`, and rules that change while they run.

use std::path::PathBuf;
use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::process::Finished;
use e2e::program::repository;
use e2e::{Bed, Case, Outcome, Program, Stop, softroce};

use crate::pingpong::free_port;

const LIMIT: Duration = Duration::from_secs(60);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("the files of fault rules in contrib are right", ready_made),
        Case::new(
            "a wrong file of fault rules is told with line and column",
            wrong_file,
        ),
        Case::new("the example of the chapter on faults works as typed", example),
        Case::new(
            "a pingpong with one percent of loss finishes with right data",
            pingpong_with_loss,
        ),
        Case::new(
            "a pingpong in a black hole ends with its retries exhausted",
            black_hole,
        ),
        Case::new("a rule that never hit is named at the end", never_hit),
        Case::new("fault rules change while a program runs", changes),
        Case::new(
            "each verbs call made to fail under a pingpong ends it with its own message",
            each_call,
        ),
    ];
    cases.extend(RC_TOOLS.iter().map(|tool| {
        Case::new(
            format!("{} with one percent of loss finishes", tool.replace('_', " ")),
            move || perftest_with_loss(tool),
        )
    }));
    cases
}

const RC_TOOLS: &[&str] = &[
    "ib_send_bw",
    "ib_send_lat",
    "ib_write_bw",
    "ib_write_lat",
    "ib_read_bw",
    "ib_read_lat",
    "ib_atomic_bw",
    "ib_atomic_lat",
];

const LOSS: &str = "[[packet]]\nname = \"loss\"\nprobability = \"1 %\"\ndo = \"drop\"\n";

fn rules(bed: &Bed, text: &str) -> Result<PathBuf, Stop> {
    let file = bed.scratch.file("rules.toml");
    std::fs::write(&file, text)?;
    Ok(file)
}

fn run(bed: &Bed, text: &str) -> Result<Program, Stop> {
    let file = rules(bed, text)?;
    Ok(bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--faults"])
        .args([&file])
        .args(["--"]))
}

/// Both ends of a program in one run, of which the second gets the address, once the first listens.
fn both(bed: &Bed, text: &str, line: &str, port: u16) -> Result<Finished, Stop> {
    let script = format!(
        "{line} -p {port} > /dev/null & server=$!
        until ss -ltn | grep -q :{port}; do kill -0 $server || exit; sleep 0.05; done
        {line} -p {port} 127.0.0.1 && wait $server"
    );
    run(bed, text)?.args(["sh", "-c", &script]).finish(LIMIT)
}

fn ready_made() -> Outcome {
    let bed = Bed::loopback()?;
    let files = std::fs::read_dir(repository().join("contrib/faults"))?;
    for file in files.flatten() {
        let text = std::fs::read_to_string(file.path())?;
        let copy = rules(&bed, &text)?;
        bed.program(&bed.here, [softroce()?])
            .args(["faults", "check"])
            .args([&copy])
            .finish(LIMIT)?
            .succeeded()?;
    }
    Ok(())
}

fn wrong_file() -> Outcome {
    let bed = Bed::loopback()?;
    let finished = run(&bed, "[[packet]]\ndo = \"dorp\"\n")?
        .args(["true"])
        .finish(LIMIT)?;
    ensure(
        finished.code() == Some(1) && finished.stderr.contains("line 2, column 6: \"dorp\""),
        || format!("{finished}"),
    )
}

/// The first block of the chapter, in a shell that finds the command in its path.
fn example() -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let text = std::fs::read_to_string(repository().join("docs/faults.md"))?;
    let block = text
        .split("```sh\n")
        .nth(1)
        .and_then(|rest| rest.split("```").next())
        .ok_or_else(|| Stop::fail("the chapter has no example"))?;
    let directory = softroce()?.parent().unwrap_or(repository()).display().to_string();
    let script = format!("PATH={directory}:$PATH; cd \"$0\" && {block}");
    let place = bed.scratch.file("");
    let finished = bed
        .program(&bed.here, ["sh", "-c", &script])
        .args([&place])
        .finish(LIMIT)?;
    finished.succeeded()?;
    ensure(finished.stdout.matches("100 iters in").count() == 2, || {
        format!("both should finish: {finished}")
    })
}

fn pingpong_with_loss() -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    // The program leaves as soon as it has what it waits for. Were its last acknowledgement lost then, nobody would be
    // there to repeat it, on any card. Each end sends more than the 6,000 packets of its messages, so the last is safe.
    let text = format!("{LOSS}nth = \"-6000\"\n");
    // `-c` compares what arrives.
    let line = "ibv_rc_pingpong -g 0 -c -n 300 -s 20000 -m 1024";
    let finished = both(&bed, &text, line, free_port())?;
    finished.succeeded()?;
    ensure(
        finished.stdout.contains("300 iters in") && !finished.stdout.contains("invalid data"),
        || format!("{finished}"),
    )
}

fn black_hole() -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let text = "[[packet]]\nopcode = \"rc\"\nnth = 500\ndo = \"blackhole\"\n";
    let finished = both(&bed, text, "ibv_rc_pingpong -g 0 -n 1000000", free_port())?;
    ensure(
        finished.code() == Some(1) && finished.stderr.contains("transport retries exhausted"),
        || format!("{finished}"),
    )
}

fn never_hit() -> Outcome {
    needs_program("ibv_devinfo", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let finished = run(&bed, LOSS)?.args(["ibv_devinfo"]).finish(LIMIT)?;
    finished.succeeded()?;
    ensure(
        finished
            .stderr
            .contains("the fault rule \"loss\" never hit anything"),
        || format!("{finished}"),
    )
}

fn changes() -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let file = rules(
        &bed,
        "[[packet]]\nname = \"hole\"\nopcode = \"rc\"\ndo = \"blackhole\"\n",
    )?;
    let port = free_port();
    let number = port.to_string();
    let words = [
        "--",
        "ibv_rc_pingpong",
        "-g",
        "0",
        "-n",
        "100000000",
        "-p",
        &number,
    ];
    let run = || Ok::<_, Stop>(bed.program(&bed.here, [softroce()?]).args(["run"]).args(words));
    let server = run()?.start()?;
    wait_for_listener(&server, port)?;
    let client = run()?.args(["127.0.0.1"]).start()?;
    std::thread::sleep(Duration::from_millis(300));
    let which = client.pid().to_string();
    let faults = |words: &[&str]| {
        bed.program(&bed.here, [softroce()?])
            .args(["faults"])
            .args(words)
            .args(["--run", &which])
            .finish(LIMIT)
    };
    let path = file.display().to_string();
    faults(&["load", &path])?.succeeded()?;
    let shown = faults(&["show"])?;
    ensure(shown.stdout.contains("hole"), || format!("{shown}"))?;
    let client = client.wait(LIMIT)?;
    ensure(
        client.code() == Some(1) && client.stderr.contains("transport retries exhausted"),
        || format!("{client}"),
    )?;
    drop(server);
    Ok(())
}

/// What `ibv_rc_pingpong -e` says when a call fails. It does not look at what `ibv_query_qp` returns.
const CALLS: &[(&str, &str)] = &[
    ("get_device_list", "Failed to get IB devices list"),
    ("open_device", "Couldn't get context"),
    ("query_port", "Couldn't get port info"),
    ("query_gid", "can't read sgid of index 0"),
    ("alloc_pd", "Couldn't allocate PD"),
    ("reg_mr", "Couldn't register MR"),
    ("create_comp_channel", "Couldn't create completion channel"),
    ("create_cq", "Couldn't create CQ"),
    ("create_qp", "Couldn't create QP"),
    ("modify_qp", "Failed to modify QP to INIT"),
    ("post_recv", "Couldn't post receive"),
    ("post_send", "Couldn't post send"),
    ("poll_cq", "poll CQ failed -12"),
    ("req_notify_cq", "Couldn't request CQ notification"),
    ("get_cq_event", "Failed to get cq_event"),
    ("destroy_qp", "Couldn't destroy QP"),
    ("destroy_cq", "Couldn't destroy CQ"),
    ("dereg_mr", "Couldn't deregister MR"),
    ("dealloc_pd", "Couldn't deallocate PD"),
    ("destroy_comp_channel", "Couldn't destroy completion channel"),
    ("close_device", "Couldn't release context"),
];

fn each_call() -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    for (call, message) in CALLS {
        let port = free_port();
        let number = port.to_string();
        let words = ["ibv_rc_pingpong", "-g", "0", "-e", "-n", "20", "-p", &number];
        let server = bed
            .program(&bed.here, [softroce()?])
            .args(["run", "--"])
            .args(words)
            .start()?;
        wait_for_listener(&server, port)?;
        let text = format!("[[verb]]\ncall = \"{call}\"\nerrno = \"ENOMEM\"\n");
        let client = run(&bed, &text)?.args(words).args(["127.0.0.1"]).finish(LIMIT)?;
        ensure(
            client.code() == Some(1) && client.stderr.contains(message),
            || format!("{call}: should say {message:?}: {client}"),
        )?;
        ensure(client.stderr.contains("as the fault rule"), || {
            format!("{call}: the cause is not told: {client}")
        })?;
        drop(server);
    }
    Ok(())
}

fn perftest_with_loss(tool: &str) -> Outcome {
    needs_program(tool, "perftest")?;
    let bed = Bed::loopback()?;
    // Atomics have a size of their own.
    let size = if tool.contains("atomic") { "" } else { "-s 8192" };
    let line = format!("{tool} -d softroce0 -x 0 -n 100 {size} -u 9");
    let finished = both(&bed, LOSS, &line, free_port())?;
    finished.succeeded()
}
