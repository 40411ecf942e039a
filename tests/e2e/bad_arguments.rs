//! What goes wrong is said clearly: a message that names the cause, a status other than 0, and no hang.

use std::net::{IpAddr, Ipv4Addr, TcpListener, UdpSocket};
use std::time::Duration;

use e2e::bed::{NOBODY, needs_root};
use e2e::listening::wait_for_traffic;
use e2e::{Bed, Case, Finished, Outcome, Stop, softroce};
use nix::sys::signal::Signal;

use crate::pingpong::{Talk, free_port, one_end_refuses};

/// Longer than any retry budget or connect limit, and still no hang.
const LIMIT: Duration = Duration::from_secs(90);
const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// A command line that must be refused, and what its error must name.
const REFUSED: &[(&str, &[&str], &[&str])] = &[
    ("an unknown command", &["pongping"], &["pongping"]),
    (
        "a host that is no address",
        &["pingpong", "256.0.0.1.example.invalid"],
        &["256.0.0.1.example.invalid"],
    ),
    (
        "a host where nobody listens",
        &["pingpong", "--port", "1", "127.0.0.1"],
        &["127.0.0.1", "1"],
    ),
    (
        "an mtu that rdma lacks",
        &["pingpong", "--mtu", "1000", "127.0.0.1"],
        &["1000"],
    ),
    (
        "an mtu of zero",
        &["pingpong", "--mtu", "0", "127.0.0.1"],
        &["mtu"],
    ),
    (
        "a negative size",
        &["pingpong", "--size=-1", "127.0.0.1"],
        &["-1"],
    ),
    (
        "a size beyond the largest message",
        &["pingpong", "--size", "4294967296", "127.0.0.1"],
        &["4294967296"],
    ),
    (
        "a size that is no number",
        &["pingpong", "--size", "many", "127.0.0.1"],
        &["many"],
    ),
    (
        "no iterations",
        &["pingpong", "--iters", "0", "127.0.0.1"],
        &["0"],
    ),
    (
        "a port beyond 65535",
        &["pingpong", "--port", "65536", "127.0.0.1"],
        &["65536"],
    ),
    (
        "a device address of another machine",
        &["pingpong", "--device-address", "192.0.2.77"],
        &["192.0.2.77"],
    ),
    (
        "a broadcast address as the device's",
        &["pingpong", "--device-address", "127.255.255.255"],
        &["127.255.255.255"],
    ),
    (
        "a group address as the device's",
        &["pingpong", "--device-address", "224.0.0.1"],
        &["224.0.0.1"],
    ),
    ("port 0", &["pingpong", "--port", "0"], &["--port", "0"]),
    (
        "several queue pairs for a latency",
        &["perf", "send", "lat", "--qps", "2"],
        &["--qps 2"],
    ),
    (
        "a transport that does not exist",
        &["pingpong", "--transport", "tcp", "127.0.0.1"],
        &["tcp"],
    ),
    (
        "a capture in a folder that does not exist",
        &["pingpong", "--capture", "/nonexistent/folder/capture.pcapng"],
        &["/nonexistent/folder/capture.pcapng"],
    ),
    (
        "a capture of a missing file",
        &["decode", "/nonexistent/file.pcap"],
        &["/nonexistent/file.pcap"],
    ),
    ("a capture that is a folder", &["decode", "/"], &["/"]),
    (
        "a program that does not exist",
        &["run", "--", "/nonexistent/program"],
        &["/nonexistent/program"],
    ),
    ("nothing to run", &["run"], &["program"]),
    (
        "a bed that does not exist",
        &["conformance", "--bed", "water"],
        &["water"],
    ),
    (
        "a format that does not exist",
        &["conformance", "--format", "pdf"],
        &["pdf"],
    ),
    (
        "a filter that fits no case to list",
        &["conformance", "--list", "--filter", "NOSUCH"],
        &["no case"],
    ),
    (
        "a perf operation that does not exist",
        &["perf", "juggle", "lat"],
        &["juggle"],
    ),
];

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = REFUSED
        .iter()
        .map(|&(what, arguments, names)| {
            Case::new(format!("{what} is refused with a clear error"), move || {
                run(&Bed::loopback()?, arguments)?.refused_naming(names)
            })
        })
        .collect();
    cases.extend([
        Case::new(
            "a capture that may not be written is refused before anything starts",
            unwritable_capture,
        ),
        Case::new("a text file is refused as a capture", text_as_capture),
        Case::new(
            "a pingpong server and a perf client tell each other apart",
            || {
                disagreeing_ends(
                    (&["pingpong"], &["pingpong", "perf"]),
                    (&["perf", "send", "lat"], &["pingpong", "perf"]),
                )
            },
        ),
        Case::new(
            "a pingpong server that was told another transport than its client says so",
            || {
                disagreeing_ends(
                    (&["pingpong", "--transport", "uc"], &["--transport", "uc", "ud"]),
                    (&["pingpong", "--transport", "ud"], &["peer"]),
                )
            },
        ),
        Case::new(
            "a perf server that was told another transport than its client says so",
            || {
                disagreeing_ends(
                    (
                        &["perf", "send", "bw", "--transport", "rc"],
                        &["--transport", "rc", "ud"],
                    ),
                    (&["perf", "send", "bw", "--transport", "ud"], &["peer"]),
                )
            },
        ),
        Case::new("an empty file is refused as a capture", empty_capture),
        Case::new(
            "a capture that is cut short is decoded up to the cut and reported",
            truncated_capture,
        ),
        Case::new("a tcp port in use is refused by number", tcp_port_in_use),
        Case::new(
            "a roce port held by another program is refused with its cause",
            roce_port_in_use,
        ),
        Case::new(
            "an mtu above that of the interface is refused with both values",
            mtu_above_interface,
        ),
        Case::new("an address without a route is refused by name", no_route),
        Case::new("a server whose client vanishes ends with an error", || {
            vanishing(End::Client)
        }),
        Case::new("a client whose server vanishes ends with an error", || {
            vanishing(End::Server)
        }),
        Case::new(
            "a server that is called by something else goes on or ends with an error",
            stray_caller,
        ),
    ]);
    cases
}

