//! A socket whose peer says what it likes.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../harness.rs"]
mod harness;

fuzz_target!(|bytes: &[u8]| harness::run(bytes));
