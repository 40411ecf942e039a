//! What queue pairs wait for, for a person who wonders why a program does not come to an end.
#![forbid(unsafe_code)]

use std::fmt;
use std::net::IpAddr;

use verbs_api::{QpState, QpType, WcOpcode};

use crate::failure::name;

/// A queue pair, and what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number.
    pub qpn: u32,
    /// Its service.
    pub qp_type: QpType,
    /// Its state.
    pub state: QpState,
    /// The peer's address.
    pub peer: Option<IpAddr>,
    /// The peer's queue pair.
    pub peer_qpn: u32,
    /// Send requests that are not complete.
    pub sends: u64,
    /// What the oldest of them does.
    pub oldest: Option<WcOpcode>,
    /// Receive requests that wait.
    pub receives: u64,
    /// PSN of the oldest packet that is not acknowledged, or of the next one.
    pub psn: u32,
    /// What for.
    pub waits_for: WaitsFor,
    /// Since something was last acknowledged or sent first, ns.
    pub waited_ns: u64,
    /// How long ago the peer's process was last heard of, ns; `None`: never.
    pub heard_ns: Option<u64>,
}

/// What a queue pair waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitsFor {
    /// To be brought to RTR.
    Connection,
    /// The peer to acknowledge or answer.
    Acknowledgement {
        /// Timeouts in a row.
        timeouts: u8,
    },
    /// The peer to post a receive: it answers with RNR NAKs.
    Receive,
    /// A message of the peer.
    Message,
    /// Room toward the peer, or a limit of its own (READs, fences).
    Window,
    /// Its turn in the rate of unreliable services.
    Rate,
    /// Nothing.
    Nothing,
}

impl Waiting {
    /// Whether it waits for something, most telling first; `None` when it does not.
    pub fn weight(&self) -> Option<u8> {
        match self.waits_for {
            WaitsFor::Receive => Some(0),
            WaitsFor::Acknowledgement { .. } => Some(1),
            WaitsFor::Window | WaitsFor::Rate => Some(2),
            WaitsFor::Connection => Some(3),
            WaitsFor::Message => Some(4),
            WaitsFor::Nothing => None,
        }
    }
}

impl fmt::Display for Waiting {
    /// One sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "queue pair {:#x} ({}, {})",
            self.qpn,
            service(self.qp_type),
            state(self.state)
        )?;
        if let Some(peer) = self.peer {
            write!(f, " to {peer} queue pair {:#x}", self.peer_qpn)?;
        }
        write!(f, " waits for ")?;
        let what = self.oldest.map_or("request", name);
        let seconds = self.waited_ns as f64 / 1e9;
        match self.waits_for {
            WaitsFor::Connection => write!(f, "the program to connect it (modify it to RTR)")?,
            WaitsFor::Acknowledgement { timeouts } => write!(
                f,
                "an acknowledgement of a {what} since {seconds:.1} s ({timeouts} timeouts in a row)"
            )?,
            WaitsFor::Receive => write!(
                f,
                "the peer to post a receive: it is not ready (RNR) for a {what} since {seconds:.1} s"
            )?,
            WaitsFor::Message => write!(
                f,
                "a message of the peer: {} receives are posted, and none is used",
                self.receives
            )?,
            WaitsFor::Window => write!(f, "room to send a {what} (window, READ limit or fence)")?,
            WaitsFor::Rate => write!(f, "its turn to send a {what} (rate of unreliable services)")?,
            WaitsFor::Nothing => write!(f, "nothing")?,
        }
        if self.sends > 1 {
            write!(f, ", {} more behind it", self.sends - 1)?;
        }
        if let (Some(_), WaitsFor::Acknowledgement { .. } | WaitsFor::Message) = (self.peer, self.waits_for) {
            match self.heard_ns {
                Some(ns) => write!(
                    f,
                    "; the peer's process was last heard of {:.1} s ago",
                    ns as f64 / 1e9
                )?,
                None => write!(f, "; nothing was ever heard from there")?,
            }
        }
        Ok(())
    }
}

fn service(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Rc => "RC",
        QpType::Uc => "UC",
        QpType::Ud => "UD",
        QpType::Gsi => "GSI",
        QpType::RawPacket => "raw",
        QpType::XrcInitiator => "XRC initiator",
        QpType::XrcTarget => "XRC target",
    }
}

fn state(state: QpState) -> &'static str {
    match state {
        QpState::Reset => "RESET",
        QpState::Init => "INIT",
        QpState::Rtr => "RTR",
        QpState::Rts => "RTS",
        QpState::Sqd => "SQD",
        QpState::Sqe => "SQE",
        QpState::Err => "ERR",
    }
}
