//! Programs that connect through RDMA CM, unmodified: librdmacm of the drop-in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use e2e::bed::{needs_address, needs_program};
use e2e::case::ensure;
use e2e::listening::{CmPorts, has_cm_port, wait_for_cm_listener, wait_for_listener};
use e2e::process::{Finished, Running};
use e2e::program::readable_by_all;
use e2e::{Bed, Case, Outcome, Program, Stop, compiled, softroce};
use nix::sys::signal::Signal;

use crate::groups::wait_for_ipv6_groups;

const LIMIT: Duration = Duration::from_secs(40);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// How long the kernel may take to clear up after a process.
const AT_ONCE: Duration = Duration::from_secs(2);
const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
/// What UCX's packages leave as an example.
const UCX_EXAMPLE: &str = "/usr/share/doc/libucx-dev/examples/ucp_client_server.c";

/// Two programs that talk: `A` stands for the address.
struct Talk {
    server: &'static str,
    client: &'static str,
    ports: CmPorts,
    port: u16,
}

const fn talk(server: &'static str, client: &'static str, ports: CmPorts, port: u16) -> Talk {
    Talk {
        server,
        client,
        ports,
        port,
    }
}

/// rping's main options.
const RPING: [Talk; 5] = [
    talk(
        "rping -s -a A -v -C 5",
        "rping -c -a A -v -C 5",
        CmPorts::Tcp,
        7174,
    ),
    talk(
        "rping -s -V -C 10",
        "rping -c -a A -I A -V -C 10",
        CmPorts::Tcp,
        7174,
    ),
    talk(
        "rping -s -S 9000 -C 3 -p 9001",
        "rping -c -a A -S 9000 -C 3 -p 9001",
        CmPorts::Tcp,
        9001,
    ),
    talk(
        "rping -s -q -v -C 3",
        "rping -c -a A -q -v -C 3",
        CmPorts::Tcp,
        7174,
    ),
    talk(
        "rping -s -a A -d -C 1",
        "rping -c -a A -d -C 1",
        CmPorts::Tcp,
        7174,
    ),
];

/// The others of rdmacm-utils, with their main options.
const EXAMPLES: [Talk; 9] = [
    talk("ucmatose -f ip -b A", "ucmatose -f ip -s A", CmPorts::Tcp, 7471),
    talk(
        "ucmatose -b A -c 6 -C 12 -S 3000 -t 8 -p 9002 -m",
        "ucmatose -s A -b A -c 6 -C 12 -S 3000 -t 8 -p 9002 -m",
        CmPorts::Tcp,
        9002,
    ),
    talk(
        "ucmatose -b A -c 3 -P ib -a 15",
        "ucmatose -s A -c 3 -P ib -a 15",
        CmPorts::Ib,
        7471,
    ),
    talk("udaddy -b A", "udaddy -s A", CmPorts::Udp, 7174),
    talk(
        "udaddy -b A -c 4 -C 8 -S 900 -t 8",
        "udaddy -s A -c 4 -C 8 -S 900 -t 8",
        CmPorts::Udp,
        7174,
    ),
    talk("rdma_server -s A", "rdma_client -s A", CmPorts::Tcp, 7471),
    talk(
        "rdma_server -p 9004",
        "rdma_client -s A -p 9004",
        CmPorts::Tcp,
        9004,
    ),
    talk("rdma_xserver", "rdma_xclient -s A", CmPorts::Tcp, 7471),
    talk(
        "rdma_xserver -c x -p 9005",
        "rdma_xclient -s A -c x -p 9005",
        CmPorts::Ib,
        9005,
    ),
];

/// What of that has an option for the family, or needs none.
const IN_IPV6: [Talk; 5] = [
    talk(
        "rping -s -a A -v -C 5",
        "rping -c -a A -v -C 5",
        CmPorts::Tcp,
        7174,
    ),
    talk(
        "rping -s -a :: -V -C 5",
        "rping -c -a A -V -C 5",
        CmPorts::Tcp,
        7174,
    ),
    talk(
        "ucmatose -f ip6 -b A -c 3",
        "ucmatose -f ip6 -s A -c 3",
        CmPorts::Tcp,
        7471,
    ),
    talk("udaddy -b A", "udaddy -s A", CmPorts::Udp, 7174),
    talk("rdma_server -s A", "rdma_client -s A", CmPorts::Tcp, 7471),
];

