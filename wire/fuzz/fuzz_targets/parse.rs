//! Hostile bytes as a packet, a frame, a received datagram's header area and a capture file.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../checks.rs"]
mod checks;

fuzz_target!(|bytes: &[u8]| checks::everything(bytes));
