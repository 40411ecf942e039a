//! The ear of a device: a socket in the directory of the run, at which `softroce run` asks what queue pairs wait for,
//! and at which a port is taken down and up for a test.

use std::net::Shutdown;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use verbs_api::PortState;

use super::{Entry, Kind, own_name};
use crate::device::Shared;

/// The longest answer, bytes.
const ANSWER_MAX: usize = 60_000;
/// Queue pairs in an answer, at most.
const TOLD_MAX: usize = 24;

/// What a device can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// What do your queue pairs wait for?
    Waiting,
    /// Take your port down, as if its cable had been pulled.
    PortDown,
    /// Let your port be as its interface is.
    PortUp,
}

impl Question {
    fn word(self) -> &'static str {
        match self {
            Question::Waiting => "waiting",
            Question::PortDown => "port-down",
            Question::PortUp => "port-up",
        }
    }

    fn from_word(word: &[u8]) -> Option<Question> {
        [Question::Waiting, Question::PortDown, Question::PortUp]
            .into_iter()
            .find(|question| question.word().as_bytes() == word)
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
        Some(Ear { socket, path })
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// Answer what was asked.
    pub(crate) fn answer(&self, shared: &Shared) {
        let mut word = [0; 32];
        // Who asks without end is answered one at a time.
        let Ok((length, from)) = self.socket.recv_from(&mut word) else {
            return;
        };
        let Some(question) = Question::from_word(&word[..length]) else {
            return;
        };
        let answer = match question {
            Question::Waiting => waiting(shared),
            Question::PortDown => force_port(shared, Some(PortState::Down)),
            Question::PortUp => force_port(shared, None),
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

/// An entry for each queue pair that waits, the most telling first, one a line.
fn waiting(shared: &Shared) -> String {
    let mut guard = shared.gate.enter();
    let mut found = guard.engine.waiting(shared.clock.now());
    shared.leave(guard);
    found.retain(|waiting| waiting.weight().is_some());
    found.sort_by_key(|waiting| (waiting.weight(), std::cmp::Reverse(waiting.waited_ns)));
    let mut answer = format!("{}\n", shared.name);
    for waiting in found.iter().take(TOLD_MAX) {
        let mut entry = Entry::now(Kind::Waiting, waiting.to_string());
        entry.place = (waiting.sends > 0).then_some(super::Place {
            dest_qpn: waiting.peer_qpn,
            psn: waiting.psn,
            dst: waiting.peer,
        });
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
    let done = shared.verb(|card, _| {
        card.force_port(state);
        Ok(())
    });
    match done {
        Ok(()) => format!("{}\n", shared.name),
        Err(error) => format!("{}: {error}\n", shared.name),
    }
}

/// An answer of a device.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The process.
    pub process: u32,
    /// The device's name.
    pub device: String,
    /// What it tells.
    pub entries: Vec<Entry>,
}

/// Ask every device that has its ear in `directory`, and wait for their answers, for `patience` at most. Also the
/// processes that did not answer: stopped, or so busy that their background thread does not run.
pub fn ask(directory: &Path, question: Question, patience: Duration) -> (Vec<Answer>, Vec<u32>) {
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
    let mut silent: Vec<PathBuf> = ears
        .into_iter()
        .filter(|ear| socket.send_to(question.word().as_bytes(), ear).is_ok())
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
