//! The programs that come with librdmacm for its sockets, unmodified, on softroce.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use e2e::bed::{has_ipv6, needs_program};
use e2e::case::ensure;
use e2e::compiled::compile;
use e2e::program::repository;
use e2e::{Bed, Case, Finished, Outcome, Program, Running, Stop, softroce};

const LIMIT: Duration = Duration::from_secs(60);
/// So long a server may take to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two attempts to reach a server that does not listen yet.
const PAUSE: Duration = Duration::from_millis(50);
const PORT: &str = "7471";
const FAMILIES: [(&str, IpAddr); 2] = [
    ("IPv4", IpAddr::V4(Ipv4Addr::LOCALHOST)),
    ("IPv6", IpAddr::V6(Ipv6Addr::LOCALHOST)),
];

/// Of rstream, and how a sentence says it. With `-T v` it checks every byte.
const STREAMS: [(&str, &str); 9] = [
    ("with verification", "-I 20 -C 20 -S 1000 -T v"),
    ("asynchronously", "-I 20 -C 20 -S 1000 -T a -T v"),
    ("blocking", "-I 20 -C 20 -S 1000 -T b -T v"),
    ("nonblocking", "-I 20 -C 20 -S 1000 -T n -T v"),
    ("resolving by rdma cm", "-I 20 -C 20 -S 1000 -T r -T v"),
    ("with small buffers", "-I 1 -C 3 -S 30000 -B 4000 -T v"),
    ("with large messages", "-I 3 -C 3 -S 3000000 -T v"),
    ("of all sizes", "-I 1 -C 2 -S all"),
    ("with keepalive and inline data", "-I 10 -C 10 -S 200 -k 1 -i 256"),
];

/// Of riostream.
const DIRECT_STREAMS: [(&str, &str); 4] = [
    ("with verification", "-I 20 -C 5 -S 1000 -T v"),
    ("asynchronously", "-I 20 -C 5 -S 1000 -T a"),
    ("nonblocking", "-I 20 -C 5 -S 1000 -T n"),
    ("with large messages", "-I 3 -C 2 -S 1000000 -T b"),
];

/// Of udpong.
const DATAGRAMS: [(&str, &str); 4] = [
    ("blocking", "-C 50 -S 1000 -T b"),
    ("asynchronously", "-C 50 -S 1000 -T a"),
    ("nonblocking", "-C 50 -S 64 -T n"),
    ("echoed", "-C 50 -S 2000 -T e"),
];

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (family, address) in FAMILIES {
        for (program, ways) in [
            ("rstream", &STREAMS[..]),
            ("riostream", &DIRECT_STREAMS[..]),
            ("udpong", &DATAGRAMS[..]),
        ] {
            // Over IPv6 the same code runs but for the addresses.
            let most = if address.is_ipv6() { 2 } else { ways.len() };
            for (how, options) in &ways[..most] {
                let sentence = format!("{program} on rsockets runs {how} over {family}");
                cases.push(Case::new(sentence, move || {
                    both_ends(address, program, options, None)
                }));
            }
        }
    }
    // Its server binds to addresses of IPv4 alone.
    cases.push(Case::new("rcopy on rsockets copies a file", copy));
    cases.push(Case::new("rstream beside rsockets forks", || {
        both_ends(FAMILIES[0].1, "rstream", "-I 5 -C 5 -S 1000 -T f", None)
    }));
    cases.push(Case::new(
        "rstream on rsockets is right although packets are lost",
        || {
            let rules = "[[packet]]\nprobability = \"1 %\"\ndo = \"drop\"\n";
            both_ends(FAMILIES[0].1, "rstream", "-I 5 -C 20 -S 20000 -T v", Some(rules))
        },
    ));
    cases.push(Case::new(
        "each call of rsockets does what its manual says",
        || calls("calls"),
    ));
    cases.push(Case::new(
        "who waits on an rsocket whose peer is killed is told",
        || calls("killed"),
    ));
    cases
}

