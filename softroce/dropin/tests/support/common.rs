//! What the tests of the shared object share.
#![allow(dead_code)] // Each test program uses a part.

use std::net::Ipv4Addr;
use std::path::PathBuf;

/// The shared object under test, which cargo has built along with this test.
pub fn drop_in() -> PathBuf {
    let own = std::env::current_exe().expect("a test has a path");
    let directory = own.parent().expect("a test has a directory");
    // `cargo test` leaves it among the intermediate products; beside the programs lies that of the last `cargo build`.
    [
        directory.join("libsoftroce_dropin.so"),
        directory.join("../libsoftroce_dropin.so"),
    ]
    .into_iter()
    .find_map(|path| path.canonicalize().ok())
    .expect("cargo builds libsoftroce_dropin.so for the tests of its package")
}

/// A loopback address that no other test uses at the same time: one a process and number.
pub fn address(number: u8) -> Ipv4Addr {
    let process = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 64 | process[2] & 0x3f, process[3], number.clamp(1, 254))
}
