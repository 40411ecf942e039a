//! What explains a failing program, kept outside of it: `softroce run` reads it when the program has failed, however it
//! ended.
//!
//! A process that finds a directory in `SOFTROCE_RUN` writes there what went wrong as it happens: error completions with
//! what is known of their cause, what was refused to a peer and why, and verbs that failed. Each entry is one write to a
//! file of the process's own, in a place of fixed size: the first entries stay, later ones take each other's places, so
//! the file is bounded. Where nothing fails nothing is written, and without the variable this costs nothing at all.
//!
//! What cannot be written is not told: a journal never makes a program fail.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use verbs_api::Error;

use crate::fork;
use crate::lock::Mutex;

pub mod ask;
mod entry;
pub(crate) mod failures;

pub use entry::{Entry, Kind, Place};

/// The variable that names the directory.
pub const VARIABLE: &str = "SOFTROCE_RUN";

/// Bytes of an entry, its end of line included.
const SLOT_BYTES: usize = 768;
/// Entries that stay.
const FIRST: u64 = 32;
/// Entries behind them, which take each other's places.
const LAST: u64 = 96;
/// Peers that are remembered as not connected.
const PEERS_MAX: usize = 32;

/// The directory of this run, if there is one.
pub(crate) fn directory() -> Option<&'static Path> {
    static DIRECTORY: OnceLock<Option<PathBuf>> = OnceLock::new();
    DIRECTORY
        .get_or_init(|| {
            let named = std::env::var_os(VARIABLE).map(PathBuf::from)?;
            named.is_dir().then_some(named)
        })
        .as_deref()
}

/// A name of its own in the directory for something of this process.
pub(crate) fn own_name(directory: &Path, kind: &str) -> PathBuf {
    static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    directory.join(format!("{}-{number}.{kind}", std::process::id()))
}

/// The file of this process.
struct Writer {
    /// Of the process that made it, see [`fork`].
    generation: u32,
    /// `None` when it cannot be written.
    file: Option<File>,
    entries: u64,
    /// The last entry of a failed verb, which repeats most often.
    last_verb: Option<(String, i32)>,
    /// What a fault rule did last, likewise.
    last_fault: Option<String>,
    /// Connections that did not come about: peers, and what was told last of each.
    not_connected: VecDeque<(String, String)>,
}

static WRITER: Mutex<Option<Writer>> = Mutex::new(None);

/// Begin: a journal without entries tells that the process has looked for devices.
pub fn start() {
    with_writer(|_, _| {});
}

/// A verb failed.
pub fn note_failed_verb(verb: &str, error: &Error) {
    with_writer(|writer, _| {
        let this = (verb, error.errno());
        if writer
            .last_verb
            .as_ref()
            .map(|(verb, errno)| (verb.as_str(), *errno))
            == Some(this)
        {
            return;
        }
        writer.last_verb = Some((verb.to_owned(), error.errno()));
        writer.write(&Entry::now(Kind::Verb, format!("{verb}: {error}")));
    });
}

/// Whether a connection of this process did not come about: only then one that does is worth a word.
static IS_CONNECT_NOTED: AtomicBool = AtomicBool::new(false);

/// A connection with `peer` did not come about, for the reason that `text` gives.
pub(crate) fn note_connect(peer: &str, text: String) {
    with_writer(|writer, _| {
        let this = (peer.to_owned(), text);
        // Who tries again and again is told of once.
        if writer.not_connected.contains(&this) {
            return;
        }
        IS_CONNECT_NOTED.store(true, Ordering::Relaxed);
        writer.write(&Entry::now(Kind::Connect, this.1.clone()));
        if writer.not_connected.len() == PEERS_MAX {
            writer.not_connected.pop_front();
        }
        writer.not_connected.push_back(this);
    });
}

/// A connection has come about, with this peer.
pub(crate) fn note_connected(peer: impl FnOnce() -> String) {
    if IS_CONNECT_NOTED.load(Ordering::Relaxed) {
        let peer = peer();
        with_writer(|writer, _| {
            let before = writer.not_connected.len();
            writer.not_connected.retain(|(other, _)| *other != peer);
            if writer.not_connected.len() < before {
                writer.write(&Entry::now(Kind::Connected, peer));
            }
        });
    }
}

/// A fault rule did something, which it may do again and again.
pub(crate) fn note_fault(kind: Kind, text: impl FnOnce() -> String) {
    if directory().is_none() {
        return;
    }
    let text = text();
    with_writer(|writer, _| {
        if writer.last_fault.as_ref() != Some(&text) {
            writer.last_fault = Some(text.clone());
            writer.write(&Entry::now(kind, text));
        }
    });
}

/// Something else.
pub(crate) fn note(entry: &Entry) {
    with_writer(|writer, _| writer.write(entry));
}