/// perftest with `-R`: connections are made by RDMA CM, and so is the exchange of what both must know.
const PERFTEST: [&str; 9] = [
    "ib_send_lat -R -n 200",
    "ib_send_bw -R -n 500 -s 65536",
    "ib_write_lat -R -n 200",
    "ib_write_bw -R -n 500 -q 2",
    "ib_read_lat -R -n 200",
    "ib_read_bw -R -n 300 -b",
    "ib_send_lat -R -c UD -n 200",
    "ib_atomic_lat -R -n 100",
    "ib_send_bw -R -c UD -n 300 -T 32",
];

/// Of qperf's tests that know `-cm` (the connected ones) one of each kind; a second each is the least. The others ignore the
/// option and address by LID, which RoCE has not.
const QPERF: &str =
    "rc_lat rc_bi_bw rc_rdma_read_bw rc_rdma_write_poll_lat rc_fetch_add_mr ver_rc_compare_swap";

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new(
            "librdmacm keeps its promises about arguments descriptors and children",
            promises,
        ),
        Case::new(
            "after its device has failed every call of librdmacm fails with eio",
            device_that_fails,
        ),
        Case::new("rping runs over rdma cm with its main options", || {
            talks(V4, &RPING)
        }),
        Case::new("the examples of rdma cm run with their main options", || {
            talks(V4, &EXAMPLES)
        }),
        Case::new("the examples of rdma cm run over IPv6", || talks(V6, &IN_IPV6)),
        Case::new("cmtime times the calls of rdma cm", cmtime),
        Case::new(
            "beside stopped processes on the address connections come within a second and refusals soon",
            beside_stopped,
        ),
        Case::new("mckey reaches the members of a group", mckey),
        Case::new(
            "mckey reaches the members of an IPv6 group across a wire",
            mckey_across_a_wire,
        ),
        Case::new("a persistent rping serves one client after the other", persistent),
        Case::new("qperf runs its connected tests over rdma cm", qperf),
        Case::new("fi pingpong runs over connected endpoints", fi_pingpong),
        Case::new("ucx connects by address through rdma cm", ucx),
        Case::new(
            "the echo of the documentation runs on both providers and from one to the other",
            echo,
        ),
        Case::new(
            "two servers on one address do not hear of each other when one is killed",
            two_servers,
        ),
    ];
    for options in PERFTEST {
        cases.push(Case::new(
            format!("perftest {options} connects through rdma cm"),
            move || perftest(options),
        ));
    }
    cases
}

fn under_softroce(bed: &Bed, address: IpAddr, words: &[&str]) -> Result<Program, Stop> {
    Ok(bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--device-address", &address.to_string(), "--"])
        .args(words))
}

/// The words of a command; `A` is the address.
fn words(command: &str, address: &str) -> Vec<String> {
    let word = |word: &str| if word == "A" { address } else { word }.to_owned();
    command.split_whitespace().map(word).collect()
}

fn started(bed: &Bed, address: IpAddr, command: &str) -> Result<Running, Stop> {
    let words = words(command, &address.to_string());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    under_softroce(bed, address, &words)?.start()
}

/// Both must end well, and nobody has anything to complain of.
fn ended_well(server: Running, client: Running) -> Result<[Finished; 2], Stop> {
    let client = client.wait(LIMIT)?;
    let server = server.wait(LIMIT)?;
    for end in [&client, &server] {
        end.succeeded()?;
        ensure(!end.stderr.contains("softroce:"), || {
            format!("nothing should be amiss: {end}")
        })?;
    }
    Ok([server, client])
}

fn talks(address: IpAddr, all: &[Talk]) -> Outcome {
    needs_program("rping", "rdmacm-utils")?;
    needs_address(address)?;
    for talk in all {
        let bed = Bed::loopback()?;
        let server = started(&bed, address, talk.server)?;
        wait_for_cm_listener(&server, talk.ports, talk.port)?;
        ended_well(server, started(&bed, address, talk.client)?)?;
    }
    Ok(())
}

fn promises() -> Outcome {
    let (bed, program) = compiled_promises()?;
    let finished = under_softroce(&bed, V4, &[])?.args([program]).finish(LIMIT)?;
    all_is_well(&finished)
}

/// The device fails when the first message leaves it.
fn device_that_fails() -> Outcome {
    let (bed, program) = compiled_promises()?;
    let rules = bed.scratch.file("rules.toml");
    let first = "[[packet]]\nopcode = \"ud\"\ndo = { event = \"device-fatal\" }\n";
    let rest = "[[packet]]\nopcode = \"ud\"\ndo = \"drop\"\n";
    std::fs::write(&rules, format!("{first}{rest}"))?;
    let finished = bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--faults"])
        .args([&rules])
        .args(["--"])
        .args([program])
        .args(["device-that-fails"])
        .finish(LIMIT)?;
    all_is_well(&finished)
}

