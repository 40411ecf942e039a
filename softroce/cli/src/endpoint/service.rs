//! What kind of queue pairs an endpoint talks through.

use anyhow::{Result, bail};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use verbs_api::QpType;

/// The transport service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Transport {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram
    Ud,
    /// Extended reliable connection: an initiator to send, a target and a shared receive queue to receive
    Xrc,
}

/// Transport, and whose receive requests it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// The transport service.
    pub transport: Transport,
    /// Whether all queue pairs take their receive requests from one shared queue. XRC always does.
    pub shared_receives: bool,
}

impl Service {
    /// The kind of queue pair that sends.
    pub fn sender_type(self) -> QpType {
        match self.transport {
            Transport::Rc => QpType::Rc,
            Transport::Uc => QpType::Uc,
            Transport::Ud => QpType::Ud,
            Transport::Xrc => QpType::XrcInitiator,
        }
    }

    /// Whether what was sent arrives, or its sender hears that it did not.
    pub fn is_reliable(self) -> bool {
        match self.transport {
            Transport::Rc | Transport::Xrc => true,
            Transport::Uc | Transport::Ud => false,
        }
    }

    /// Whether receive requests go to a shared queue.
    pub fn has_shared_receives(self) -> bool {
        self.shared_receives || self.transport == Transport::Xrc
    }

    /// Bytes that the card puts in front of a received message.
    pub fn headroom_bytes(self) -> usize {
        match self.transport {
            Transport::Ud => 40,
            Transport::Rc | Transport::Uc | Transport::Xrc => 0,
        }
    }

    /// As the user names it.
    pub fn name(self) -> &'static str {
        match (self.transport, self.shared_receives) {
            (Transport::Rc, false) => "rc",
            (Transport::Rc, true) => "srq",
            (Transport::Uc, false) => "uc",
            (Transport::Uc, true) => "uc with srq",
            (Transport::Ud, false) => "ud",
            (Transport::Ud, true) => "ud with srq",
            (Transport::Xrc, _) => "xrc",
        }
    }
}

/// The services as the user names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Reliable connection
    Rc,
    /// Unreliable connection
    Uc,
    /// Unreliable datagram: a message is one packet at most
    Ud,
    /// Reliable connection with a shared receive queue
    Srq,
    /// Extended reliable connection
    Xrc,
}

impl From<Kind> for Service {
    fn from(kind: Kind) -> Service {
        let transport = match kind {
            Kind::Rc | Kind::Srq => Transport::Rc,
            Kind::Uc => Transport::Uc,
            Kind::Ud => Transport::Ud,
            Kind::Xrc => Transport::Xrc,
        };
        Service {
            transport,
            shared_receives: kind == Kind::Srq,
        }
    }
}

/// A server that was told something serves no client that wants something else: the client decides.
pub fn check_told<T: PartialEq + std::fmt::Display>(option: &str, told: Option<T>, agreed: T) -> Result<()> {
    match told {
        Some(told) if told != agreed => bail!(
            "this end was told {option} {told}, the client {option} {agreed}; start both with the same words"
        ),
        _ => Ok(()),
    }
}

/// The same for a path MTU; 0 stands for that of the interface.
pub fn check_told_mtu(told: Option<usize>, agreed: usize) -> Result<()> {
    let shown = match agreed {
        0 => "of its interface".to_owned(),
        bytes => bytes.to_string(),
    };
    check_told("--mtu", told.map(|bytes| bytes.to_string()), shown)
}

/// The same for a switch: it needs both ends, or its client alone.
pub fn check_told_switch(option: &str, told: bool, agreed: bool) -> Result<()> {
    if told && !agreed {
        bail!("this end was told {option}, the client was not; start both with the same words");
    }
    Ok(())
}

/// A server that was told a transport serves no other: its client decides, and would silently measure something else.
pub fn check_transport(told: Option<Kind>, agreed: Service) -> Result<()> {
    let Some(told) = told.map(Service::from) else {
        return Ok(());
    };
    if told.transport != agreed.transport {
        bail!(
            "this end was told --transport {}, the client {}; start both with the same words",
            told.name(),
            agreed.name()
        );
    }
    Ok(())
}
