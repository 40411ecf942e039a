//! `softroce pingpong` between two unprivileged processes: every byte right, on loopback and across a wire.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};
use std::path::Path;
use std::time::Duration;

use e2e::bed::needs_address;
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Case, Finished, Outcome, Place, Running, Stop, softroce};

const SIZES: [u32; 7] = [0, 1, 63, 1024, 4097, 65536, 1_048_576];
const LIMIT: Duration = Duration::from_secs(60);

/// How a process waits for completions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// `poll_cq` in a loop.
    Polling,
    /// Sleeping until the completion channel's event.
    Events,
}

/// One conversation.
#[derive(Debug, Clone)]
pub struct Talk {
    /// Bytes in each message.
    pub size: u32,
    /// Exchanges.
    pub iterations: u32,
    /// How both ends wait.
    pub waiting: Waiting,
    /// The server's address, by which the client calls it.
    pub server: IpAddr,
    /// TCP port of the rendezvous.
    pub port: u16,
    /// The service, as `--transport` names it.
    pub transport: &'static str,
}

impl Talk {
    /// A short conversation with the server at `server`.
    pub fn with(server: IpAddr) -> Self {
        Talk {
            size: 1024,
            iterations: 100,
            waiting: Waiting::Polling,
            server,
            port: free_port(),
            transport: "rc",
        }
    }

    /// The command line of one end, without the host.
    fn words(&self, softroce: &Path) -> Vec<OsString> {
        let mut words: Vec<OsString> = vec![softroce.into(), "pingpong".into(), "--check".into()];
        for (name, value) in [
            ("--size", self.size),
            ("--iters", self.iterations),
            ("--port", self.port.into()),
        ] {
            words.extend([name.into(), value.to_string().into()]);
        }
        words.extend(["--transport".into(), self.transport.into()]);
        if self.waiting == Waiting::Events {
            words.push("--events".into());
        }
        words
    }

    /// Starts the server, and returns once it listens.
    pub fn start_server(&self, bed: &Bed, place: &Place, more: &[&str]) -> Result<Running, Stop> {
        let server = bed.program(place, self.words(softroce()?)).args(more).start()?;
        wait_for_listener(&server, self.port)?;
        Ok(server)
    }

    /// Starts the client.
    pub fn start_client(&self, bed: &Bed, place: &Place, more: &[&str]) -> Result<Running, Stop> {
        let host = self.server.to_string();
        bed.program(place, self.words(softroce()?))
            .args(more)
            .args([host])
            .start()
    }

    /// Both ends to their successful end.
    pub fn run(&self, bed: &Bed) -> Outcome {
        let server = self.start_server(bed, &bed.here, &[])?;
        let client = self.start_client(bed, bed.there(), &[])?.wait(LIMIT);
        let client = client.map_err(|stop| with_other_end(stop, &server))?;
        if client.code() != Some(0) {
            return Err(Stop::Fail(format!(
                "the client failed: {client}\nthe server:\n{}",
                server.report()
            )));
        }
        let server = server.wait(LIMIT)?;
        server.succeeded()?;
        tells_its_speed(&client)?;
        tells_its_speed(&server)
    }
}

fn with_other_end(stop: Stop, other: &Running) -> Stop {
    match stop {
        Stop::Fail(message) => Stop::Fail(format!("{message}\nthe other end:\n{}", other.report())),
        skip @ Stop::Skip(_) => skip,
    }
}

/// Both ends print bytes, Mbit/s and microseconds an iteration.
fn tells_its_speed(end: &Finished) -> Outcome {
    let says = |words: &[&str]| words.iter().any(|word| end.stdout.contains(word));
    let complete = says(&["bytes"]) && says(&["Mbit/s"]) && says(&["µs", "us", "usec"]);
    ensure(complete, || {
        format!("stdout should tell bytes, Mbit/s and µs an iteration: {end}")
    })
}