fn run(bed: &Bed, arguments: &[&str]) -> Result<Finished, Stop> {
    bed.program(&bed.here, [softroce()?.as_os_str()])
        .args(arguments)
        .finish(LIMIT)
}

fn unwritable_capture() -> Outcome {
    needs_root("own a file that the program may not write")?;
    let bed = Bed::loopback()?;
    let capture = bed.scratch.file("not-yours.pcapng");
    std::fs::write(&capture, b"")?;
    let name = capture.to_string_lossy();
    run(&bed, &["pingpong", "--capture", &name])?.refused_naming(&[&name])
}

fn text_as_capture() -> Outcome {
    let bed = Bed::loopback()?;
    let file = bed.scratch.file("letter.txt");
    std::fs::write(
        &file,
        "Dear reader, this is no capture at all, only some words in a file.\n",
    )?;
    let name = file.to_string_lossy();
    run(&bed, &["decode", &name])?.refused_naming(&[&name])
}

fn empty_capture() -> Outcome {
    run(&Bed::loopback()?, &["decode", "/dev/null"])?.refused_naming(&["/dev/null", "empty"])
}

fn truncated_capture() -> Outcome {
    let bed = Bed::loopback()?;
    let whole = e2e::program::repository().join("tests/data/pcaps/golden-1024/rc_send_3072.pcap");
    let mut bytes = std::fs::read(whole)?;
    bytes.truncate(bytes.len() - 10);
    let file = bed.scratch.file("cut.pcap");
    std::fs::write(&file, bytes)?;
    let finished = run(&bed, &["decode", &file.to_string_lossy()])?;
    let packets = finished
        .stdout
        .lines()
        .filter(|line| line.contains("203.0.113.1"))
        .count();
    e2e::case::ensure(packets == 3, || {
        format!("the three whole packets should be shown: {finished}")
    })?;
    finished.refused_naming(&["cut.pcap"])
}

