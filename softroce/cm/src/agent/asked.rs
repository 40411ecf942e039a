//! What peers have asked for: to know a request that comes again, and so that none takes all the room.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::CONNECTIONS_MAX;

/// Connections that one address may have asked this agent for, those included that are over and wait for their time.
pub(super) const SHARE_MAX: u32 = CONNECTIONS_MAX as u32 / 4;

/// What a request is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wish {
    Connection,
    Datagrams,
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// Own numbers, by kind, address and the peer's number.
    ids: BTreeMap<(Wish, IpAddr, u32), u32>,
    /// How many there are of each address.
    counts: BTreeMap<IpAddr, u32>,
}

impl Asked {
    /// The own number for a request that has come before.
    pub(super) fn find(&self, wish: Wish, asker: IpAddr, remote_id: u32) -> Option<u32> {
        self.ids.get(&(wish, asker, remote_id)).copied()
    }

    /// A request that has not come before has the own number `id` now.
    pub(super) fn note(&mut self, wish: Wish, asker: IpAddr, remote_id: u32, id: u32) {
        if self.ids.insert((wish, asker, remote_id), id).is_none() {
            *self.counts.entry(asker).or_default() += 1;
        }
    }

    /// The connection `id` is gone; what it was asked for, if it was.
    pub(super) fn forget(&mut self, asker: IpAddr, remote_id: u32, id: u32) -> Option<Wish> {
        let wish = [Wish::Connection, Wish::Datagrams]
            .into_iter()
            .find(|wish| self.ids.get(&(*wish, asker, remote_id)) == Some(&id))?;
        self.ids.remove(&(wish, asker, remote_id));
        self.count_down(asker);
        Some(wish)
    }

    /// Whether the address has asked for as much as it may.
    pub(super) fn has_its_share(&self, asker: IpAddr) -> bool {
        self.counts.get(&asker).is_some_and(|count| *count >= SHARE_MAX)
    }

    fn count_down(&mut self, asker: IpAddr) {
        if let Some(count) = self.counts.get_mut(&asker) {
            *count -= 1;
            if *count == 0 {
                self.counts.remove(&asker);
            }
        }
    }
}
