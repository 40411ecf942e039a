//! The connection of a queue pair: where it leads, and what its packets have in common.
#![forbid(unsafe_code)]

use roce_wire::{Bth, Opcode, PKey, Psn, Qpn};
use verbs_api::MigState;

use super::Qp;
use crate::Path;
use crate::budget::PeerId;
use crate::shared::Shared;

/// The partition that every packet is in: RoCE's P_Key table has this one entry.
pub(crate) const PARTITION: PKey = PKey::DEFAULT;

/// The connection, from RTR on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    pub(crate) path: Path,
    pub(crate) peer: PeerId,
    pub(crate) dest_qp: Qpn,
    /// Path MTU, payload bytes a packet.
    pub(crate) mtu: u32,
    /// The MigReq bit of all that it sends: off while path migration is prepared (see [`super::migration`]).
    pub(super) is_migrated: bool,
}

impl Link {
    /// The header of a packet to the peer.
    pub(super) fn bth(&self, opcode: Opcode, psn: Psn) -> Bth {
        let mut bth = Bth::new(opcode, self.dest_qp, psn);
        bth.pkey = PARTITION;
        bth.migrated = self.is_migrated;
        bth
    }
}

impl Qp {
    /// Lead to another place, or to one for the first time.
    pub(crate) fn relink(&mut self, shared: &mut Shared, path: Path) {
        self.release_link(shared);
        let now = shared.now;
        let peer = shared.peers.join(path.dst, self.attr.dest_qpn.unwrap_or(0), now);
        let mtu = self.attr.path_mtu.map_or(256, |mtu| mtu.bytes() as u32);
        let dest_qp = Qpn::new(self.attr.dest_qpn.unwrap_or(0)).unwrap_or_default();
        self.link = Some(Link {
            path,
            peer,
            dest_qp,
            mtu,
            is_migrated: self.migration.state() == MigState::Migrated,
        });
    }

    /// Give back what it holds of the shared budgets, and leave their lists.
    pub(crate) fn release_link(&mut self, shared: &mut Shared) {
        self.release_charges(shared);
        self.forget_checksums();
        shared.reads.forget(self.id.slot);
        if let Some(link) = self.link.take() {
            shared.peers.leave(link.peer, self.id.slot);
            // It may have been woken and not have had its turn.
            shared.wake_waiting(link.peer);
        }
        shared.ready.remove(self.id.slot);
        shared.acks.remove(self.id.slot);
    }
}