fn with_writer(act: impl FnOnce(&mut Writer, &Path)) {
    let Some(directory) = directory() else { return };
    // A holder in the parent at the moment of a fork never lets go in the child.
    let Some(mut writer) = WRITER.try_lock_for(std::time::Duration::from_millis(20)) else {
        return;
    };
    let generation = fork::generation();
    let writer = match &mut *writer {
        Some(writer) if writer.generation == generation => writer,
        other => {
            // The parent's file is left to the parent.
            std::mem::forget(other.take());
            other.insert(Writer::open(directory, generation))
        }
    };
    act(writer, directory);
}

impl Writer {
    fn open(directory: &Path, generation: u32) -> Writer {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(own_name(directory, "journal"));
        let mut writer = Writer {
            generation,
            file: file.ok(),
            entries: 0,
            last_verb: None,
            last_fault: None,
            not_connected: VecDeque::new(),
        };
        let name = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        writer.write(&Entry::now(Kind::Process, name.trim().to_owned()));
        writer
    }

    fn write(&mut self, entry: &Entry) {
        let Some(file) = &self.file else { return };
        let number = self.entries;
        self.entries += 1;
        let place = match number.checked_sub(FIRST) {
            None => number,
            Some(later) => FIRST + later % LAST,
        };
        let line = entry.line(SLOT_BYTES);
        let _ = file.write_all_at(&line, place * SLOT_BYTES as u64);
    }
}

/// All entries in a directory, in the order of time. What is no entry is passed over.
pub fn read(directory: &Path) -> Vec<Entry> {
    let mut entries: Vec<Entry> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|file| file.path().extension().is_some_and(|kind| kind == "journal"))
        .flat_map(|file| read_file(&file.path()))
        .collect();
    entries.sort_by_key(|entry| entry.time_ns);
    entries
}

fn read_file(path: &Path) -> Vec<Entry> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let process = name.split('-').next().and_then(|number| number.parse().ok());
    let mut text = String::new();
    let longest = (FIRST + LAST) * SLOT_BYTES as u64;
    let read = File::open(path).and_then(|file| file.take(longest).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    text.lines()
        .filter_map(Entry::parse)
        .map(|mut entry| {
            entry.process = process.unwrap_or(0);
            entry
        })
        .collect()
}

/// Nanoseconds since 1970.
fn now_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// Whether a process of this network namespace has the port of RoCE at an address of this host; `None` where the address
/// is of another host, or cannot be told.
pub(crate) fn has_device_at(address: IpAddr) -> Option<bool> {
    std::net::UdpSocket::bind((address, 0)).ok()?;
    let (file, own, any) = match address {
        IpAddr::V4(v4) => (
            "/proc/self/net/udp",
            format!("{:08X}", u32::from_ne_bytes(v4.octets())),
            "0".repeat(8),
        ),
        IpAddr::V6(v6) => {
            let words = v6.octets();
            let words = words
                .chunks_exact(4)
                .map(|word| format!("{:08X}", u32::from_ne_bytes([word[0], word[1], word[2], word[3]])));
            ("/proc/self/net/udp6", words.collect(), "0".repeat(32))
        }
    };
    let port = format!("{:04X}", roce_wire::ROCE_V2_PORT);
    let table = std::fs::read_to_string(file).ok()?;
    let is_there = table
        .lines()
        .filter_map(|line| line.split_whitespace().nth(1)?.split_once(':'))
        .any(|(address, at)| at == port && (address == own || address == any));
    Some(is_there)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_found_by_its_port_and_addresses_of_others_are_not_judged() {
        let address: IpAddr = "127.77.0.1".parse().unwrap();
        assert_eq!(has_device_at(address), Some(false));
        let _taken = std::net::UdpSocket::bind((address, roce_wire::ROCE_V2_PORT)).unwrap();
        assert_eq!(has_device_at(address), Some(true));
        assert_eq!(has_device_at("192.0.2.77".parse().unwrap()), None);
    }

    #[test]
    fn the_first_entries_stay_and_the_last_ones_are_there() {
        let directory = std::env::temp_dir().join(format!("softroce-journal-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mut writer = Writer::open(&directory, 0);
        for number in 0..1000 {
            writer.write(&Entry::now(
                Kind::Local,
                format!("number {number}\n with a break"),
            ));
        }
        let entries = read(&directory);
        std::fs::remove_dir_all(&directory).unwrap();
        assert_eq!(entries.len() as u64, FIRST + LAST);
        assert_eq!(entries[0].kind, Kind::Process);
        assert_eq!(entries[1].text, "number 0  with a break");
        assert_eq!(entries.last().unwrap().text, "number 999  with a break");
        assert_eq!(entries[1].process, std::process::id());
    }
}
