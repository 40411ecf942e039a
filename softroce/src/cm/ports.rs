//! The ports of a device that ids of this process hold.

use std::collections::BTreeMap;

use roce_wire::cm::ServiceId;
use verbs_api::{Error, ErrorKind, Result};

use crate::fabric::Fabric;

/// Ports for those who do not care (Linux's own range).
const EPHEMERAL: std::ops::Range<u16> = 32_768..60_999;

/// How a port is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hold {
    /// By one id alone.
    Alone,
    /// With others that want it so, as long as nobody listens.
    Shared,
    /// As a number for a connection: nobody will look for it.
    Name,
}

#[derive(Debug)]
struct Held {
    hold: Hold,
    holders: u32,
    /// The fabric keeps it from other processes.
    is_claimed: bool,
    is_listening: bool,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    held: BTreeMap<ServiceId, Held>,
}

impl Ports {
    /// Hold a port. EADDRINUSE when somebody else does.
    pub(super) fn hold(&mut self, fabric: &mut dyn Fabric, service: ServiceId, hold: Hold) -> Result<()> {
        if let Some(held) = self.held.get_mut(&service) {
            if held.hold == Hold::Shared && hold == Hold::Shared && !held.is_listening {
                held.holders += 1;
                return Ok(());
            }
            return Err(taken(service));
        }
        match hold {
            Hold::Alone => fabric.claim_service(service)?,
            Hold::Shared => {
                // Somebody of another process may hold it alone, or listen.
                fabric.claim_service(service)?;
                fabric.release_service(service);
            }
            Hold::Name => {}
        }
        let held = Held {
            hold,
            holders: 1,
            is_claimed: hold == Hold::Alone,
            is_listening: false,
        };
        self.held.insert(service, held);
        Ok(())
    }

    /// Hold some port of a protocol, looking from `start` on.
    pub(super) fn hold_any(
        &mut self,
        fabric: &mut dyn Fabric,
        protocol: u8,
        start: u64,
        hold: Hold,
    ) -> Result<u16> {
        let count = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        for step in 0..count {
            let port = EPHEMERAL.start + ((start % count + step) % count) as u16;
            let service = ServiceId::of_port(protocol, port);
            if self.held.contains_key(&service) {
                continue;
            }
            match self.hold(fabric, service, hold) {
                Ok(()) => return Ok(port),
                Err(error) if error.kind() == ErrorKind::AddressInUse => {}
                Err(error) => return Err(error),
            }
        }
        // EADDRNOTAVAIL.
        Err(Error::new(
            ErrorKind::System(99),
            format!("all {count} ports for connections are in use; close some first"),
        ))
    }

    /// Somebody listens on a port that is held. EADDRINUSE when another holder does.
    pub(super) fn listen(&mut self, fabric: &mut dyn Fabric, service: ServiceId) -> Result<()> {
        let held = self
            .held
            .get_mut(&service)
            .ok_or_else(|| Error::invalid(format!("{service} is not bound")))?;
        if held.is_listening {
            return Err(taken(service));
        }
        if !held.is_claimed {
            fabric.claim_service(service)?;
            held.is_claimed = true;
        }
        held.is_listening = true;
        Ok(())
    }

    /// Hold a port no more.
    pub(super) fn release(&mut self, fabric: &mut dyn Fabric, service: ServiceId, was_listening: bool) {
        let Some(held) = self.held.get_mut(&service) else {
            return;
        };
        held.holders -= 1;
        let ends_claim = held.is_claimed && (held.holders == 0 || was_listening && held.hold == Hold::Shared);
        if was_listening {
            held.is_listening = false;
        }
        if ends_claim {
            held.is_claimed = false;
            fabric.release_service(service);
        }
        if held.holders == 0 {
            self.held.remove(&service);
        }
    }
}

fn taken(service: ServiceId) -> Error {
    Error::new(
        ErrorKind::AddressInUse,
        format!("{service} is in use on this address; choose another port, or 0 for any"),
    )
}
