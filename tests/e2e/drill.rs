//! Scripts: as the chapter on them has it typed, and over a real wire.

use std::time::Duration;

use e2e::case::ensure;
use e2e::program::repository;
use e2e::{Bed, Case, Outcome, Stop, softroce};

const LIMIT: Duration = Duration::from_secs(60);
/// Where the agent listens, and the address that the script plays.
const AGENT: &str = "127.0.0.1:18791";
const PLAYED: &str = "127.77.7.9";

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("the first script of the chapter runs as typed", first_script),
        Case::new(
            "a wrong line of it is shown with line, column and reason",
            wrong_line,
        ),
        Case::new("a script with a typing error ends with status 2", typing_error),
        Case::new("all scripts run over a real wire", over_a_wire),
    ]
}

/// The script that the chapter gives first.
fn chapter_script() -> Result<String, Stop> {
    let path = repository().join("docs/drill.md");
    let chapter =
        std::fs::read_to_string(&path).map_err(|error| Stop::Fail(format!("{}: {error}", path.display())))?;
    let mut blocks = chapter.split("```");
    let script = blocks.nth(1).unwrap_or_default().trim_start();
    Ok(script.to_owned())
}

/// Runs a text as `first.drill`: its status, and what it printed.
fn drill(text: &str) -> Result<(Option<i32>, String), Stop> {
    let bed = Bed::loopback()?;
    let path = bed.scratch.path().join("first.drill");
    std::fs::write(&path, text).map_err(Stop::fail)?;
    let program = bed.program(&bed.here, [softroce()?.as_os_str()]);
    let finished = program.args(["drill"]).args([path.as_os_str()]).finish(LIMIT)?;
    Ok((finished.code(), format!("{}{}", finished.stdout, finished.stderr)))
}

fn first_script() -> Outcome {
    let (code, printed) = drill(&chapter_script()?)?;
    ensure(code == Some(0) && printed.contains("1 scripts: 1 pass"), || {
        printed
    })
}

fn wrong_line() -> Outcome {
    let script = chapter_script()?.replace("> NAK sequence psn=p", "> NAK sequence psn=p+1");
    let (code, printed) = drill(&script)?;
    let told = "first.drill:10:1: psn: expected 0x001389 (p+1), seen 0x001388 (p)";
    ensure(code == Some(1) && printed.contains(told), || printed)
}

fn typing_error() -> Outcome {
    let script = chapter_script()?.replace("recv 2", "receive 2");
    let (code, printed) = drill(&script)?;
    let told = "first.drill:7:1: no line begins with `receive`";
    ensure(code == Some(2) && printed.contains(told), || printed)
}

fn over_a_wire() -> Outcome {
    let bed = Bed::loopback()?;
    let folder = repository().join("conformance/drill/scripts");
    // The scripts are read by a user who may not see the checkout.
    let copy = bed.scratch.path().join("scripts");
    std::fs::create_dir(&copy).map_err(Stop::fail)?;
    let mut count = 0;
    for entry in std::fs::read_dir(&folder).map_err(Stop::fail)? {
        let entry = entry.map_err(Stop::fail)?;
        std::fs::copy(entry.path(), copy.join(entry.file_name())).map_err(Stop::fail)?;
        count += 1;
    }
    let agent = bed.program(&bed.here, [softroce()?.as_os_str()]);
    let agent = agent.args(["drill", "--serve", AGENT]).start()?;
    let until = std::time::Instant::now() + LIMIT;
    while !agent.stdout().contains("serving") {
        ensure(!agent.has_ended() && std::time::Instant::now() < until, || {
            agent.report()
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    let player = bed.program(&bed.here, [softroce()?.as_os_str()]);
    let finished = player
        .args(["drill", "--target", AGENT, "--from", PLAYED])
        .args([copy.as_os_str()])
        .finish(LIMIT)?;
    let expected = format!("{count} scripts: {} pass, 1 skipped", count - 1);
    ensure(
        finished.code() == Some(0) && finished.stdout.contains(&expected),
        || {
            format!(
                "{}{}\nagent: {}",
                finished.stdout,
                finished.stderr,
                agent.report()
            )
        },
    )
}