/// A server and then its client with these arguments: one of both must refuse, naming each of `words`.
///
/// Which one finds out first is not promised, and nobody calls a server that refused. Returns the one that did.
pub fn one_end_refuses(
    bed: &Bed,
    user: u32,
    server_arguments: &[&str],
    client_arguments: &[&str],
    words: &[&str],
) -> Result<Finished, Stop> {
    let port = free_port();
    let start = |arguments: &[&str]| -> Result<Running, Stop> {
        let program = bed.program_as(&bed.here, user, [softroce()?.as_os_str()]);
        program
            .args(["pingpong", "--port", &port.to_string()])
            .args(arguments)
            .start()
    };
    let server = start(server_arguments)?;
    if wait_for_listener(&server, port).is_err() {
        let server = server.wait(LIMIT)?;
        return server.refused_naming(words).map(|()| server);
    }
    let client = start(client_arguments)?.wait(LIMIT)?;
    let Err(why) = client.refused_naming(words) else {
        return Ok(client);
    };
    if !server.has_ended() {
        return Err(why);
    }
    let server = server.wait(LIMIT)?;
    let neither = |_| {
        Stop::Fail(format!(
            "neither end names {words:?}.\nserver: {server}\nclient: {client}"
        ))
    };
    server.refused_naming(words).map_err(neither)?;
    Ok(server)
}

/// A TCP port that nobody uses now.
pub fn free_port() -> u16 {
    let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|socket| socket.local_addr());
    taken.map_or(18_515, |address| address.port())
}

/// Every size, polling and with events, over each path.
pub fn cases() -> Vec<Case> {
    let loopback = [
        ("IPv4 loopback", IpAddr::V4(Ipv4Addr::LOCALHOST)),
        ("IPv6 loopback", IpAddr::V6(Ipv6Addr::LOCALHOST)),
    ];
    let mut cases = Vec::new();
    for (waiting, how) in [
        (Waiting::Polling, "polled"),
        (Waiting::Events, "awaited by events"),
    ] {
        for size in SIZES {
            for (path, server) in loopback {
                cases.push(case(size, waiting, how, path, server, Bed::loopback));
            }
            cases.push(case(
                size,
                waiting,
                how,
                "a wire of MTU 1500",
                Bed::WIRE_HERE.into(),
                || Bed::wire(1500),
            ));
            cases.push(case(
                size,
                waiting,
                how,
                "a wire of MTU 9000",
                Bed::WIRE_HERE.into(),
                || Bed::wire(9000),
            ));
            cases.push(case(
                size,
                waiting,
                how,
                "a wire in IPv6",
                Bed::WIRE_HERE_V6.into(),
                || Bed::wire(1500),
            ));
        }
    }
    for transport in ["uc", "ud", "srq", "xrc"] {
        for (waiting, how) in [
            (Waiting::Polling, "polled"),
            (Waiting::Events, "awaited by events"),
        ] {
            for (path, server, mtu) in [
                ("IPv4 loopback", loopback[0].1, None),
                ("IPv6 loopback", loopback[1].1, None),
                ("a wire of MTU 1500", Bed::WIRE_HERE.into(), Some(1500)),
                ("a wire of MTU 9000", Bed::WIRE_HERE.into(), Some(9000)),
                ("a wire in IPv6", Bed::WIRE_HERE_V6.into(), Some(1500)),
            ] {
                let name =
                    format!("pingpong over {transport} {how} over {path} has no wrong byte in any size");
                cases.push(Case::new(name, move || {
                    needs_address(server)?;
                    let bed = mtu.map_or_else(Bed::loopback, Bed::wire)?;
                    every_size(&bed, transport, waiting, server)
                }));
            }
        }
    }
    cases
}

/// One conversation after another; a datagram is one packet at most, of 1,024 bytes over each path.
fn every_size(bed: &Bed, transport: &'static str, waiting: Waiting, server: IpAddr) -> Outcome {
    let longest = if transport == "ud" { 1024 } else { u32::MAX };
    for size in SIZES.into_iter().filter(|size| *size <= longest) {
        let talk = Talk {
            size,
            iterations: if size > 100_000 { 10 } else { 100 },
            waiting,
            transport,
            ..Talk::with(server)
        };
        talk.run(bed)?;
    }
    Ok(())
}

fn case(
    size: u32,
    waiting: Waiting,
    how: &str,
    path: &str,
    server: IpAddr,
    bed: impl FnOnce() -> Result<Bed, Stop> + Send + 'static,
) -> Case {
    Case::new(
        format!("pingpong of {size} bytes {how} over {path} has no wrong byte"),
        move || {
            needs_address(server)?;
            let iterations = if size > 100_000 { 30 } else { 300 };
            Talk {
                size,
                iterations,
                waiting,
                ..Talk::with(server)
            }
            .run(&bed()?)
        },
    )
}
