//! Unmodified programs of other people run on the shared object. A program that is not installed is skipped, and said so.

#[path = "support/common.rs"]
mod common;

use std::io::Read;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
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

/// Where Debian's `rdma-core` and `python3-pyverbs` leave them, some compressed.
const PYTHON_TESTS: &str = "/usr/share/doc/rdma-core/tests";

/// Tests that ask for something else than this card does, with the reason.
const PYTHON_TESTS_LEFT_OUT: &[(&str, &str, &str)] = &[
    (
        "test_device.py",
        "test_multi_process_alloc_dm",
        "a forked child has no device of its parent's",
    ),
    (
        "test_mr.py",
        "test_mr_rereg_pd",
        "completions of a queue pair that was reset stay in their queue, and its traffic meets them",
    ),
    ("test_mr.py", "test_mr_rereg_addr", "as above"),
];

/// A folder with the Python tests as they are run; `None` when they are not installed.
fn python_tests() -> Option<PathBuf> {
    let usable = Command::new("/usr/bin/python3")
        .args(["-c", "import pyverbs.device"])
        .output();
    if !usable.is_ok_and(|output| output.status.success()) || !Path::new(PYTHON_TESTS).is_dir() {
        println!("skipped: pyverbs or its tests are not installed (rdma-core, python3-pyverbs)");
        return None;
    }
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("pyverbs");
    let copied = Command::new("sh")
        .args([
            "-c",
            "mkdir -p \"$1\" && cp -r \"$0\"/. \"$1\" && gunzip -f \"$1\"/*.gz",
        ])
        .arg(PYTHON_TESTS)
        .arg(&folder)
        .output()
        .expect("running sh");
    success("copying the tests", &copied);
    for (file, test, _) in PYTHON_TESTS_LEFT_OUT {
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).expect("a test file");
        let definition = format!("def {test}(");
        assert!(text.contains(&definition), "{file} has no {test}");
        let text = text.replace(&definition, &format!("def left_out_{test}("));
        std::fs::write(&path, text).expect("the copy is ours");
    }
    Some(folder)
}

#[test]
fn the_python_tests_of_rdma_core_pass_or_are_skipped_by_themselves() {
    let modules = [
        "test_addr",
        "test_atomic",
        "test_cq",
        "test_cq_events",
        "test_cqex",
        "test_device",
        "test_fork",
        "test_mr",
        "test_parent_domain",
        "test_pd",
        "test_qp",
        "test_qpex",
        "test_relaxed_ordering",
    ];
    let Some(folder) = python_tests() else { return };
    for module in modules {
        let mut command = Command::new("/usr/bin/python3");
        command
            .current_dir(&folder)
            .args(["run_tests.py", "-v", &format!("tests.{module}")]);
        command
            .env("LD_PRELOAD", common::drop_in())
            .env("SOFTROCE_ADDRESS", common::address(9).to_string());
        let text = success(module, &command.output().expect("running python"));
        // Of the only test of this module, the result stands on a line of its own.
        let passed = text.contains("... ok") || module == "test_fork";
        assert!(
            passed,
            "{module} ran no test:
{text}"
        );
    }
}