fn tcp_port_in_use() -> Outcome {
    let bed = Bed::loopback()?;
    let holder = bed
        .here
        .inside(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    let port = holder.local_addr()?.port().to_string();
    run(&bed, &["pingpong", "--port", &port])?.refused_naming(&[&port])
}

/// A socket that does not share the port stands for the kernel's own RoCE driver, which does not either.
fn roce_port_in_use() -> Outcome {
    let bed = Bed::loopback()?;
    let holder = bed
        .here
        .inside(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 4791)))?;
    let holder = holder.map_err(|error| Stop::Skip(format!("UDP port 4791 is in use here: {error}")))?;
    one_end_refuses(&bed, NOBODY, &[], &["127.0.0.1"], &["4791"])?;
    drop(holder);
    Ok(())
}

fn mtu_above_interface() -> Outcome {
    needs_root("set an interface's MTU")?;
    let bed = Bed::loopback()?;
    bed.here.set_up(&["ip", "link", "set", "lo", "mtu", "1500"])?;
    one_end_refuses(
        &bed,
        NOBODY,
        &["--mtu", "4096"],
        &["--mtu", "4096", "127.0.0.1"],
        &["4096", "1024"],
    )
    .map(drop)
}

fn no_route() -> Outcome {
    needs_root("make a network without routes")?;
    let bed = Bed::loopback()?;
    run(&bed, &["pingpong", "198.51.100.77"])?.refused_naming(&["198.51.100.77"])
}

/// Which end of a conversation.
#[derive(Clone, Copy)]
enum End {
    Server,
    Client,
}

fn vanishing(end: End) -> Outcome {
    let bed = Bed::loopback()?;
    let talk = Talk {
        iterations: 1_000_000_000,
        ..Talk::with(LOCALHOST)
    };
    let server = talk.start_server(&bed, &bed.here, &[])?;
    let client = talk.start_client(&bed, &bed.here, &[])?;
    wait_for_traffic(&server)?;
    let (vanishes, stays) = match end {
        End::Server => (server, client),
        End::Client => (client, server),
    };
    vanishes.signal(Signal::SIGKILL)?;
    stays.wait(LIMIT)?.refused_naming(&[])
}

/// Both ends are refused: the words that start each, and what its error must name.
fn disagreeing_ends(server: (&[&str], &[&str]), client: (&[&str], &[&str])) -> Outcome {
    let bed = Bed::loopback()?;
    let port = free_port().to_string();
    let start = |words: &[&str], more: &[&str]| {
        bed.program(&bed.here, [softroce()?])
            .args(words)
            .args(["--port", &port])
            .args(more)
            .start()
    };
    let serving = start(server.0, &[])?;
    let calling = start(client.0, &["127.0.0.1"])?;
    serving.wait(LIMIT)?.refused_naming(server.1)?;
    calling.wait(LIMIT)?.refused_naming(client.1)
}

/// Something connects to the rendezvous, sends what is no greeting, and goes away.
fn stray_caller() -> Outcome {
    use std::io::Write;
    let bed = Bed::loopback()?;
    let talk = Talk::with(LOCALHOST);
    let server = talk.start_server(&bed, &bed.here, &[])?;
    let called = bed.here.inside(|| -> std::io::Result<()> {
        let mut stray = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, talk.port))?;
        stray.write_all(b"GET / HTTP/1.0\r\n\r\n")
    })?;
    called?;
    std::thread::sleep(Duration::from_millis(300));
    if !server.has_ended() {
        // It goes on: then a real client is served.
        talk.start_client(&bed, &bed.here, &[])?
            .wait(LIMIT)?
            .succeeded()?;
        return server.wait(LIMIT)?.succeeded();
    }
    server.wait(LIMIT)?.refused_naming(&[])
}
