//! Automatic path migration: a connection goes on by its alternate path when the one in use fails (IBA 17.2.8).
//!
//! The owner loads an alternate path and asks for REARM; from then on packets carry MigReq = 0. A packet of the peer
//! with MigReq = 0 says that the peer is prepared as well: ARMED. An armed side migrates when its retries are used up,
//! when its owner commands MIGRATED, or when the peer is seen to have migrated: its packets come by the alternate path
//! with MigReq = 1 and a PSN that fits. The alternate path then is the path, and there is no alternate until one is loaded again.
#![forbid(unsafe_code)]

use roce_wire::Psn;
use verbs_api::{EventKind, MigState, QpType};

use super::Qp;
use crate::shared::Shared;
use crate::{Path, RxMeta};

/// Packets that a peer may be ahead of what has arrived, or behind it when it sends them again: 64 Ki packets are
/// 256 MiB at the largest MTU.
const PSNS_UNDER_WAY_MAX: u32 = 1 << 16;

/// How far path migration is prepared.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Migration {
    state: MigState,
    /// Where the alternate path leads, once it is loaded.
    alternate: Option<Path>,
    complaint: Complaint,
}

/// Whether PATH_MIG_ERR was raised since the last REARM: a peer must not be able to flood the owner.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Complaint {
    #[default]
    None,
    Raised,
}

impl Migration {
    pub(crate) fn state(&self) -> MigState {
        self.state
    }

    pub(crate) fn has_alternate(&self) -> bool {
        self.alternate.is_some()
    }
}

impl Path {
    /// Whether a packet that came so is from the far end of this path.
    pub(crate) fn is_way_of(&self, meta: &RxMeta) -> bool {
        meta.src == self.dst && meta.dst == self.src
    }
}

impl Qp {
    /// Another alternate path. The peer has yet to agree to it.
    pub(crate) fn load_alternate(&mut self, path: Path) {
        self.migration.alternate = Some(path);
        if self.migration.state == MigState::Armed {
            self.migration.state = MigState::Rearm;
        }
    }

    /// The owner's command. The caller has checked that there is an alternate path for REARM.
    pub(crate) fn command_migration(&mut self, shared: &mut Shared, state: MigState) {
        match (self.migration.state, state) {
            (MigState::Armed, MigState::Migrated) => self.migrate(shared),
            (MigState::Rearm, MigState::Migrated) => self.set_migration_state(MigState::Migrated),
            (_, MigState::Rearm) => {
                self.migration.complaint = Complaint::None;
                self.set_migration_state(MigState::Rearm);
            }
            (MigState::Migrated, MigState::Migrated) | (_, MigState::Armed) => {}
        }
    }

    /// The path in use has failed: whether there is another one, which is then in use.
    pub(super) fn has_migrated_instead(&mut self, shared: &mut Shared) -> bool {
        let is_armed = self.migration.state == MigState::Armed;
        if is_armed {
            self.migrate(shared);
        }
        is_armed
    }

    /// A packet came undamaged by the path in use while migration is prepared.
    pub(crate) fn note_migration_bit(&mut self, shared: &mut Shared, meta: &RxMeta, is_migrated: bool) {
        match (self.migration.state, is_migrated) {
            (MigState::Rearm, false) => self.migration.state = MigState::Armed,
            (MigState::Armed, true) if self.is_alternate_way_of(meta) => self.migrate(shared),
            // The peer has given up its alternate path, or is late: the connection goes on as it is.
            (MigState::Armed, true) => self.complain(shared),
            (MigState::Migrated, _) | (MigState::Rearm, true) | (MigState::Armed, false) => {}
        }
    }

    /// A packet came by another path than the one in use: whether it is of the peer, which has migrated. The own side
    /// then has followed it.
    pub(crate) fn has_followed_peer(
        &mut self,
        shared: &mut Shared,
        meta: &RxMeta,
        is_migrated: bool,
        udp_payload: &[u8],
    ) -> bool {
        if self.migration.state == MigState::Migrated || !is_migrated {
            return false;
        }
        // What is remembered of checksums belongs to the path in use.
        self.forget_checksums();
        let is_intact = self.is_intact(meta, udp_payload);
        self.forget_checksums();
        if !is_intact {
            return false;
        }
        if self.is_alternate_way_of(meta) {
            self.migrate(shared);
            return true;
        }
        if self.migration.state == MigState::Armed {
            self.complain(shared);
        }
        false
    }

    /// Whether a request with this PSN could be one of the conversation. One packet moves the connection to another
    /// path, so a blind guess must not do. A UC message may begin with any PSN.
    pub(crate) fn could_be_request(&self, psn: Psn) -> bool {
        let distance = psn.distance_from(self.responder.expected_psn());
        self.id.qp_type == QpType::Uc || distance.unsigned_abs() < PSNS_UNDER_WAY_MAX
    }

    /// Whether an answer with this PSN is to something that was sent, or repeats the last acknowledgement.
    pub(crate) fn could_be_answer(&self, psn: Psn) -> bool {
        let psn = self.requester.una.nearest(psn);
        (self.requester.una.before()..self.requester.sent_end).contains(&psn)
    }

    fn is_alternate_way_of(&self, meta: &RxMeta) -> bool {
        self.migration.alternate.is_some_and(|path| path.is_way_of(meta))
    }

    fn complain(&mut self, shared: &mut Shared) {
        if self.migration.complaint == Complaint::None {
            self.migration.complaint = Complaint::Raised;
            shared.raise(self.id.qpn.value(), EventKind::PathMigErr);
        }
    }

    fn set_migration_state(&mut self, state: MigState) {
        self.migration.state = state;
        if let Some(link) = &mut self.link {
            link.is_migrated = state == MigState::Migrated;
        }
    }

    /// The alternate path is the path from now on.
    fn migrate(&mut self, shared: &mut Shared) {
        let (Some(path), Some(alternate)) = (self.migration.alternate.take(), self.attr.alt_path.take())
        else {
            return;
        };
        self.attr.av = Some(alternate.av);
        self.attr.pkey_index = Some(alternate.pkey_index);
        self.attr.timeout = self.attr.timeout.and(Some(alternate.timeout));
        self.migration.state = MigState::Migrated;
        self.relink(shared, path);
        shared.raise(self.id.qpn.value(), EventKind::PathMig);
        self.responder.hurry_ack();
        self.make_ready(shared);
    }
}
