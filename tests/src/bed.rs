//! Where processes run: network namespaces of their own when root, else the machine's own network.
//!
//! Programs under test always run unprivileged: as root they are started as user and group 65534 (nobody).

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

use crate::case::{Outcome, Stop};
use crate::process::Program;
use crate::scratch::Scratch;

/// The user that programs under test run as when the tests run as root.
pub const NOBODY: u32 = 65534;

/// How long a command that sets something up may take.
const SETUP_LIMIT: Duration = Duration::from_secs(20);

/// Whether the tests run as root.
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// A network that a process lives in.
#[derive(Debug)]
pub enum Place {
    /// The machine's own.
    Host,
    /// A network namespace of this test, by name; removed when dropped.
    Namespace(String),
}

impl Place {
    fn namespace() -> Result<Self, Stop> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("softroce-{}-{number}", std::process::id());
        set_up(&["ip", "netns", "add", &name])?;
        let place = Place::Namespace(name);
        place.set_up(&["ip", "link", "set", "lo", "up"])?;
        Ok(place)
    }

    /// Runs a command that configures this place, as the tests' own user.
    pub fn set_up(&self, words: &[&str]) -> Outcome {
        match self {
            Place::Host => set_up(words),
            Place::Namespace(name) => {
                let mut line = vec!["ip", "netns", "exec", name.as_str()];
                line.extend_from_slice(words);
                set_up(&line)
            }
        }
    }

    /// Runs `work` with this thread of its own inside the place: a socket made there stays there.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Stop> {
        let path = match self {
            Place::Host => None,
            Place::Namespace(name) => Some(PathBuf::from("/run/netns").join(name)),
        };
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || -> Result<T, Stop> {
                if let Some(path) = path {
                    let namespace = std::fs::File::open(path)?;
                    setns(namespace, CloneFlags::CLONE_NEWNET)
                        .map_err(|error| Stop::Fail(format!("setns: {error}")))?;
                }
                Ok(work())
            });
            thread
                .join()
                .unwrap_or_else(|_| Err(Stop::fail("a helper thread panicked")))
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Place::Namespace(name) = self {
            let _ = set_up(&["ip", "netns", "del", name]);
        }
    }
}

/// One test's surroundings: one place, or two that a wire joins, and a directory.
#[derive(Debug)]
pub struct Bed {
    /// Where the first process (the server) runs.
    pub here: Place,
    /// Where its peer runs, if not in the same place.
    there: Option<Place>,
    /// Files of this test.
    pub scratch: Scratch,
}

impl Bed {
    /// One place with nothing but a loopback interface: a new namespace when root, else the machine's own.
    pub fn loopback() -> Result<Self, Stop> {
        let here = if is_root() {
            Place::namespace()?
        } else {
            Place::Host
        };
        Ok(Bed {
            here,
            there: None,
            scratch: Scratch::new()?,
        })
    }

    /// Two namespaces joined by a veth pair of this MTU in bytes, [`Bed::WIRE_HERE`] and [`Bed::WIRE_THERE`].
    pub fn wire(mtu: u32) -> Result<Self, Stop> {
        if !is_root() {
            return Err(Stop::skip("only root can make network namespaces"));
        }
        let (here, there) = (Place::namespace()?, Place::namespace()?);
        let Place::Namespace(peer) = &there else {
            return Err(Stop::fail("no namespace"));
        };
        let mtu = mtu.to_string();
        here.set_up(&[
            "ip", "link", "add", "wire0", "type", "veth", "peer", "name", "wire0", "netns", peer,
        ])?;
        for (place, v4, v6) in [
            (&here, Self::WIRE_HERE, Self::WIRE_HERE_V6),
            (&there, Self::WIRE_THERE, Self::WIRE_THERE_V6),
        ] {
            place.set_up(&["ip", "addr", "add", &format!("{v4}/24"), "dev", "wire0"])?;
            if has_ipv6() {
                place.set_up(&["ip", "addr", "add", &format!("{v6}/64"), "dev", "wire0", "nodad"])?;
            }
            place.set_up(&["ip", "link", "set", "wire0", "mtu", &mtu, "up"])?;
        }
        Ok(Bed {
            here,
            there: Some(there),
            scratch: Scratch::new()?,
        })
    }

