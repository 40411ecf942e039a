//! `softroce run`: what becomes of the program, and of its exit status.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_softroce"))
        .arg("run")
        .args(arguments)
        .output()
        .expect("running softroce")
}

fn complaint(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Whether the shared objects are there: `cargo test` of this package alone does not build them.
fn drop_in_is_built() -> bool {
    let directory = Path::new(env!("CARGO_BIN_EXE_softroce"))
        .parent()
        .expect("a directory");
    let missing = ["libsoftroce_dropin.so", "libsoftroce_paths.so"]
        .into_iter()
        .find(|name| !directory.join(name).exists());
    if let Some(name) = missing {
        println!("skipped: {name} is not built; run `cargo build` first");
    }
    missing.is_none()
}

#[test]
fn a_program_that_is_not_there_is_status_127() {
    for name in ["no-such-program-here", "/no/such/program"] {
        let output = run(&["--", name]);
        assert_eq!(output.status.code(), Some(127));
        assert!(complaint(&output).contains(name), "{}", complaint(&output));
    }
}

#[test]
fn a_file_that_is_no_program_is_status_126() {
    let output = run(&["--", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert_eq!(output.status.code(), Some(126));
    assert!(
        complaint(&output).contains("not executable"),
        "{}",
        complaint(&output)
    );
}

#[test]
fn a_statically_linked_program_is_refused_in_words() {
    use std::os::unix::fs::PermissionsExt;
    // The head of a program that names no dynamic linker.
    let mut head = vec![0u8; 64];
    head[..6].copy_from_slice(b"\x7fELF\x02\x01");
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("static-program");
    std::fs::File::create(&path)
        .and_then(|mut file| file.write_all(&head))
        .expect("a temporary file");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    let output = run(&["--", path.to_str().expect("a plain path")]);
    assert_eq!(output.status.code(), Some(126));
    assert!(
        complaint(&output).contains("statically linked"),
        "{}",
        complaint(&output)
    );
}

#[test]
fn an_address_that_is_none_is_wrong_use() {
    let output = run(&["--device-address", "somewhere", "--", "true"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(complaint(&output).contains("somewhere"), "{}", complaint(&output));
}

#[test]
fn a_capture_that_cannot_be_written_is_an_error_before_the_program_starts() {
    if !drop_in_is_built() {
        return;
    }
    let output = run(&[
        "--capture",
        "/no/such/directory/x.pcapng",
        "--",
        "echo",
        "started",
    ]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        complaint(&output).contains("/no/such/directory/x.pcapng"),
        "{}",
        complaint(&output)
    );
    assert!(output.stdout.is_empty());
}

#[test]
fn the_status_of_the_program_is_handed_back() {
    if !drop_in_is_built() {
        return;
    }
    assert_eq!(run(&["--", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert_eq!(
        run(&["--", "sh", "-c", "kill -TERM $$"]).status.signal(),
        Some(15)
    );
    let output = run(&["--", "sh", "-c", "echo $1 $2", "sh", "-x", "--y"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "-x --y\n");
}

#[test]
fn the_program_sees_the_drop_in_the_address_and_the_capture() {
    if !drop_in_is_built() {
        return;
    }
    let capture = Path::new(env!("CARGO_TARGET_TMPDIR")).join("run.pcapng");
    let capture = capture.to_str().expect("a plain path");
    let script =
        "echo $LD_PRELOAD; echo $SOFTROCE_ADDRESS; echo $SOFTROCE_CAPTURE; ls ${LD_LIBRARY_PATH%%:*}";
    let output = run(&[
        "--device-address",
        "127.0.0.7,::1",
        "--capture",
        capture,
        "--",
        "sh",
        "-c",
        script,
    ]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].contains("libsoftroce_dropin.so"), "{text}");
    assert_eq!(lines[1], "127.0.0.7,::1");
    assert!(lines[2].ends_with("/run.pcapng"), "{text}");
    assert!(
        lines.contains(&"libibverbs.so.1") && lines.contains(&"libibverbs.so"),
        "{text}"
    );
}
