//! Services of RDMA CM on an address: each belongs to one process, which the others pass requests on to.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use roce_wire::cm::ServiceId;
use verbs_api::{Error, ErrorKind, Result};

use super::claim::ClaimName;
use super::sys::{Connection, Listener};

/// Services that one process may claim on an address.
const SERVICES_MAX: usize = 1 << 16;

/// The services of this process, by the lower bits of their numbers.
#[derive(Debug)]
pub(super) struct Services {
    address: IpAddr,
    scope_id: u32,
    listeners: BTreeMap<u32, Listener>,
}

impl Services {
    pub(super) fn new(address: IpAddr, scope_id: u32) -> Self {
        Services {
            address,
            scope_id,
            listeners: BTreeMap::new(),
        }
    }

    /// Claim a service; `watch` is told the descriptor that is readable when a request for it comes, and its key. EADDRINUSE
    /// when somebody has it.
    pub(super) fn claim(
        &mut self,
        service: ServiceId,
        watch: impl FnOnce(RawFd, u32) -> io::Result<()>,
    ) -> Result<()> {
        let key = service_key(service)?;
        if self.listeners.len() >= SERVICES_MAX {
            return Err(Error::new(
                ErrorKind::NoMemory,
                format!("a process can have {SERVICES_MAX} ports on an address"),
            ));
        }
        let name = ClaimName::of_service(self.address, self.scope_id, service);
        let listener = Listener::claim(name.as_bytes()).map_err(|error| match error.raw_os_error() {
            Some(libc::EADDRINUSE) => Error::new(
                ErrorKind::AddressInUse,
                format!(
                    "another process on {} has {service}; choose another port",
                    self.address
                ),
            ),
            _ => Error::system(format!("cannot claim {service}"), error),
        })?;
        watch(listener.as_raw_fd(), key)
            .map_err(|error| Error::system(format!("cannot watch {service}"), error))?;
        self.listeners.insert(key, listener);
        Ok(())
    }

    /// Leave a service to others; what was watched.
    pub(super) fn release(&mut self, service: ServiceId) -> Option<Listener> {
        self.listeners.remove(&service_key(service).ok()?)
    }

    pub(super) fn listener(&self, key: u32) -> Option<&Listener> {
        self.listeners.get(&key)
    }

    /// Whether another process may have it.
    pub(super) fn may_be_anothers(&self, service: ServiceId) -> bool {
        service_key(service).is_ok_and(|key| !self.listeners.contains_key(&key))
    }

    /// Pass a request on to who has claimed its service: at once or not at all.
    pub(super) fn pass_on(&self, service: ServiceId, head: &[u8], body: &[u8]) -> Result<(), NotClaimed> {
        let Ok(key) = service_key(service) else {
            return Err(NotClaimed::ByAnybody);
        };
        if self.listeners.contains_key(&key) {
            return Err(NotClaimed::ByOthers);
        }
        let name = ClaimName::of_service(self.address, self.scope_id, service);
        match Connection::to(name.as_bytes()) {
            // One that is lost is sent again by its sender.
            Ok(Some(connection)) => {
                let _ = connection.send(head, body);
                Ok(())
            }
            Ok(None) => Err(NotClaimed::ByAnybody),
            Err(_) => Ok(()),
        }
    }

    /// In a forked child.
    pub(super) fn close(&mut self) {
        self.listeners.clear();
    }
}

/// Why a request was not passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotClaimed {
    /// It is our own.
    ByOthers,
    /// Nobody has it.
    ByAnybody,
}

/// The lower bits of a service, which tell those of ports apart. EINVAL for others.
fn service_key(service: ServiceId) -> Result<u32> {
    match service.port() {
        Some((protocol, port)) => Ok(u32::from(protocol) << 16 | u32::from(port)),
        None => Err(Error::invalid(format!(
            "{service} is not of a port, and cannot be claimed"
        ))),
    }
}
