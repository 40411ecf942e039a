//! What a command does when nobody reads what it prints.

use std::process::{Command, Stdio};

#[test]
fn a_reader_that_has_gone_is_no_error() {
    let repository = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let scripts = format!("{repository}/conformance/drill/scripts");
    let rules = format!("{repository}/contrib/faults/weather.toml");
    // An address of its own: another user may hold the default one.
    let own = ["--device-address", "127.83.12.7"];
    for arguments in [
        &["devices", "-v", own[0], own[1]][..],
        &["devices", "--json", own[0], own[1]],
        &["drill", "--verbose", &scripts],
        &["faults", "check", &rules],
    ] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_softroce"))
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("running softroce");
        drop(child.stdout.take());
        let output = child.wait_with_output().expect("waiting for softroce");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{arguments:?}: {complaint}");
        assert_eq!(complaint, "");
    }
}
