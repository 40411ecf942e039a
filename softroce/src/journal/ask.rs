//! The ear of a device: a socket in the directory of the run, at which `softroce run` asks what queue pairs wait for,
//! and at which a port is taken down and up for a test.

use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use softroce_engine::WaitsFor;
use verbs_api::PortState;

use super::{Entry, Kind, own_name};
use crate::device::Shared;
use crate::faults::Rules;
use crate::os;

/// The longest answer, bytes.
const ANSWER_MAX: usize = 60_000;
/// Queue pairs in an answer, at most.
const TOLD_MAX: usize = 24;

/// The longest question, bytes: a file of fault rules with what goes before it.
const QUESTION_MAX: usize = 60_000;

/// What a device can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// What do your queue pairs wait for?
    Waiting,
    /// Take your port down, as if its cable had been pulled.
    PortDown,
    /// Let your port be as its interface is.
    PortUp,
    /// Go by the fault rules of this file's text.
    LoadFaults {
        /// Of the command, so that a process with several devices takes it once.
        number: u64,
        /// The text.
        text: String,
    },
    /// Go by no fault rules.
    ClearFaults,
    /// What have your fault rules done?
    ShowFaults,
}

impl Question {
    fn message(&self) -> String {
        match self {
            Question::Waiting => "waiting".into(),
            Question::PortDown => "port-down".into(),
            Question::PortUp => "port-up".into(),
            Question::LoadFaults { number, text } => format!("load-faults {number}\n{text}"),
            Question::ClearFaults => "clear-faults".into(),
            Question::ShowFaults => "show-faults".into(),
        }
    }

    fn from_message(message: &str) -> Option<Question> {
        match message {
            "waiting" => Some(Question::Waiting),
            "port-down" => Some(Question::PortDown),
            "port-up" => Some(Question::PortUp),
            "clear-faults" => Some(Question::ClearFaults),
            "show-faults" => Some(Question::ShowFaults),
            message => {
                let (number, text) = message.strip_prefix("load-faults ")?.split_once('\n')?;
                Some(Question::LoadFaults {
                    number: number.parse().ok()?,
                    text: text.to_owned(),
                })
            }
        }
    }
}

/// The socket.
#[derive(Debug)]
pub(crate) struct Ear {
    socket: UnixDatagram,
    path: PathBuf,
}

