//! Multicast groups and the queue pairs attached to them.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use verbs_api::{Error, Gid, Result};

use super::Engine;

/// What attaching or detaching means to the fabric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The first queue pair of this engine joined: receive what is sent to this address.
    Join(IpAddr),
    /// The last one left: receive it no more.
    Leave(IpAddr),
    /// Others of this engine are in the group.
    Unchanged,
}

impl Engine {
    /// Attach a UD queue pair to a group. Attaching twice is attaching once.
    ///
    /// # Errors
    /// EINVAL: another kind of queue pair, no multicast address. ENOMEM: the device's limits.
    pub fn attach_mcast(&mut self, qpn: u32, group: Gid) -> Result<Membership> {
        let _ = (qpn, group);
        Err(Error::unsupported("multicast"))
    }

    /// Detach it. EINVAL when it is not attached.
    pub fn detach_mcast(&mut self, qpn: u32, group: Gid) -> Result<Membership> {
        let _ = (qpn, group);
        Err(Error::unsupported("multicast"))
    }
}
