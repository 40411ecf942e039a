//! What a device tells of its interface while programs run.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::process::Running;
use e2e::{Bed, Case, Outcome, Stop, softroce};
use softroce::{Context, Options, Softroce};
use verbs_api::{CompletionQueue as _, Context as _, CqInit, EventKind, EventSource, PortState, Provider};

/// News of an interface take no longer than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "a port tells when its interface goes down and comes up, and loses its address and gets it back",
            || watch(Program::Sleeps),
        ),
        Case::new(
            "a program that polls without end hears of its port as well",
            || watch(Program::Polls),
        ),
        Case::new("ibv asyncwatch shows the events of the port", asyncwatch),
        Case::new(
            "softroce says which running programs it told something",
            who_was_told,
        ),
    ]
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Program {
    Sleeps,
    Polls,
}

/// What the program does until the next event, and the event.
fn next_event(context: &Context, program: Program, changed: &str) -> Result<EventKind, Stop> {
    let cq = context.create_cq(&CqInit::new(1)).map_err(Stop::fail)?;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(guard) = context.async_event().map_err(Stop::fail)? {
            ensure(guard.event().source == EventSource::Port(1), || {
                format!("an event of {:?}", guard.event().source)
            })?;
            return Ok(guard.event().kind);
        }
        match program {
            Program::Polls => {
                cq.poll(&mut [Default::default()]).map_err(Stop::fail)?;
            }
            Program::Sleeps => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Err(Stop::fail(format!("no event {PATIENCE:?} after `{changed}`")))
}

fn watch(program: Program) -> Outcome {
    let bed = Bed::wire(1500)?;
    // A thread that polls looks at the interfaces of its own namespace.
    bed.here.inside(|| watch_from_inside(&bed, program))?
}

fn watch_from_inside(bed: &Bed, program: Program) -> Outcome {
    let options = Options {
        addresses: vec![IpAddr::V4(Bed::WIRE_HERE)],
        ..Options::default()
    };
    let opened = Softroce::new(options).and_then(|provider| provider.open("softroce0"));
    let context = opened.map_err(Stop::fail)?;
    let address = format!("{}/24", Bed::WIRE_HERE);
    // An interface that goes down keeps its IPv4 addresses.
    let steps: [(&[&str], EventKind, PortState, usize); 4] = [
        (
            &["ip", "link", "set", "wire0", "down"],
            EventKind::PortErr,
            PortState::Down,
            1,
        ),
        (
            &["ip", "link", "set", "wire0", "up"],
            EventKind::PortActive,
            PortState::Active,
            1,
        ),
        (
            &["ip", "addr", "del", &address, "dev", "wire0"],
            EventKind::GidChange,
            PortState::Active,
            0,
        ),
        (
            &["ip", "addr", "add", &address, "dev", "wire0"],
            EventKind::GidChange,
            PortState::Active,
            1,
        ),
    ];
    for (words, kind, state, gids) in steps {
        bed.here.set_up(words)?;
        let changed = words.join(" ");
        let told = next_event(&context, program, &changed)?;
        let port = context.query_port(1).map_err(Stop::fail)?;
        let table = context.gid_table().map_err(Stop::fail)?;
        ensure((told, port.state, table.len()) == (kind, state, gids), || {
            format!(
                "after `{changed}`: {told:?}, {:?}, {} GIDs",
                port.state,
                table.len()
            )
        })?;
    }
    Ok(())
}

fn asyncwatch() -> Outcome {
    needs_program("ibv_asyncwatch", "ibverbs-utils")?;
    let bed = Bed::wire(1500)?;
    let watching = bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--device-address", &Bed::WIRE_HERE.to_string(), "--"])
        // Its output goes to a pipe, line by line all the same.
        .args(["stdbuf", "-oL", "ibv_asyncwatch"])
        .start()?;
    prints(&watching, "async event FD")?;
    let link = |how: &str| bed.here.set_up(&["ip", "link", "set", "wire0", how]);
    link("down")?;
    prints(&watching, "IBV_EVENT_PORT_ERR")?;
    link("up")?;
    prints(&watching, "IBV_EVENT_PORT_ACTIVE")
}

fn who_was_told() -> Outcome {
    needs_program("ibv_asyncwatch", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let start = || -> Result<_, Stop> {
        let watching = bed
            .program(&bed.here, [softroce()?])
            .args(["run", "--", "stdbuf", "-oL", "ibv_asyncwatch"])
            .start()?;
        prints(&watching, "async event FD")?;
        Ok(watching)
    };
    let (one, two) = (start()?, start()?);
    let tell = |words: &[&str]| {
        let told = bed
            .program(&bed.here, [softroce()?])
            .args(words)
            .finish(PATIENCE)?;
        told.succeeded()?;
        Ok::<_, Stop>(told)
    };
    // Without `--run` all of them are meant; this changes nothing.
    let all = tell(&["faults", "show"])?;
    for run in [&one, &two] {
        let line = format!("softroce: run {}: ibv_asyncwatch (process ", run.pid());
        ensure(all.stderr.contains(&line), || format!("no `{line}`: {all}"))?;
    }
    let only = tell(&["port", "down", "--run", &one.pid().to_string(), "--json"])?;
    let value: serde_json::Value = serde_json::from_str(&only.stdout).map_err(Stop::fail)?;
    let told = value["told"].as_array().cloned().unwrap_or_default();
    ensure(
        told.len() == 1
            && told[0]["run"] == one.pid()
            && told[0]["program"] == "ibv_asyncwatch"
            && told[0]["device"] == "softroce0"
            && told[0]["error"].is_null(),
        || only.to_string(),
    )?;
    prints(&one, "IBV_EVENT_PORT_ERR")?;
    ensure(!two.stdout().contains("IBV_EVENT_PORT_ERR"), || two.report())
}

/// Waits until a program has printed some words.
fn prints(program: &Running, wanted: &str) -> Outcome {
    let deadline = Instant::now() + PATIENCE;
    while !program.stdout().contains(wanted) {
        ensure(Instant::now() < deadline, || {
            format!("no `{wanted}`: {}", program.report())
        })?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
