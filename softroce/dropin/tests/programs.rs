//! Unmodified programs of other people run on the shared object. A program that is not installed is skipped, and said so.

#[path = "support/common.rs"]
mod common;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A program with the drop-in preloaded; `None` when it is not installed.
fn program(name: &str, address: Ipv4Addr) -> Option<Command> {
    let installed =
        std::env::split_paths(&std::env::var_os("PATH")?).any(|directory| directory.join(name).is_file());
    if !installed {
        println!("skipped: {name} is not installed");
        return None;
    }
    let mut command = Command::new(name);
    command
        .env("LD_PRELOAD", common::drop_in())
        .env("SOFTROCE_ADDRESS", address.to_string());
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Some(command)
}

/// What a finished program printed; it must have succeeded.
fn success(what: &str, output: &Output) -> String {
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(
        output.status.success(),
        "{what} ended with {}:\n{text}",
        output.status
    );
    text
}

/// A program that runs; it does not outlive its test.
struct Running {
    child: Child,
    what: String,
}

impl Running {
    fn start(command: &mut Command, what: &str) -> Running {
        Running {
            child: command.spawn().expect("starting a program"),
            what: what.into(),
        }
    }

    /// Wait at most a minute for its end.
    fn finish(mut self) -> Output {
        let until = Instant::now() + Duration::from_secs(60);
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("waiting for a child") {
                break status;
            }
            assert!(Instant::now() < until, "{} hangs", self.what);
            std::thread::sleep(Duration::from_millis(5));
        };
        Output {
            status,
            stdout: read(self.child.stdout.take()),
            stderr: read(self.child.stderr.take()),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail when it has ended, which is what is wanted.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.expect("the output is a pipe")
        .read_to_end(&mut bytes)
        .expect("reading output");
    bytes
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    listener.local_addr().expect("its number").port()
}

/// Start a client again and again until its server listens: the programs have no retry of their own.
fn pair(name: &str, port_flag: &str, arguments: &[&str], address: Ipv4Addr) -> Option<[String; 2]> {
    let port = free_port().to_string();
    let what = format!("{name} {}", arguments.join(" "));
    let start = |host: &[&str]| {
        let mut command = program(name, address)?;
        command.args([port_flag, &port]).args(arguments).args(host);
        Some(Running::start(&mut command, &what))
    };
    let server = start(&[])?;
    let until = Instant::now() + Duration::from_secs(20);
    let client = loop {
        let output = start(&["127.0.0.1"])?.finish();
        let refused = String::from_utf8_lossy(&output.stderr).contains("Couldn't connect");
        if !refused || Instant::now() > until {
            break output;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let client = success(&format!("the client of {what}"), &client);
    Some([
        success(&format!("the server of {what}"), &server.finish()),
        client,
    ])
}

#[test]
fn ibv_devices_lists_the_device() {
    let Some(mut command) = program("ibv_devices", common::address(1)) else {
        return;
    };
    let text = success("ibv_devices", &command.output().expect("running"));
    assert!(text.contains("softroce0"), "{text}");
}

#[test]
fn ibv_devinfo_shows_an_active_ethernet_port_with_a_rocev2_gid() {
    let address = common::address(2);
    let Some(mut command) = program("ibv_devinfo", address) else {
        return;
    };
    let text = success("ibv_devinfo -v", &command.arg("-v").output().expect("running"));
    for expected in [
        "hca_id:\tsoftroce0",
        "PORT_ACTIVE (4)",
        "link_layer:\t\tEthernet",
        "RoCE v2",
    ] {
        assert!(text.contains(expected), "no {expected:?} in:\n{text}");
    }
    assert!(text.contains(&format!("::ffff:{address}, RoCE v2")), "{text}");
}

#[test]
fn ibv_rc_pingpong_runs_at_all_sizes_polling_and_with_events() {
    let address = common::address(3);
    for size in ["1", "63", "1024", "4097", "65536", "1048576"] {
        for events in [&[][..], &["-e"][..]] {
            let arguments = [&["-g", "0", "-n", "100", "-c", "-s", size][..], events].concat();
            let Some(texts) = pair("ibv_rc_pingpong", "-p", &arguments, address) else {
                return;
            };
            for text in texts {
                assert!(text.contains("100 iters in"), "{text}");
                assert!(!text.contains("invalid data"), "{text}");
            }
        }
    }
}

#[test]
fn ibv_rc_pingpong_runs_at_the_largest_path_mtu_and_with_the_request_builder() {
    let address = common::address(4);
    for extra in [&["-m", "4096"][..], &["-N"][..]] {
        let arguments = [&["-g", "0", "-n", "200", "-c"][..], extra].concat();
        if pair("ibv_rc_pingpong", "-p", &arguments, address).is_none() {
            return;
        }
    }
}

#[test]
fn perftest_runs_over_reliable_connections() {
    let address = common::address(5);
    let programs = [
        "ib_send_bw",
        "ib_write_bw",
        "ib_read_bw",
        "ib_send_lat",
        "ib_write_lat",
        "ib_read_lat",
        "ib_atomic_lat",
    ];
    for name in programs {
        let Some([_, client]) = pair(name, "-p", &["-F", "-n", "200"], address) else {
            return;
        };
        assert!(client.contains("#bytes"), "{name}: {client}");
    }
}

#[test]
fn perftest_runs_over_shared_receive_queues_and_extended_reliable_connections() {
    let address = common::address(6);
    let xrc = ["-F", "-n", "200", "-c", "XRC"];
    let programs = [
        ("ib_send_bw", &xrc[..]),
        ("ib_write_bw", &xrc),
        ("ib_read_bw", &xrc),
        ("ib_send_lat", &xrc),
        ("ib_send_bw", &["-F", "-n", "200", "--use-srq"]),
    ];
    for (name, arguments) in programs {
        let Some([_, client]) = pair(name, "-p", arguments, address) else {
            return;
        };
        assert!(client.contains("#bytes"), "{name}: {client}");
    }
}

#[test]
fn a_device_on_an_address_that_is_none_of_this_host_is_an_error_in_words() {
    let Some(mut command) = program("ibv_devinfo", common::address(6)) else {
        return;
    };
    command.env("SOFTROCE_ADDRESS", "192.0.2.1");
    let output = command.output().expect("running");
    assert!(!output.status.success());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        text.contains("softroce: ibv_open_device:") && text.contains("192.0.2.1"),
        "{text}"
    );
}

#[test]
fn a_senseless_setting_is_an_error_in_words() {
    let Some(mut command) = program("ibv_devices", common::address(7)) else {
        return;
    };
    command.env("SOFTROCE_ADDRESS", "nowhere");
    let text = String::from_utf8_lossy(&command.output().expect("running").stderr).into_owned();
    assert!(
        text.contains("softroce: ibv_get_device_list: SOFTROCE_ADDRESS"),
        "{text}"
    );
}

/// Programs from elsewhere that are no part of the project: the folder is named by `SOFTROCE_SEED_PROGRAMS`.
#[test]
fn a_program_that_lists_devices_builds_against_the_system_headers_and_runs() {
    let Some(folder) = std::env::var_os("SOFTROCE_SEED_PROGRAMS").map(PathBuf::from) else {
        return println!("skipped: SOFTROCE_SEED_PROGRAMS names no folder");
    };
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("rdma_device");
    let compiled = Command::new("g++")
        .args(["-std=c++2a", "-w", "-o"])
        .arg(&program)
        .arg(folder.join("rdma_device.cc"))
        .arg("-libverbs")
        .output();
    match compiled {
        Err(error) => return println!("skipped: there is no C++ compiler: {error}"),
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
    let mut command = Command::new(program);
    command
        .env("LD_PRELOAD", common::drop_in())
        .env("SOFTROCE_ADDRESS", common::address(8).to_string());
    let text = success("rdma_device", &command.output().expect("running"));
    assert!(text.contains("softroce0") && text.contains("max_qp"), "{text}");
}