fn all_is_well(finished: &Finished) -> Outcome {
    finished.succeeded()?;
    ensure(finished.stdout == "all is well\n", || finished.to_string())
}

fn compiled_promises() -> Result<(Bed, PathBuf), Stop> {
    if !Path::new("/usr/include/rdma/rdma_cma.h").exists() {
        return Err(Stop::skip("<rdma/rdma_cma.h> is missing (package librdmacm-dev)"));
    }
    let bed = Bed::loopback()?;
    let source = e2e::program::repository().join("tests/programs/rdma_cm.c");
    let options = [
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pthread",
        "-Wl,--no-as-needed",
        "-lrdmacm",
    ];
    let program = compiled::compile(&bed.scratch, &source, "gcc", &options)?;
    Ok((bed, program))
}

/// The server serves on and on.
fn cmtime() -> Outcome {
    needs_program("cmtime", "rdmacm-utils")?;
    let bed = Bed::loopback()?;
    let server = started(&bed, V4, "cmtime -b A -c 50")?;
    wait_for_cm_listener(&server, CmPorts::Tcp, 7471)?;
    let client = started(&bed, V4, "cmtime -s A -c 50")?.wait(LIMIT)?;
    client.succeeded()?;
    for step in ["resolve addr", "create qp", "connect", "disconnect", "destroy"] {
        ensure(client.stdout.contains(step), || {
            format!("`{step}` is missing: {client}")
        })?;
    }
    ensure(!server.has_ended(), || server.report())
}

/// Requests name no process, and those that a stopped one gets lie there.
fn beside_stopped() -> Outcome {
    needs_program("cmtime", "rdmacm-utils")?;
    const MS_MAX: f64 = 1000.0;
    let bed = Bed::loopback()?;
    let echo = readable_by_all(Path::new(env!("CARGO_BIN_EXE_echo"))).map_err(Stop::fail)?;
    let bystanders = (9101..=9103)
        .map(|port| {
            let bystander = bed
                .program(&bed.here, [&echo])
                .args(["server", &format!("{V4}:{port}"), "1"])
                .variable("SOFTROCE_ADDRESS", V4.to_string())
                .start()?;
            wait_for_cm_listener(&bystander, CmPorts::Tcp, port)?;
            Ok(bystander)
        })
        .collect::<Result<Vec<_>, Stop>>()?;
    let server = started(&bed, V4, "cmtime -b A -c 30")?;
    wait_for_cm_listener(&server, CmPorts::Tcp, 7471)?;
    for bystander in &bystanders {
        bystander.signal(Signal::SIGSTOP)?;
    }
    let client = started(&bed, V4, "cmtime -s A -c 30")?.wait(LIMIT)?;
    client.succeeded()?;
    let slowest = slowest_connect_ms(&client.stdout);
    ensure(slowest.is_some_and(|ms| ms < MS_MAX), || {
        format!("the slowest of 30 connections took {slowest:?} ms: {client}")
    })?;
    let start = Instant::now();
    let refused = started(&bed, V4, "rping -c -a A -p 9104 -C 1")?.wait(LIMIT)?;
    let took = start.elapsed();
    // Eleven requests are refused before the program hears of it.
    ensure(
        took < 11 * AT_ONCE / 4 && refused.stderr.contains("REJECTED"),
        || format!("a refusal took {took:?}: {refused}"),
    )
}

/// In the table of cmtime, the longest time of a connection.
fn slowest_connect_ms(table: &str) -> Option<f64> {
    let line = table.lines().find(|line| line.starts_with("connect "))?;
    let (_, times) = line.split_once(':')?;
    times.split_whitespace().nth(1)?.parse().ok()
}

fn mckey() -> Outcome {
    needs_program("mckey", "rdmacm-utils")?;
    for (receiver, sender) in [
        ("mckey -m 239.7.7.7 -b A", "mckey -m 239.7.7.7 -b A -s"),
        (
            "mckey -m 239.7.7.8 -C 5 -c 2",
            "mckey -m 239.7.7.8 -C 5 -c 2 -s -o",
        ),
    ] {
        let bed = Bed::loopback()?;
        let receiver = started(&bed, V4, &format!("stdbuf -oL {receiver}"))?;
        wait_for_output(&receiver, "joined dgid")?;
        ended_well(receiver, started(&bed, V4, sender)?)?;
    }
    Ok(())
}

