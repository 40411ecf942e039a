//! The RDMA conformance suite.
//!
//! A **case** ([`Case`]) is a function over a [`Scene`]: a bed and the means to wait on it. A **bed** ([`Testbed`]) is
//! two ends of one provider, a network between them and a clock. Cases know `verbs-api` and the wire format and
//! nothing else, so the same case runs on the simulator, on softroce over UDP, and on a real card. The beds of this
//! project, and [`run()`] on them, stand behind the feature `beds` (on by default), the simulator alone behind `sim`.
//!
//! Every case shows one or more requirements ([`requirements`]), our own numbered sentences in
//! `docs/spec/requirements.toml`. Cases are called after the entries of the [`catalogue`]. A case ends as required (*pass*), otherwise but as documented for the provider
//! (*deviation*), or otherwise (*fail*); what a bed lacks is known before it runs (*skipped*).
#![deny(unsafe_code)]

#[cfg(feature = "sim")]
pub mod beds;
mod case;
pub mod cases;
pub mod catalogue;
mod connection;
mod outcome;
mod pair;
mod raw;
#[cfg(feature = "beds")]
mod report;
pub mod requirements;
#[cfg(feature = "beds")]
mod run;
mod runner;
mod scene;
mod testbed;

pub use case::{Case, Mode};
pub use outcome::{CaseResult, Failure, Verdict};
pub use pair::{
    Endpoint, Inbox, Node, POOL_COOKIE, Pair, ReceivePool, Region, Setup, Shared, all_remote, datagram,
    full_access, pattern, read, same_bytes, send, write,
};
pub use raw::RawPeer;
#[cfg(feature = "beds")]
pub use report::{Format, html_page};
#[cfg(feature = "beds")]
pub use run::{Progress, Row, RunOptions, Summary, list, run};
pub use runner::{LIMIT, Outcome, run_case};
pub use scene::{Completed, Scene};
pub use testbed::{Activity, Family, Fate, Need, Network, Passing, Rule, Side, Testbed};
