//! The RDMA conformance suite.
//!
//! A **case** ([`Case`]) is a function over a [`Scene`]: a bed and the means to wait on it. A **bed** ([`Testbed`]) is
//! two ends of one provider, a network between them and a clock. Cases know `verbs-api` and the wire format and
//! nothing else, so the same case runs on the simulator, on softroce over UDP, and on a real card. The beds of this
//! project stand behind the feature `beds` (on by default).
//!
//! Every case shows one or more requirements, which are our own numbered sentences in `docs/spec/requirements.toml`.
#![forbid(unsafe_code)]

mod case;
pub mod cases;
mod outcome;
mod pair;
mod scene;
mod testbed;

pub use case::{Case, Mode};
pub use outcome::{CaseResult, Failure, Verdict};
pub use pair::{Endpoint, Node, Pair, Region, Setup, all_remote, full_access, pattern, same_bytes};
pub use scene::Scene;
pub use testbed::{Activity, Fate, Need, Network, Passing, Rule, Side, Testbed};