/// Its two ends are on the two ends of the wire.
fn mckey_across_a_wire() -> Outcome {
    needs_program("mckey", "rdmacm-utils")?;
    let bed = Bed::wire(1500)?;
    needs_address(Bed::WIRE_HERE_V6.into())?;
    [&bed.here, bed.there()]
        .into_iter()
        .try_for_each(wait_for_ipv6_groups)?;
    let end = |place, address: Ipv6Addr, more: &[&str]| -> Result<Running, Stop> {
        let address = address.to_string();
        bed.program(place, [softroce()?])
            .args([
                "run",
                "--device-address",
                &address,
                "--",
                "stdbuf",
                "-oL",
                "mckey",
                "-m",
                "ff05::7:7",
                "-b",
                &address,
            ])
            .args(more)
            .start()
    };
    let receiver = end(&bed.here, Bed::WIRE_HERE_V6, &[])?;
    wait_for_output(&receiver, "joined dgid")?;
    ended_well(receiver, end(bed.there(), Bed::WIRE_THERE_V6, &["-s"])?)?;
    Ok(())
}

/// Waits until a program has printed some words.
fn wait_for_output(program: &Running, wanted: &str) -> Outcome {
    let deadline = Instant::now() + LIMIT;
    while !program.stdout().contains(wanted) {
        ensure(Instant::now() < deadline && !program.has_ended(), || {
            format!("it never printed `{wanted}`.\n{}", program.report())
        })?;
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

fn persistent() -> Outcome {
    needs_program("rping", "rdmacm-utils")?;
    let bed = Bed::loopback()?;
    let server = started(&bed, V4, "rping -s -P -a A")?;
    wait_for_cm_listener(&server, CmPorts::Tcp, 7174)?;
    for _ in 0..3 {
        started(&bed, V4, "rping -c -a A -V -C 4")?
            .wait(LIMIT)?
            .succeeded()?;
    }
    ensure(!server.has_ended(), || server.report())
}

/// perftest connects twice, and its client may come before the server listens anew. That is nothing that a program hears of.
fn perftest(options: &str) -> Outcome {
    const PORT: u16 = 18_515;
    let (tool, _) = options.split_once(' ').unwrap_or((options, ""));
    needs_program(tool, "perftest")?;
    let bed = Bed::loopback()?;
    let server = started(&bed, V4, options)?;
    wait_for_cm_listener(&server, CmPorts::Tcp, PORT)?;
    let client = started(&bed, V4, &format!("{options} A"))?.wait(LIMIT)?;
    let server = server.wait(LIMIT)?;
    for end in [&client, &server] {
        end.succeeded()?;
        ensure(end.stdout.contains("rdma_cm QPs\t : ON"), || end.to_string())?;
    }
    Ok(())
}

fn qperf() -> Outcome {
    const PORT: u16 = 19_765;
    needs_program("qperf", "qperf")?;
    let bed = Bed::loopback()?;
    let server = started(&bed, V4, "qperf")?;
    wait_for_listener(&server, PORT)?;
    let client = started(&bed, V4, &format!("qperf A -cm 1 -t 1 {QPERF}"))?.wait(LIMIT)?;
    client.succeeded()?;
    for test in QPERF.split_whitespace() {
        ensure(client.stdout.contains(&format!("{test}:")), || {
            format!("no result of {test}: {client}")
        })?;
    }
    ensure(!client.stderr.contains("-cm set but not used"), || {
        client.to_string()
    })
}

/// libfabric leaves the loopback interface out: the device needs another address.
fn fi_pingpong() -> Outcome {
    const PORT: u16 = 47_592;
    needs_program("fi_pingpong", "libfabric-bin")?;
    let bed = Bed::wire(4096)?;
    let address = IpAddr::from(Bed::WIRE_HERE);
    let server = started(&bed, address, "fi_pingpong -p verbs -e msg -I 50")?;
    wait_for_listener(&server, PORT)?;
    let [_, client] = ended_well(
        server,
        started(&bed, address, "fi_pingpong -p verbs -e msg -I 50 A")?,
    )?;
    ensure(client.stdout.contains("1m"), || {
        format!("all sizes should be there: {client}")
    })?;
    let list = under_softroce(&bed, address, &["fi_info", "-p", "verbs"])?.finish(LIMIT)?;
    ensure(list.stdout.contains("type: FI_EP_MSG"), || list.to_string())
}

/// The example on softroce, and on the provider over libibverbs and librdmacm, which finds the drop-in in their place.
fn echo() -> Outcome {
    const PORT: u16 = 7471;
    let on_softroce = readable_by_all(Path::new(env!("CARGO_BIN_EXE_echo"))).map_err(Stop::fail)?;
    let on_libraries = readable_by_all(Path::new(env!("CARGO_BIN_EXE_native_echo"))).map_err(Stop::fail)?;
    let at = format!("{V4}:{PORT}");
    let bed = Bed::loopback()?;
    let start = |on: &Path, words: &[&str]| -> Result<Running, Stop> {
        if on == on_softroce {
            let program = bed.program(&bed.here, [on]).args(words);
            return program.variable("SOFTROCE_ADDRESS", V4.to_string()).start();
        }
        under_softroce(&bed, V4, &[])?
            .args([on])
            .args(["--library", "libibverbs.so.1"])
            .args(words)
            .start()
    };
    for server_on in [&on_softroce, &on_libraries] {
        let server = start(server_on, &["server", &at, "2"])?;
        wait_for_cm_listener(&server, CmPorts::Tcp, PORT)?;
        for client_on in [&on_softroce, &on_libraries] {
            let client = start(client_on, &["client", &at, "hello"])?.wait(LIMIT)?;
            client.succeeded()?;
            ensure(client.stdout == "hello\n", || client.to_string())?;
        }
        server.wait(LIMIT)?.succeeded()?;
    }
    Ok(())
}

/// UCX's example of a client and a server, which find each other by a socket address.
fn ucx() -> Outcome {
    if !Path::new(UCX_EXAMPLE).exists() {
        return Err(Stop::skip(format!(
            "{UCX_EXAMPLE} is missing (package libucx-dev)"
        )));
    }
    let bed = Bed::loopback()?;
    let source = Path::new(UCX_EXAMPLE);
    let options = ["-w", "-Wl,--no-as-needed", "-lucp", "-lucs"];
    let program = compiled::compile(&bed.scratch, source, "gcc", &options)?;
    let end = |more: &[&str]| -> Result<Running, Stop> {
        under_softroce(&bed, V4, &[])?
            .args([&program])
            .args(["-i", "3"])
            .args(more)
            .variable("UCX_TLS", "rc_v,rdmacm")
            .variable("UCX_NET_DEVICES", "softroce0:1")
            .start()
    };
    let server = end(&[])?;
    wait_for_cm_listener(&server, CmPorts::Tcp, 13_337)?;
    let client = end(&["-a", "127.0.0.1"])?.wait(LIMIT)?;
    client.succeeded()?;
    ensure(client.stdout.contains("Client: iteration #3"), || {
        client.to_string()
    })
}

/// Two processes, two ports, four clients; one server is killed.
fn two_servers() -> Outcome {
    needs_program("rping", "rdmacm-utils")?;
    let bed = Bed::loopback()?;
    let serve = |port: u16| -> Result<Running, Stop> {
        let server = started(&bed, V4, &format!("rping -s -P -a A -p {port}"))?;
        wait_for_cm_listener(&server, CmPorts::Tcp, port)?;
        Ok(server)
    };
    let client = |port: u16, count: u32| started(&bed, V4, &format!("rping -c -a A -v -C {count} -p {port}"));
    let (one, other) = (serve(7001)?, serve(7002)?);
    let clients = [
        client(7001, 3)?,
        client(7002, 3)?,
        client(7001, 3)?,
        client(7002, 3)?,
    ];
    for client in clients {
        client.wait(LIMIT)?.succeeded()?;
    }
    let undisturbed = client(7002, 20_000)?;
    wait_for_output(&undisturbed, "rdma-ping-9")?;
    one.signal(Signal::SIGKILL)?;
    one.wait(LIMIT)?;
    // The kernel takes the program after the command that ran it.
    let deadline = Instant::now() + AT_ONCE;
    while has_cm_port(other.pid(), CmPorts::Tcp, 7001) {
        ensure(Instant::now() < deadline, || {
            "the port of the killed server is not free".into()
        })?;
        std::thread::sleep(PAUSE);
    }
    let refused = client(7001, 1)?.wait(LIMIT)?;
    ensure(refused.code() != Some(0), || {
        format!("nobody listens there: {refused}")
    })?;
    let successor = serve(7001)?;
    client(7001, 3)?.wait(LIMIT)?.succeeded()?;
    ensure(!undisturbed.has_ended(), || undisturbed.report())?;
    undisturbed.signal(Signal::SIGTERM)?;
    ensure(!other.has_ended() && !successor.has_ended(), || other.report())
}
