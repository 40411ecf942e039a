//! Queue pairs in multicast groups.

use softroce_engine::Membership;
use verbs_api::{Gid, Result};

use super::{Qp, QpShared};
use crate::card::Card;
use crate::device::Shared;
use crate::lock::MutexGuard;

impl Qp {
    pub(super) fn lock_groups(&self) -> MutexGuard<'_, Vec<Gid>> {
        self.shared.groups.lock()
    }

    /// Attach it to a group. When the fabric cannot join, the queue pair is not attached.
    pub(super) fn attach(&self, group: Gid) -> Result<()> {
        self.shared.attach(&self.device, self.qpn, group)
    }

    /// Detach it.
    pub(super) fn detach(&self, group: Gid) -> Result<()> {
        self.shared.detach(&self.device, self.qpn, group)
    }

    /// Detach it from all groups: its handle is being dropped.
    pub(super) fn detach_all(&self) {
        let groups = std::mem::take(&mut *self.lock_groups());
        for group in groups {
            let _ = self.device.verb(|card, _| leave(card, self.qpn, group));
        }
    }
}

impl QpShared {
    /// Attach the queue pair `qpn`, which this is the shared part of.
    pub(crate) fn attach(&self, device: &Shared, qpn: u32, group: Gid) -> Result<()> {
        device.check_owner()?;
        let mut groups = self.groups.lock();
        device.verb(|card, _| {
            let Membership::Join(address) = card.engine.attach_mcast(qpn, group)? else {
                return Ok(());
            };
            card.fabric.join(address).inspect_err(|_| {
                // It was attached just now, so this cannot fail; and the fabric has nothing to leave.
                let _ = card.engine.detach_mcast(qpn, group);
            })
        })?;
        if !groups.contains(&group) {
            groups.push(group);
        }
        Ok(())
    }

    /// Detach it.
    pub(crate) fn detach(&self, device: &Shared, qpn: u32, group: Gid) -> Result<()> {
        device.check_owner()?;
        let mut groups = self.groups.lock();
        device.verb(|card, _| leave(card, qpn, group))?;
        groups.retain(|other| *other != group);
        Ok(())
    }
}

fn leave(card: &mut Card, qpn: u32, group: Gid) -> Result<()> {
    if let Membership::Leave(address) = card.engine.detach_mcast(qpn, group)?
        && let Err(error) = card.fabric.leave(address)
    {
        // What still arrives for the group finds nobody attached.
        tracing::warn!(%error, %address, "the fabric does not leave a multicast group");
    }
    Ok(())
}
