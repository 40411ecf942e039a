//! What the end-to-end tests stand on: places to run in, processes that always end, and the built `softroce`.
//!
//! Contract: every process is started in a group of its own, waited for with a limit, and killed by its id
//! when its handle goes away; its output is kept in files, so that nobody blocks on a full pipe and a failure
//! shows what each end printed. As root, everything runs in network namespaces of its own and as an
//! unprivileged user, so that neither the machine's port 4791 nor another test is in the way.
#![forbid(unsafe_code)]

pub mod bed;
pub mod case;
pub mod compiled;
pub mod listening;
pub mod mutations;
pub mod peer;
pub mod perftest;
pub mod process;
pub mod program;
pub mod scratch;
pub mod tshark;
pub mod workflow;

pub use bed::{Bed, Place};
pub use case::{Case, Outcome, Stop};
pub use process::{Finished, Program, Running};
pub use program::softroce;
pub use scratch::Scratch;
