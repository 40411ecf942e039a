//! One run of one combination: a server and its client, to their ends, and what came of it.

use std::fmt::{self, Display};
use std::path::Path;
use std::time::{Duration, Instant};

use super::matrix::{Combination, Interface};
use crate::case::Stop;
use crate::listening::is_listening;
use crate::process::{Finished, Program, Running};

/// Between two looks whether the server listens.
const PAUSE: Duration = Duration::from_millis(5);
/// How much longer the server may take than its client.
const GRACE: Duration = Duration::from_secs(5);
/// Sizes that `-a` goes through up to one packet's, at least.
const SIZES_OF_ALL: usize = 8;

/// Messages of each size with `-a`, at most.
const ITERATIONS_OF_ALL: u32 = 10;

/// What came of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Both ends ended well and the client printed what it measured.
    Passes,
    /// An end said this and gave up.
    Refuses(String),
    /// An end hung, was killed by a signal, or said nothing: never right.
    Fails(String),
}

impl Verdict {
    /// The word that tables have for it.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Passes => "passes",
            Verdict::Refuses(_) => "refuses",
            Verdict::Fails(_) => "fails",
        }
    }

    /// What was said, else nothing.
    pub fn message(&self) -> &str {
        match self {
            Verdict::Passes => "",
            Verdict::Refuses(message) | Verdict::Fails(message) => message,
        }
    }
}

impl Display for Verdict {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passes => out.write_str("passes"),
            Verdict::Refuses(message) | Verdict::Fails(message) => write!(out, "{}: {message}", self.word()),
        }
    }
}

/// Where combinations run.
pub struct Bench<'a> {
    /// Makes a program of the words of a command line.
    pub program: &'a (dyn Fn(&[&str]) -> Program + Sync),
    /// The options that name device and GID.
    pub device: &'a [&'a str],
    /// The address at which the client calls the server.
    pub server: &'a str,
    /// The library of `shim.c`.
    pub shim: &'a Path,
    /// Messages of each size.
    pub iterations: u32,
    /// How long a run may take that is not timed.
    pub limit: Duration,
}

impl Bench<'_> {
    /// Runs `combination`; the two ends meet at this TCP port.
    pub fn run(&self, combination: &Combination, port: u16) -> Result<Verdict, Stop> {
        let port_word = port.to_string();
        let iterations = match combination.has("-a") {
            true => self.iterations.min(ITERATIONS_OF_ALL),
            false => self.iterations,
        };
        let iterations = iterations.to_string();
        let pretends = match combination.interface {
            Interface::Old => "",
            Interface::New => "SHIM_PRETENDS=1 ",
        };
        let shim = self.shim.display();
        let script = format!("{pretends}LD_PRELOAD={shim}${{LD_PRELOAD:+:$LD_PRELOAD}} exec \"$@\"");
        let mut words = vec!["sh", "-c", &script, "sh"];
        words.extend(combination.words());
        words.extend(["-F", "-p", &port_word]);
        words.extend(self.device);
        if !combination.is_timed() {
            words.extend(["-n", &iterations]);
        }
        let server = (self.program)(&words).start()?;
        if self.await_listener(&server, port) {
            words.push(self.server);
        } else {
            // It has refused already: so will a client, or it would wait for ever.
            let end = server.wait(GRACE)?;
            return Ok(refusal(&[&end]));
        }
        let client = (self.program)(&words).start()?;
        let Some(client) = ended(client, self.limit) else {
            let said = first_error(&server.stderr()).unwrap_or_default();
            return Ok(Verdict::Fails(
                format!("the client hangs {said}").trim_end().to_owned(),
            ));
        };
        let Some(server) = ended(server, GRACE) else {
            return Ok(match judged(combination, &[&client]) {
                Verdict::Passes => Verdict::Fails("the server hangs".to_owned()),
                other => other,
            });
        };
        Ok(judged(combination, &[&client, &server]))
    }

    /// Whether the server has begun to listen, or it has ended without.
    fn await_listener(&self, server: &Running, port: u16) -> bool {
        let deadline = Instant::now() + self.limit;
        while Instant::now() < deadline && !server.has_ended() {
            if is_listening(server.pid(), port) {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        false
    }
}

/// What it printed, if it ends in time; else it is killed.
fn ended(process: Running, limit: Duration) -> Option<Finished> {
    process.wait(limit).ok()
}

fn judged(combination: &Combination, ends: &[&Finished]) -> Verdict {
    if ends.iter().any(|end| end.code() != Some(0)) {
        return refusal(ends);
    }
    let rows = ends[0].stdout.lines().filter(|line| is_result(line)).count();
    let wanted = if combination.has("-a") { SIZES_OF_ALL } else { 1 };
    let prints_table = !["-H", "-U"].iter().any(|option| combination.has(option));
    if rows < wanted && prints_table {
        return Verdict::Fails(format!("{rows} lines of results"));
    }
    Verdict::Passes
}

/// Whether this line begins with a size and a number of messages.
fn is_result(line: &str) -> bool {
    let mut fields = line.split_ascii_whitespace().map(str::parse::<u64>);
    matches!((fields.next(), fields.next()), (Some(Ok(_)), Some(Ok(_))))
}

/// The cause that the ends of a failed run name.
fn refusal(ends: &[&Finished]) -> Verdict {
    for end in ends {
        if end.code().is_none() {
            return Verdict::Fails(end.to_string().lines().next().unwrap_or_default().to_owned());
        }
    }
    let said = |end: &&&Finished| first_error(&end.stderr).or_else(|| first_error(&end.stdout));
    // What an end says that lost its peer is no cause.
    let failed = ends.iter().filter(|end| end.code() != Some(0));
    let all: Vec<String> = failed.filter_map(|end| said(&end)).collect();
    match all.iter().find(|line| !is_consequence(line)).or(all.first()) {
        Some(line) => Verdict::Refuses(line.clone()),
        None => Verdict::Fails("an end fails and says nothing".to_owned()),
    }
}

/// Whether an end says this when its peer has gone.
fn is_consequence(line: &str) -> bool {
    [
        "Couldn't read remote address",
        "Failed to exchange data",
        "Unable to read from socket",
        "ethernet_read_keys",
        "ethernet_write_keys",
    ]
    .iter()
    .any(|words| line.contains(words))
}

/// The first line that tells of an error, if any does: rules, settings and remarks do not.
fn first_error(text: &str) -> Option<String> {
    const REMARKS: [&str; 7] = [
        "---",
        "***",
        "WARNING",
        // What `softroce run` says of a program that failed.
        "softroce: ",
        "Device not recognized to implement inline feature",
        "Max msg size in UD is MTU",
        "Changing to this MTU",
    ];
    let is_noise = |line: &&str| {
        let line = line.trim();
        let is_setting = line.contains(" : ") || line.contains("\t: ");
        line.is_empty() || is_setting || REMARKS.iter().any(|remark| line.starts_with(remark))
    };
    let line = text.lines().find(|line| !is_noise(line))?;
    Some(line.trim().replace('\t', " "))
}
