//! Programs that look at `/sys/class/infiniband` and `/dev/infiniband` find softroce's devices there.

use std::path::{Path, PathBuf};
use std::time::Duration;

use e2e::bed::needs_program;
use e2e::case::ensure;
use e2e::{Bed, Case, Finished, Outcome, Program, Stop, softroce};

const LIMIT: Duration = Duration::from_secs(60);

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "every function that takes a path finds a device in sys and dev",
            || {
                let bed = Bed::loopback()?;
                let program = looks(&bed)?;
                under_softroce(&bed, &[program])?.finish(LIMIT)?.succeeded()
            },
        ),
        Case::new(
            "a device is found in sys where namespaces are forbidden",
            without_namespaces,
        ),
        Case::new("cpp programs find a device in sys", || {
            let bed = Bed::loopback()?;
            let program = compile(&bed, "g++", "looks.cc", &["-std=c++17"])?;
            under_softroce(&bed, &[program])?.finish(LIMIT)?.succeeded()
        }),
        Case::new("rust programs find a device in sys", || {
            let bed = Bed::loopback()?;
            let program = compile(&bed, "rustc", "looks.rs", &["--edition=2024"])?;
            under_softroce(&bed, &[program])?.finish(LIMIT)?.succeeded()
        }),
        Case::new("python programs find a device in sys", || {
            let bed = Bed::loopback()?;
            needs_program("python3", "python3")?;
            let script = bed.scratch.file("looks.py");
            std::fs::copy(source("looks.py"), &script)?;
            under_softroce(&bed, &[PathBuf::from("python3"), script])?
                .finish(LIMIT)?
                .succeeded()
        }),
        Case::new("shells and their tools find a device in sys", shells),
        Case::new("ibstat shows a device as ibv devinfo does", ibstat),
        Case::new("each device has a place in sys", two_devices),
        Case::new("counters in sys grow by what programs send", counters),
        Case::new("programs under sanitizers look at sys as others do", sanitizers),
        Case::new(
            "looking at sys costs a program that never does next to nothing",
            compiler,
        ),
    ]
}

