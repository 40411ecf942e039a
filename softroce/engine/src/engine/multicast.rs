//! Multicast groups and the queue pairs attached to them.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use verbs_api::{Error, ErrorKind, Gid, QpType, Result};

use super::Engine;
use super::queue_pair::unknown;
use crate::groups::{Attached, Detached, Full, MAX_ATTACHMENTS, MAX_GROUPS, MAX_MEMBERS};

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
    /// Attach a UD queue pair to a group: it receives what is sent to the group's address and queue pair number
    /// 0xffffff with its Q_Key. Attaching twice is attaching once.
    ///
    /// # Errors
    /// EINVAL: another kind of queue pair, no multicast address. ENOMEM: the device's limits.
    pub fn attach_mcast(&mut self, qpn: u32, group: Gid) -> Result<Membership> {
        let address = group_address(group)?;
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        if qp.id.qp_type != QpType::Ud {
            return Err(Error::invalid("only UD queue pairs can be in a multicast group"));
        }
        match self.groups.attach(address, qp.id.slot).map_err(explain)? {
            Attached::Already => Ok(Membership::Unchanged),
            Attached::Another => {
                qp.memberships += 1;
                Ok(Membership::Unchanged)
            }
            Attached::First => {
                qp.memberships += 1;
                Ok(Membership::Join(address))
            }
        }
    }

    /// Detach it. EINVAL when it is not attached.
    pub fn detach_mcast(&mut self, qpn: u32, group: Gid) -> Result<Membership> {
        let address = group_address(group)?;
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        let detached = self.groups.detach(address, qp.id.slot).ok_or_else(|| {
            Error::invalid(format!(
                "queue pair {qpn:#x} is not attached to the group {address}"
            ))
        })?;
        qp.memberships -= 1;
        Ok(match detached {
            Detached::Last => Membership::Leave(address),
            Detached::OneOfSeveral => Membership::Unchanged,
        })
    }
}

fn group_address(group: Gid) -> Result<IpAddr> {
    let address = group.ip();
    if address.is_multicast() {
        Ok(address)
    } else {
        Err(Error::invalid(format!(
            "{address} is no multicast address; a RoCEv2 group is one of 224.0.0.0/4 or ff00::/8"
        )))
    }
}

fn explain(full: Full) -> Error {
    let what = match full {
        Full::Groups => format!("all {MAX_GROUPS} multicast groups of the device are in use"),
        Full::Members => format!("the group has {MAX_MEMBERS} queue pairs, which is the device's limit"),
        Full::Attachments => format!("all {MAX_ATTACHMENTS} attachments of the device are in use"),
    };
    Error::new(ErrorKind::NoMemory, format!("{what}; detach some first"))
}
