//! The port's counters as files, where `softroce run` shows the devices to programs that look at `/sys`.
//!
//! The files belong to a device and not to a process: whoever has had the device open adds what it has counted, and they
//! count on from run to run, as a card's do. That is done when the device closes and when the process ends, by the thread
//! that does so. A thread of ours must not open files meanwhile: the program may be about to close a descriptor and count
//! on getting its number again.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use softroce_engine::Counters;

use crate::lock::Mutex;

/// The variable that names the tree of files.
const TREE: &str = "SOFTROCE_PATHS";

/// The files of one device, and what this process has told there.
#[derive(Debug)]
pub(crate) struct SystemCounters {
    /// Of the port. `None`: nobody shows the device.
    directory: Option<PathBuf>,
    told: Mutex<Counters>,
}

impl SystemCounters {
    /// Those of the device of this name.
    pub(crate) fn of(device: &str) -> Self {
        let tree = std::env::var_os(TREE).filter(|tree| !tree.is_empty());
        SystemCounters::below(tree.as_deref(), device)
    }

    fn below(tree: Option<&OsStr>, device: &str) -> Self {
        let port = |tree: &OsStr| {
            Path::new(tree)
                .join("sys/class/infiniband")
                .join(device)
                .join("ports/1")
        };
        SystemCounters {
            directory: tree.map(port).filter(|port| port.is_dir()),
            told: Mutex::new(Counters::default()),
        }
    }

    /// Whether there is anybody to tell.
    pub(crate) fn are_shown(&self) -> bool {
        self.directory.is_some()
    }

    /// Add what has been counted since the last time. A file that cannot be written tells less.
    pub(crate) fn tell(&self, counted: &Counters) {
        let Some(directory) = &self.directory else { return };
        let mut told = self.told.lock();
        for (name, more) in since(&told, counted) {
            if more > 0 {
                let _ = add(&directory.join(name), more);
            }
        }
        *told = *counted;
    }
}

/// How much each file has to grow. Files that are not there (counters that the kernel does not have) are none.
fn since(told: &Counters, counted: &Counters) -> impl Iterator<Item = (String, u64)> {
    // Data is counted in words of four bytes (IBA 16.1.3.5, PortXmitData).
    let words = |bytes: fn(&Counters) -> u64| (bytes(counted) / 4).saturating_sub(bytes(told) / 4);
    let packets = |of: fn(&Counters) -> u64| of(counted).saturating_sub(of(told));
    let port = [
        ("port_xmit_data", words(|all| all.sent_bytes)),
        ("port_rcv_data", words(|all| all.rcvd_bytes)),
        ("port_xmit_packets", packets(|all| all.sent_pkts)),
        ("port_rcv_packets", packets(|all| all.rcvd_pkts)),
        (
            "port_rcv_errors",
            packets(|all| all.icrc_errors + all.dropped_malformed),
        ),
        ("link_downed", packets(|all| all.link_downed)),
    ];
    let driver = told.iter().zip(counted.iter());
    port.into_iter()
        .map(|(name, more)| (format!("counters/{name}"), more))
        .chain(
            driver.map(|((name, before), (_, now))| {
                (format!("hw_counters/{name}"), now.saturating_sub(before))
            }),
        )
}

fn add(path: &Path, more: u64) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    // Other processes add, too. It is let go when the file closes.
    file.lock()?;
    let value = read(&file)?.saturating_add(more);
    // Never shorter than before.
    file.write_all_at(format!("{value}\n").as_bytes(), 0)
}

fn read(mut file: &File) -> io::Result<u64> {
    const DIGITS_MAX: u64 = 24;
    let mut text = String::new();
    file.by_ref().take(DIGITS_MAX).read_to_string(&mut text)?;
    text.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_several_processes_count_is_added_up() {
        let tree = std::env::temp_dir().join(format!("counters-{}", std::process::id()));
        let port = tree.join("sys/class/infiniband/card0/ports/1");
        for name in ["counters/port_xmit_data", "hw_counters/sent_pkts"] {
            let file = port.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "7\n").unwrap();
        }
        let counted = |packets| Counters {
            sent_pkts: packets,
            sent_bytes: 4 * packets + 2,
            rcvd_pkts: 1,
            ..Counters::default()
        };
        let of = || SystemCounters::below(Some(tree.as_os_str()), "card0");
        let (one, two) = (of(), of());
        one.tell(&counted(10));
        one.tell(&counted(15));
        two.tell(&counted(100));
        let text = |name: &str| fs::read_to_string(port.join(name)).unwrap();
        assert_eq!(text("hw_counters/sent_pkts"), "122\n");
        assert_eq!(text("counters/port_xmit_data"), "122\n");
        assert!(!SystemCounters::below(Some(tree.as_os_str()), "card1").are_shown());
        fs::remove_dir_all(tree).unwrap();
    }
}
