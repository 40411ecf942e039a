//! Multicast groups.

use std::net::SocketAddr;

use verbs_api::{AddressVector, CmEventKind, DatagramPeer, Error, Gid, Result};

use super::super::CmId;
use super::super::channel::Queued;
use super::super::link::{HOP_LIMIT, QKEY};
use super::NOT_HERE;
use crate::context::PORT;

/// Queue pair number of groups.
const GROUP_QPN: u32 = 0xff_ffff;

/// What a member of a multicast group does there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupMember {
    /// Sends to it and receives from it.
    Full,
    /// Only sends.
    SendOnly,
}

impl CmId {
    /// [`join_multicast`](verbs_api::CmId::join_multicast), also for those who only want to send: their queue pair is not
    /// attached.
    ///
    /// # Errors
    /// EINVAL: no device yet, a port space of connections, no multicast address.
    pub fn join_multicast_as(&self, group: SocketAddr, member: GroupMember, cookie: u64) -> Result<()> {
        self.expect_alive("join_multicast")?;
        let _alone = self.inner.calls.lock();
        let device = self.inner.device()?;
        if !self.inner.space.is_datagram() {
            return Err(Error::invalid(format!(
                "multicast groups are of port spaces of datagrams, not of {:?}",
                self.inner.space
            )));
        }
        if !group.ip().is_multicast() {
            return Err(Error::invalid(format!("{} is no multicast address", group.ip())));
        }
        let gid = Gid::from(group.ip());
        let qp = self.inner.lock().qp.clone();
        if let Some(qp) = qp
            && member == GroupMember::Full
        {
            qp.shared.attach(&device.device, qp.qpn, gid)?;
        }
        let traffic_class = {
            let mut state = self.inner.lock();
            state.groups.push((gid, member));
            state.options.type_of_service
        };
        let peer = DatagramPeer {
            av: AddressVector {
                dgid: Some(gid),
                hop_limit: HOP_LIMIT,
                traffic_class,
                port: PORT,
                ..AddressVector::default()
            },
            qp_num: GROUP_QPN,
            qkey: QKEY,
        };
        let event = Queued {
            datagram_peer: Some(peer),
            group_cookie: cookie,
            ..Queued::new(&self.inner, CmEventKind::MulticastJoin, 0)
        };
        let _ = self.inner.push(event);
        Ok(())
    }

    pub(super) fn leave_group(&self, group: SocketAddr) -> Result<()> {
        let _alone = self.inner.calls.lock();
        let device = self.inner.device()?;
        let gid = Gid::from(group.ip());
        let (member, qp) = {
            let mut state = self.inner.lock();
            let joined = state.groups.iter().position(|(known, _)| *known == gid);
            let Some(position) = joined else {
                return Err(Error::new(
                    NOT_HERE,
                    format!("the id has not joined {}", group.ip()),
                ));
            };
            let (_, member) = state.groups.swap_remove(position);
            (member, state.qp.clone())
        };
        match qp {
            Some(qp) if member == GroupMember::Full => qp.shared.detach(&device.device, qp.qpn, gid),
            Some(_) | None => Ok(()),
        }
    }
}