    /// The first end of [`Bed::wire`].
    pub const WIRE_HERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
    /// The second end of [`Bed::wire`].
    pub const WIRE_THERE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
    /// The first end of [`Bed::wire`] in IPv6.
    pub const WIRE_HERE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
    /// The second end of [`Bed::wire`] in IPv6.
    pub const WIRE_THERE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);

    /// Where the peer of a process in [`Bed::here`] runs.
    pub fn there(&self) -> &Place {
        self.there.as_ref().unwrap_or(&self.here)
    }

    /// An unprivileged program in `place`.
    pub fn program<W: AsRef<OsStr>>(&self, place: &Place, words: impl IntoIterator<Item = W>) -> Program {
        self.program_as(place, NOBODY, words)
    }

    /// A program in `place` as this user (and the group of the same number); only root can choose, else the
    /// tests' own user runs it.
    pub fn program_as<W: AsRef<OsStr>>(
        &self,
        place: &Place,
        user: u32,
        words: impl IntoIterator<Item = W>,
    ) -> Program {
        self.program_behind(&[], place, user, words)
    }

    /// An unprivileged program in `place` that can make no user namespace, as on machines that forbid them. Only root can
    /// set that up.
    pub fn program_without_user_namespaces<W: AsRef<OsStr>>(
        &self,
        place: &Place,
        words: impl IntoIterator<Item = W>,
    ) -> Program {
        let script = include_str!("without_user_namespaces.sh");
        self.program_behind(&["sh", "-c", script, "sh"], place, NOBODY, words)
    }

    /// A program in `place` as this user, started by the `starter` there.
    fn program_behind<W: AsRef<OsStr>>(
        &self,
        starter: &[&str],
        place: &Place,
        user: u32,
        words: impl IntoIterator<Item = W>,
    ) -> Program {
        let mut line: Vec<OsString> = Vec::new();
        if let Place::Namespace(name) = place {
            line.extend(["ip", "netns", "exec", name.as_str()].map(OsString::from));
        }
        line.extend(starter.iter().map(OsString::from));
        if is_root() {
            let user = user.to_string();
            let words = [
                "setpriv",
                "--reuid",
                &user,
                "--regid",
                &user,
                "--clear-groups",
                "--",
            ];
            line.extend(words.map(OsString::from));
        }
        line.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        Program::new(&self.scratch, line)
    }
}

/// Whether this kernel has IPv6.
pub fn has_ipv6() -> bool {
    std::path::Path::new("/proc/net/if_inet6").exists()
}

/// Skips the case on a machine without a loopback address of this family.
pub fn needs_address(address: IpAddr) -> Outcome {
    if address.is_ipv6() && !has_ipv6() {
        Err(Stop::skip("this kernel has no IPv6"))
    } else {
        Ok(())
    }
}

/// Skips the case unless the tests run as root.
pub fn needs_root(what_for: &str) -> Outcome {
    if is_root() {
        Ok(())
    } else {
        Err(Stop::Skip(format!("only root can {what_for}")))
    }
}

/// Skips the case unless `program` (of Debian's `package`) is installed.
pub fn needs_program(program: &str, package: &str) -> Outcome {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .chain(["/usr/sbin", "/sbin"].map(PathBuf::from))
        .any(|directory| directory.join(program).is_file());
    if found {
        Ok(())
    } else {
        Err(Stop::Skip(format!(
            "{program} is not installed (package {package})"
        )))
    }
}

fn set_up(words: &[&str]) -> Outcome {
    let scratch = Scratch::new()?;
    Program::new(&scratch, words).finish(SETUP_LIMIT)?.succeeded()
}