/// They belong to the device: those before may have sent, too.
fn counters() -> Outcome {
    needs_program("ibv_rc_pingpong", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let script = "
        cd /sys/class/infiniband/softroce0/ports/1
        told() { cat counters/port_xmit_packets counters/port_rcv_data hw_counters/rdma_sends | tr '\\n' ' '; }
        told
        ibv_rc_pingpong -g 0 -n 100 >&2 & until ss -ltn | grep -q :18515; do sleep 0.05; done
        ibv_rc_pingpong -g 0 -n 100 127.0.0.1 >&2 && wait && told";
    let finished = shell(&bed, script)?;
    finished.succeeded()?;
    let numbers: Vec<u64> = finished
        .stdout
        .split_whitespace()
        .filter_map(|word| word.parse().ok())
        .collect();
    let grown = |at: usize| numbers[at + 3] - numbers[at];
    // 100 messages of 4 packets and 4096 bytes each way.
    ensure(
        numbers.len() == 6 && grown(0) >= 800 && grown(1) >= 200 * 1024 && grown(2) == 200,
        || finished.to_string(),
    )
}

/// A file of the programs that look.
fn source(name: &str) -> PathBuf {
    e2e::program::repository().join("tests/programs/paths").join(name)
}

fn compile(bed: &Bed, compiler: &str, name: &str, options: &[&str]) -> Result<PathBuf, Stop> {
    needs_program(compiler, compiler)?;
    let program = bed.scratch.file(&format!("{name}.{compiler}"));
    Program::new(&bed.scratch, [compiler])
        .args(options)
        .args([source(name), "-o".into(), program.clone()])
        .finish(LIMIT)?
        .succeeded()?;
    Ok(program)
}

/// With checks that the compiler adds to calls that may write too much: they have names of their own.
fn looks(bed: &Bed) -> Result<PathBuf, Stop> {
    compile(bed, "gcc", "looks.c", &["-O2", "-Wall", "-D_FORTIFY_SOURCE=2"])
}

fn under_softroce(bed: &Bed, words: &[impl AsRef<Path>]) -> Result<Program, Stop> {
    Ok(bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--"])
        .args(words.iter().map(AsRef::as_ref)))
}

fn shell(bed: &Bed, script: &str) -> Result<Finished, Stop> {
    under_softroce(bed, &["sh", "-ec", script])?.finish(LIMIT)
}

fn without_namespaces() -> Outcome {
    let bed = Bed::loopback()?;
    let (program, wrapper) = (looks(&bed)?, compile(&bed, "gcc", "no_namespaces.c", &[])?);
    for words in [
        vec![program.as_path()],
        vec![Path::new("ibv_devinfo")],
        vec![Path::new("ucx_info"), Path::new("-d")],
    ] {
        if words[0].is_relative() {
            needs_program(&words[0].to_string_lossy(), "ibverbs-utils and ucx-utils")?;
        }
        let finished = bed
            .program(&bed.here, [wrapper.as_path(), softroce()?])
            .args(["run", "--"])
            .args(words)
            .finish(LIMIT)?;
        finished.succeeded()?;
    }
    Ok(())
}

fn shells() -> Outcome {
    let bed = Bed::loopback()?;
    let script = "ls /sys/class/infiniband; cd /sys/class/infiniband; cat */ports/1/state; readlink softroce0; \
                  test -c /dev/infiniband/uverbs0; test -r softroce0/node_guid; \
                  find /sys/class/infiniband_verbs/ -name 'uverbs*'; \
                  sh -c 'cat < /sys/class/infiniband_mad/umad0/ibdev'; echo $(echo /dev/infiniband/uv*)";
    let finished = shell(&bed, script)?;
    finished.succeeded()?;
    let expected = "softroce0\n4: ACTIVE\n../../devices/virtual/softroce/softroce0/infiniband/softroce0\n\
                    /sys/class/infiniband_verbs/uverbs0\nsoftroce0\n/dev/infiniband/uverbs0\n";
    ensure(finished.stdout == expected, || {
        format!("expected\n{expected}\nnot: {finished}")
    })
}

fn ibstat() -> Outcome {
    needs_program("ibstat", "infiniband-diags")?;
    needs_program("ibv_devinfo", "ibverbs-utils")?;
    let bed = Bed::loopback()?;
    let finished = shell(&bed, "PATH=$PATH:/usr/sbin; ibstat; ibstat -l; ibv_devinfo")?;
    finished.succeeded()?;
    for wanted in [
        "CA 'softroce0'",
        "State: Active",
        "Physical state: LinkUp",
        "Link layer: Ethernet",
        "PORT_ACTIVE",
    ] {
        ensure(finished.stdout.contains(wanted), || {
            format!("`{wanted}` is missing: {finished}")
        })?;
    }
    // Both ways tell the same GUID: 0x0011223344556677 and 0011:2233:4455:6677.
    let guid_after = |label: &str| {
        let line = finished
            .stdout
            .lines()
            .find_map(|line| line.trim().strip_prefix(label));
        line.map(|guid| guid.trim().trim_start_matches("0x").replace(':', ""))
    };
    let (by_file, by_verb) = (guid_after("Node GUID:"), guid_after("node_guid:"));
    ensure(by_file.is_some() && by_file == by_verb, || {
        format!("{by_file:?} and {by_verb:?} should be one: {finished}")
    })
}

fn two_devices() -> Outcome {
    let bed = Bed::loopback()?;
    let finished = bed
        .program(&bed.here, [softroce()?])
        .args(["run", "--device-address", "127.0.0.7,127.0.0.8", "--", "sh", "-c"])
        .args(["cat /sys/class/infiniband/*/ports/1/gids/0 /sys/class/infiniband_verbs/uverbs1/ibdev"])
        .finish(LIMIT)?;
    finished.succeeded()?;
    let expected =
        "0000:0000:0000:0000:0000:ffff:7f00:0007\n0000:0000:0000:0000:0000:ffff:7f00:0008\nsoftroce1\n";
    ensure(finished.stdout == expected, || {
        format!("expected\n{expected}\nnot: {finished}")
    })
}

fn sanitizers() -> Outcome {
    let bed = Bed::loopback()?;
    for sanitizer in ["-fsanitize=address", "-fsanitize=thread"] {
        let program = compile(&bed, "clang", "looks.c", &["-g", "-O1", "-w", sanitizer])?;
        under_softroce(&bed, &[program])?.finish(LIMIT)?.succeeded()?;
    }
    Ok(())
}

/// A build is a tree of processes that open many files, none of them ours.
fn compiler() -> Outcome {
    needs_program("gcc", "gcc")?;
    let bed = Bed::loopback()?;
    let output = bed.scratch.file("built");
    let words = ["-O1", "-o"].map(PathBuf::from);
    let build = |program: Program| -> Result<Duration, Stop> {
        let finished = program
            .args(words.iter().chain([&output, &source("no_namespaces.c")]))
            .finish(LIMIT)?;
        finished.succeeded()?;
        Ok(finished.took)
    };
    let plain = build(bed.program(&bed.here, ["gcc"]))?;
    let shimmed = build(under_softroce(&bed, &["gcc"])?)?;
    ensure(shimmed < plain * 4 + Duration::from_millis(500), || {
        format!("a build took {shimmed:?} under softroce run, {plain:?} without")
    })
}
