//! An echo server and its client, over RDMA CM, on an installed libibverbs and librdmacm: a card, or the kernel's soft one.
//!
//! ```sh
//! cargo run --example native_echo -p verbs-native -- server 192.0.2.1:7471
//! cargo run --example native_echo -p verbs-native -- client 192.0.2.1:7471 hello
//! ```
//!
//! `--library PATH` in front names another libibverbs, softroce's drop-in for example; under `softroce run` that is
//! `--library libibverbs.so.1`. What the two do is the same as in the example `echo` of softroce.

use std::path::Path;

use verbs_native::{DropIn, Native};

#[path = "../../examples/echo/talk.rs"]
mod talk;

fn main() -> Result<(), talk::Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (provider, rest) = match arguments.as_slice() {
        ["--library", path, rest @ ..] => (Native::open_library(Path::new(path), DropIn::Accepted)?, rest),
        rest => (Native::new()?, rest),
    };
    talk::run(&provider.connection_manager()?, rest)
}
