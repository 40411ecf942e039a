//! What a command does when nobody reads what it prints.

use std::process::{Command, Stdio};

#[test]
fn a_reader_that_has_gone_is_no_error() {
    for arguments in [&["devices", "-v"][..], &["devices", "--json"]] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_softroce"))
            .args(arguments)
            // An address of its own: another user may hold the default one.
            .args(["--device-address", "127.83.12.7"])
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
