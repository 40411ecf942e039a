//! A second user on an address that the first one has. Needs root, who alone can be two users; else it says so.

use std::os::unix::process::CommandExt;
use std::process::Command;

use softroce::{UdpFabric, UdpOptions};

use crate::support::*;

const ADDRESS_VARIABLE: &str = "SOFTROCE_TEST_SECOND_USER";
const NOBODY: u32 = 65_534;

/// Not a test: what the second user runs.
#[test]
fn a_second_user() {
    let Ok(address) = std::env::var(ADDRESS_VARIABLE) else {
        return;
    };
    match UdpFabric::open(&UdpOptions::new(address.parse().unwrap())) {
        Ok(_) => println!("\nopened"),
        Err(error) => println!("\nrefused ({}): {error}", error.errno()),
    }
}

fn as_nobody(address: std::net::IpAddr) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "fabric_users::a_second_user", "--nocapture"])
        .env(ADDRESS_VARIABLE, address.to_string())
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    match output {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(error) => format!("cannot run as nobody: {error}"),
    }
}

#[test]
fn a_second_user_is_refused_with_the_cause_and_a_way_out_and_can_use_another_address() {
    // SAFETY: takes no arguments and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can start a process of another user");
        return;
    }
    let address = fresh_address();
    let _first = open(address);
    let said = as_nobody(address);
    if said.contains("cannot run as nobody") {
        println!("skipped: {said} (the folder of the test program is closed to others)");
        return;
    }
    assert!(said.contains("refused (98)"), "{said}");
    assert!(
        said.contains("user number 0 holds it, and users cannot share"),
        "{said}"
    );
    assert!(said.contains("such as 127.42."), "{said}");
    assert!(
        as_nobody(fresh_address()).contains("opened"),
        "an unprivileged user must be able to open a device"
    );
}
