//! UCX and libfabric, unmodified, on softroce.

use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Case, Outcome, Program, Stop, softroce};

use crate::pingpong::free_port;

const LIMIT: Duration = Duration::from_secs(60);

/// Of a transport, which UCX runs without its protocols: what its test tool is asked for.
const TRANSPORT_TESTS: [(&str, &str); 10] = [
    ("rc_verbs", "-t am_lat -n 1000"),
    ("rc_verbs", "-t put_lat -n 1000"),
    ("rc_verbs", "-t am_bw -n 10000"),
    ("rc_verbs", "-t put_bw -n 10000"),
    ("rc_verbs", "-t get -D zcopy -s 65536 -n 500"),
    ("rc_verbs", "-t fadd -n 500"),
    ("rc_verbs", "-t cswap -n 500"),
    ("ud_verbs", "-t am_lat -n 1000"),
    ("ud_verbs", "-t am_bw -n 2000"),
    ("ud_verbs", "-t am_bw -D zcopy -s 2000 -n 1000"),
];

/// Of whole UCX over reliable connections. `rc` stands for connections and the datagrams by which UCX makes them; no
/// shorter list works, and `rc_verbs` alone does not either: UCX then lacks a way to make its connections.
const PROTOCOL_TESTS: [&str; 4] = [
    "-t tag_bw -n 1000 -s 4096",
    "-t tag_bw -n 100 -s 1000000",
    "-t ucp_put_bw -n 200 -s 100000",
    "-t ucp_fadd -n 200 -s 8",
];

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("ucx info lists a device with its transports", || {
            needs_program("ucx_info", "ucx-utils")?;
            let finished = under_softroce(&Bed::loopback()?, &["ucx_info", "-d"])?.finish(LIMIT)?;
            finished.succeeded()?;
            for wanted in [
                "Transport: rc_verbs",
                "Transport: ud_verbs",
                "Device: softroce0:1",
            ] {
                ensure(finished.stdout.contains(wanted), || {
                    format!("`{wanted}` is missing: {finished}")
                })?;
            }
            Ok(())
        }),
        Case::new("fi info lists a device with its endpoints", || {
            needs_program("fi_info", "libfabric-bin")?;
            let finished = under_softroce(&Bed::loopback()?, &["fi_info", "-p", "verbs"])?.finish(LIMIT)?;
            finished.succeeded()?;
            // Endpoints of connections need a device that is not on the loopback interface.
            for wanted in [
                "domain: softroce0",
                "type: FI_EP_DGRAM",
                "protocol: FI_PROTO_IB_UD",
                "type: FI_EP_RDM",
            ] {
                ensure(finished.stdout.contains(wanted), || {
                    format!("`{wanted}` is missing: {finished}")
                })?;
            }
            Ok(())
        }),
    ];
    for (transport, options) in TRANSPORT_TESTS {
        let sentence = format!("ucx perftest {options} runs over {transport}");
        cases.push(Case::new(sentence, move || {
            let words = ["-d", "softroce0:1", "-x", transport];
            perftest(&[], words.into_iter().chain(options.split(' ')))
        }));
    }
    for options in PROTOCOL_TESTS {
        let sentence = format!("ucx perftest {options} runs over connections");
        cases.push(Case::new(sentence, move || {
            perftest(&[("UCX_TLS", "rc")], options.split(' '))
        }));
    }
    cases
}

fn under_softroce(bed: &Bed, words: &[&str]) -> Result<Program, Stop> {
    Ok(bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--"])
        .args(words))
}

/// Both ends of `ucx_perftest`.
fn perftest(variables: &[(&str, &str)], options: impl Iterator<Item = &'static str>) -> Outcome {
    needs_program("ucx_perftest", "ucx-utils")?;
    let bed = Bed::loopback()?;
    let port = free_port();
    let port_word = port.to_string();
    let options: Vec<&'static str> = options.collect();
    let mut words = vec!["ucx_perftest", "-p", &port_word];
    words.extend(options);
    let program = |words: &[&str]| -> Result<Program, Stop> {
        let program = under_softroce(&bed, words)?;
        Ok(variables
            .iter()
            .fold(program, |program, (name, value)| program.variable(name, value)))
    };
    let server = program(&words)?.start()?;
    wait_for_listener(&server, port)?;
    words.push("127.0.0.1");
    let client = program(&words)?.start()?.wait(LIMIT)?;
    let server = server.wait(LIMIT)?;
    for end in [&client, &server] {
        end.succeeded()?;
        for bad in ["UCX  ERROR", "UCX  WARN", "softroce:"] {
            let told = [&end.stdout, &end.stderr]
                .into_iter()
                .any(|text| text.contains(bad));
            ensure(!told, || format!("nothing should be amiss: {end}"))?;
        }
    }
    ensure(client.stdout.contains("Final:"), || {
        format!("the client should print results: {client}")
    })
}