impl Ear {
    /// In the directory of the run, if there is one and it can be written.
    pub(crate) fn open() -> Option<Ear> {
        let path = own_name(super::directory()?, "ask");
        let socket = UnixDatagram::bind(&path).ok()?;
        socket.set_nonblocking(true).ok()?;
        os::mark(socket.as_raw_fd());
        Some(Ear { socket, path })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Answer what was asked.
    pub(crate) fn answer(&self, shared: &Shared) {
        let mut message = vec![0; QUESTION_MAX];
        // Who asks without end is answered one at a time.
        let Ok((length, from)) = self.socket.recv_from(&mut message) else {
            return;
        };
        let question = str::from_utf8(&message[..length])
            .ok()
            .and_then(Question::from_message);
        let Some(question) = question else { return };
        let answer = match question {
            Question::Waiting => waiting(shared),
            Question::PortDown => force_port(shared, Some(PortState::Down)),
            Question::PortUp => force_port(shared, None),
            Question::LoadFaults { number, text } => load_faults(shared, number, &text),
            Question::ClearFaults => {
                shared.faults.clear();
                told(shared, shared.faults_changed())
            }
            Question::ShowFaults => show_faults(shared),
        };
        if let Some(path) = from.as_pathname() {
            let _ = self.socket.send_to(answer.as_bytes(), path);
        }
    }

    /// The device closes.
    pub(crate) fn close(&self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        let _ = std::fs::remove_file(&self.path);
    }
}

/// An entry for each queue pair that waits, and each id, the most telling of each first, one a line.
fn waiting(shared: &Shared) -> String {
    let mut guard = shared.gate.enter();
    let now = shared.clock.now();
    let mut found = guard.engine.waiting(now);
    let ids = guard.waiting_ids(now);
    shared.leave(guard);
    found.retain(|waiting| waiting.weight().is_some());
    // What these wait for, their ids say.
    found.retain(|waiting| {
        waiting.waits_for != WaitsFor::Connection || !ids.queue_pairs.contains(&waiting.qpn)
    });
    found.sort_by_key(|waiting| (waiting.weight(), std::cmp::Reverse(waiting.waited_ns)));
    let entries = found.iter().take(TOLD_MAX).map(|waiting| {
        let mut entry = Entry::now(Kind::Waiting, waiting.to_string());
        entry.place = (waiting.sends > 0).then_some(super::Place {
            dest_qpn: waiting.peer_qpn,
            psn: waiting.psn,
            dst: waiting.peer,
        });
        entry
    });
    let mut answer = format!("{}\n", shared.name);
    for entry in entries.chain(ids.entries()) {
        let line = String::from_utf8(entry.line(super::SLOT_BYTES)).unwrap_or_default();
        if answer.len() + line.len() > ANSWER_MAX {
            break;
        }
        answer.push_str(line.trim_end());
        answer.push('\n');
    }
    answer
}

fn force_port(shared: &Shared, state: Option<PortState>) -> String {
    if state == Some(PortState::Down) {
        let text = "port 1 goes down, as `softroce port down` says";
        super::note(&Entry::now(Kind::Hint, text.to_owned()));
    }
    let done = shared.verb(|card, now| {
        card.force_port(now, state);
        Ok(())
    });
    told(shared, done)
}

fn told(shared: &Shared, done: verbs_api::Result<()>) -> String {
    match done {
        Ok(()) => format!("{}\n", shared.name),
        Err(error) => format!("{}: {error}\n", shared.name),
    }
}

fn load_faults(shared: &Shared, number: u64, text: &str) -> String {
    match Rules::parse(text) {
        Ok(rules) => {
            shared.faults.load_once(number, rules);
            told(shared, shared.faults_changed())
        }
        Err(error) => format!("{}: {error}\n", shared.name),
    }
}

/// A line for each rule: matches, hits and name.
fn show_faults(shared: &Shared) -> String {
    let mut answer = format!("{}\n", shared.name);
    for tally in shared.faults.tallies() {
        let line = format!("{}\t{}\t{}\n", tally.matched, tally.hits, tally.name);
        if answer.len() + line.len() > ANSWER_MAX {
            break;
        }
        answer.push_str(&line);
    }
    answer
}

/// An answer of a device.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The process.
    pub process: u32,
    /// The device's name.
    pub device: String,
    /// What it tells, as entries where it is such.
    pub entries: Vec<Entry>,
    /// The same as lines.
    pub lines: Vec<String>,
}

/// Ask every device that has its ear in `directory`, and wait for their answers, for `patience` at most. Also the
/// processes that did not answer: stopped, or so busy that their background thread does not run.
pub fn ask(directory: &Path, question: &Question, patience: Duration) -> (Vec<Answer>, Vec<u32>) {
    let mut answers = Vec::new();
    let ears: Vec<PathBuf> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "ask"))
        .collect();
    let own = own_name(directory, "asks");
    let Ok(socket) = UnixDatagram::bind(&own) else {
        return (answers, Vec::new());
    };
    let message = question.message();
    let mut silent: Vec<PathBuf> = ears
        .into_iter()
        .filter(|ear| socket.send_to(message.as_bytes(), ear).is_ok())
        .collect();
    let end = Instant::now() + patience;
    let mut text = vec![0; ANSWER_MAX + 4096];
    while !silent.is_empty() {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() || socket.set_read_timeout(Some(left)).is_err() {
            break;
        }
        let Ok((length, from)) = socket.recv_from(&mut text) else {
            break;
        };
        let Some(path) = from.as_pathname() else { continue };
        silent.retain(|ear| ear != path);
        let text = String::from_utf8_lossy(&text[..length]);
        let mut lines = text.lines();
        let process = process_of(path);
        answers.push(Answer {
            process,
            device: lines.next().unwrap_or_default().to_owned(),
            lines: lines.clone().map(str::to_owned).collect(),
            entries: lines
                .filter_map(Entry::parse)
                .map(|entry| Entry { process, ..entry })
                .collect(),
        });
    }
    let _ = std::fs::remove_file(own);
    (answers, silent.iter().map(|path| process_of(path)).collect())
}

fn process_of(path: &Path) -> u32 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.split('-')
        .next()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0)
}