/// A place with a card on the address, or on which there is none.
fn bed(address: IpAddr) -> Result<Bed, Stop> {
    needs_program("rstream", "rdmacm-utils")?;
    if address.is_ipv6() && !has_ipv6() {
        return Err(Stop::skip("there is no IPv6 here"));
    }
    Bed::loopback()
}

fn program(bed: &Bed, address: IpAddr, words: &[&str]) -> Result<Program, Stop> {
    Ok(bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--"])
        .args(words)
        .variable("SOFTROCE_ADDRESS", address.to_string()))
}

/// A client that calls until the server listens: while it does not, all of them fail, each with words of its own.
fn call(server: &Running, client: impl Fn() -> Result<Program, Stop>) -> Result<Finished, Stop> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let finished = client()?.finish(LIMIT)?;
        if finished.code() == Some(0) || Instant::now() > deadline || server.has_ended() {
            return Ok(finished);
        }
        std::thread::sleep(PAUSE);
    }
}

/// A program as server and client with the same options.
fn both_ends(address: IpAddr, name: &str, options: &str, rules: Option<&str>) -> Outcome {
    let bed = bed(address)?;
    let place = address.to_string();
    let with = |first: [&str; 3]| {
        let words: Vec<&str> = first.into_iter().chain(options.split(' ')).collect();
        let program = program(&bed, address, &words)?;
        let Some(rules) = rules else { return Ok(program) };
        let file = bed.scratch.file("rules.toml");
        fs::write(&file, rules)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
        Ok(program.variable("SOFTROCE_FAULTS", file))
    };
    let server = with([name, "-b", &place])?.start()?;
    let client = call(&server, || with([name, "-s", &place]))?;
    client.succeeded()?;
    let mut told = vec![format!("{client}")];
    match name {
        // It serves on and on.
        "udpong" => told.push(server.report()),
        _ => {
            let server = server.wait(LIMIT)?;
            server.succeeded()?;
            told.push(format!("{server}"));
        }
    }
    for end in told {
        // Verification complains on standard error and goes on.
        for bad in ["verification", "failed", "error", "panicked"] {
            ensure(!end.contains(bad), || format!("`{bad}`: {end}"))?;
        }
    }
    Ok(())
}

fn copy() -> Outcome {
    let address = FAMILIES[0].1;
    let bed = bed(address)?;
    const BYTES: usize = 5_000_011;
    let data: Vec<u8> = (0..BYTES).map(|at| (at ^ (at >> 8) ^ (at >> 16)) as u8).collect();
    let (from, to) = (bed.scratch.file("from"), bed.scratch.file("to"));
    fs::write(&from, &data)?;
    // The server, which is not root, writes it.
    fs::write(&to, b"")?;
    for (file, mode) in [(&from, 0o644), (&to, 0o666)] {
        fs::set_permissions(file, fs::Permissions::from_mode(mode))?;
    }
    let from = from.to_string_lossy().into_owned();
    let target = format!("{address}:{}", to.display());
    let server = program(&bed, address, &["rcopy", "-p", PORT])?.start()?;
    let client = call(&server, || {
        program(&bed, address, &["rcopy", &from, &target, "-p", PORT])
    })?;
    client.succeeded()?;
    ensure(fs::read(&to)? == data, || {
        format!("the copy differs.\n{client}\n{}", server.report())
    })
}

/// A part of `tests/programs/rsockets.c`.
fn calls(part: &str) -> Outcome {
    const HEADER: &str = "/usr/include/rdma/rsocket.h";
    let address = FAMILIES[0].1;
    let bed = bed(address)?;
    if !Path::new(HEADER).exists() {
        return Err(Stop::skip(format!("{HEADER} is missing (package librdmacm-dev)")));
    }
    let source = repository().join("tests/programs/rsockets.c");
    let options = [
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        // Named before what needs it.
        "-Wl,--no-as-needed",
        "-lrdmacm",
    ];
    let compiled = compile(&bed.scratch, &source, "gcc", &options)?;
    let words = [&compiled.to_string_lossy(), "127.0.0.1", part];
    program(&bed, address, &words)?.finish(LIMIT)?.succeeded()
}
