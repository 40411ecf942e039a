//! An echo server and its client, over RDMA CM, on softroce.
//!
//! ```sh
//! cargo run --example echo -p softroce -- server 127.0.0.1:7471
//! cargo run --example echo -p softroce -- client 127.0.0.1:7471 hello
//! ```
//!
//! What they do is written against the traits of `verbs-api` alone. `native_echo` of `verbs-native` does the same on an
//! installed libibverbs.

use softroce::{Cm, Options, Softroce};

#[path = "../../verbs-api/examples/echo/talk.rs"]
mod talk;

fn main() -> Result<(), talk::Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let provider = Softroce::new(Options::from_env()?)?;
    talk::run(&Cm::new(&provider)?, &arguments)
}
