//! Scripts that play one end of an RDMA conversation packet by packet.
//!
//! A [`Script`] is a text: verbs calls of a device under test, packets that the script sends to it (`<`), packets that
//! it must send (`>`), completions, events, memory, and times. It runs on a [`Bench`]: the embedded engine in virtual
//! time ([`SimBench`]), or any provider behind an [`Agent`], in real time, with a UDP socket as the played end
//! ([`WireBench`]). The language is described in `docs/drill.md`.
//!
//! ```
//! let script = drill::Script::parse(
//!     "example",
//!     r#"
//!     title "A SEND is acknowledged"
//!     qp A rc
//!     mr M 64
//!     recv 1 M[]
//!     < SEND_ONLY psn=p len=5 data="hello"
//!     > ACK psn=p msn=1
//!     cqe 1 SUCCESS len=5
//!     memory M[0..5] = "hello"
//!     "#,
//! )
//! .expect("it is a script");
//! let mut bench = drill::SimBench::new(1)?;
//! drill::run(&script, &mut bench, &mut |_, _| {}).expect("it runs as it says");
//! # Ok::<(), std::io::Error>(())
//! ```
#![deny(unsafe_code)]

mod arguments;
pub mod bench;
pub mod call;
mod compile;
mod dut;
mod expression;
mod lexer;
mod line;
mod names;
mod packet;
mod run;
pub mod script;
mod source;

pub use bench::{Activity, Agent, Bench, RemoteDut, Seal, Seen, SimBench, WireBench};
pub use dut::LocalDut;
pub use expression::Expression;
pub use line::{Placed, Slice, When};
pub use run::{Failed, run};
pub use script::Script;
pub use source::{Problem, Source, Span};
