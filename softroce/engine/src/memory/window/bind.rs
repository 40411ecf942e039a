//! Binding windows, and invalidating them: what a bind must be, check by check.
#![forbid(unsafe_code)]

use verbs_api::{Access, Error, MwType, RKey, Result};

use super::{Binding, Kind, Opening, TAG, Window};
use crate::memory::region::{Backing, OPTIONAL, Region};
use crate::memory::{Accessor, Memory, WINDOW};
use crate::mutants::{Mutant, is_on, wrong};
use crate::{MrId, MwId};

/// What a window may permit, besides flags that mean nothing to it.
const GRANTABLE: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::FLUSH_GLOBAL)
    .union(Access::ZERO_BASED);

/// A bind, as a send queue holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bind {
    pub(crate) mw: MwId,
    /// Which kind of request it is; a window of the other type refuses it.
    pub(crate) mw_type: MwType,
    /// The key that the window shall have.
    pub(crate) rkey: RKey,
    pub(crate) mr: MrId,
    /// First address, as the region counts.
    pub(crate) addr: u64,
    /// Bytes; 0 unbinds (type 1).
    pub(crate) length: u64,
    pub(crate) access: Access,
}

/// Why a bind or an invalidation failed. The requester's completion says the same of all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowFault {
    /// No window has this id or this key.
    NoWindow,
    /// A request of one type for a window of the other; type 1 is not invalidated (IBA o10-37.2.26).
    WrongType,
    /// Window, region and queue pair are not of one protection domain (IBA C10-72).
    WrongPd,
    /// The new key is not one of this window's.
    WrongKey,
    /// Type 2: bound already (IBA o10-37.2.30).
    Bound,
    /// Type 2: nothing to invalidate.
    Unbound,
    /// Type 2: another queue pair has bound it.
    WrongQp,
    /// Type 2: a bind to no bytes (IBA o10-37.2.40).
    Empty,
    /// No region has this id.
    NoRegion,
    /// The region permits no windows (IBA C10-73), or has its own way to count addresses.
    NotBindable,
    /// A right that the region's own lack of `LOCAL_WRITE` forbids (IBA C10-74), or that type 1 cannot have (IBA
    /// o10-36.2.2).
    AccessDenied,
    /// Not within the region (IBA C10-75).
    OutOfBounds,
}

impl Memory {
    /// Carry a bind out. On a fault the window is as before.
    pub(crate) fn bind(&mut self, who: Accessor, bind: &Bind) -> Result<(), WindowFault> {
        let window = self.windows.table.get(bind.mw.0).ok_or(WindowFault::NoWindow)?;
        check_window(window, who, bind)?;
        let binding = match bind.length {
            0 => None,
            _ => Some(self.check_binding(who, bind)?),
        };
        self.unbind(bind.mw.0);
        if let Some(binding) = binding {
            let region = self.regions.get_mut(binding.region).expect("it was checked");
            region.windows += 1;
            if let Opening::QueuePair { .. } = binding.opening {
                self.windows.through_queue_pairs.push(bind.mw.0);
            }
        }
        let window = self.windows.table.get_mut(bind.mw.0).expect("it was checked");
        window.key = bind.rkey.0;
        window.binding = binding;
        Ok(())
    }

    /// Invalidate a window of type 2 by its key, on behalf of the queue pair that bound it.
    pub(crate) fn invalidate(&mut self, who: Accessor, rkey: RKey) -> Result<(), WindowFault> {
        let id = self.permutation.id_of(rkey.0 >> 8);
        if id & WINDOW == 0 {
            return Err(WindowFault::NoWindow);
        }
        let id = id & !WINDOW;
        let window = self.windows.table.get(id).filter(|window| {
            window.key == rkey.0
                || is_on(Mutant::InvalidateComparesWrongKey) && wrong::is_same_upper_part(window.key, rkey.0)
        });
        let window = window.ok_or(WindowFault::NoWindow)?;
        if window.kind != Kind::Type2 {
            return Err(WindowFault::WrongType);
        }
        if window.pd != who.pd {
            return Err(WindowFault::WrongPd);
        }
        let binding = window.binding.ok_or(WindowFault::Unbound)?;
        if !binding.is_open_to(who.qpn) {
            return Err(WindowFault::WrongQp);
        }
        self.unbind(id);
        Ok(())
    }

    /// The checks of a bind that concern the region.
    fn check_binding(&self, who: Accessor, bind: &Bind) -> Result<Binding, WindowFault> {
        let region = self.regions.get(bind.mr.0).ok_or(WindowFault::NoRegion)?;
        if region.pd != who.pd {
            return Err(WindowFault::WrongPd);
        }
        let is_bindable =
            region.access.contains(Access::MW_BIND) && !region.access.contains(Access::ZERO_BASED);
        if !is_bindable || matches!(region.backing, Backing::Nothing) {
            return Err(WindowFault::NotBindable);
        }
        if !is_on(Mutant::BindIgnoresRights) {
            check_rights(region, bind)?;
        }
        let offset = bind
            .addr
            .checked_sub(region.iova)
            .ok_or(WindowFault::OutOfBounds)?;
        let length = region.extent().length;
        if bind.length > length || offset > length - bind.length {
            return Err(WindowFault::OutOfBounds);
        }
        let first = if bind.access.contains(Access::ZERO_BASED) {
            0
        } else {
            bind.addr
        };
        let opening = match bind.mw_type {
            MwType::Type1 => Opening::Domain,
            MwType::Type2 => Opening::QueuePair {
                qpn: who.qpn,
                place: self.windows.through_queue_pairs.len(),
            },
        };
        Ok(Binding {
            region: bind.mr.0,
            offset,
            first,
            length: bind.length,
            access: bind.access,
            opening,
        })
    }
}

/// Refuse rights that no window can have. EINVAL.
pub(crate) fn check_access(access: Access) -> Result<()> {
    let ignored = Access::LOCAL_WRITE | OPTIONAL;
    let unknown = access.difference(GRANTABLE.union(ignored));
    if unknown.is_empty() {
        Ok(())
    } else {
        Err(Error::invalid(format!(
            "access flags {:#x} of a memory window; it may have REMOTE_READ, REMOTE_WRITE, REMOTE_ATOMIC, \
             FLUSH_GLOBAL and ZERO_BASED",
            unknown.bits()
        )))
    }
}

/// The checks of a bind that concern the window.
fn check_window(window: &Window, who: Accessor, bind: &Bind) -> Result<(), WindowFault> {
    match (window.kind, bind.mw_type) {
        (Kind::Type1 { .. }, MwType::Type1) => {}
        (Kind::Type2, MwType::Type2) if window.binding.is_some() => return Err(WindowFault::Bound),
        (Kind::Type2, MwType::Type2) if bind.length == 0 => return Err(WindowFault::Empty),
        (Kind::Type2, MwType::Type2) => {}
        (Kind::Type1 { .. }, MwType::Type2) | (Kind::Type2, MwType::Type1) => {
            return Err(WindowFault::WrongType);
        }
    }
    if window.pd != who.pd {
        return Err(WindowFault::WrongPd);
    }
    if is_on(Mutant::BindWantsTheNextKey) && !wrong::is_next_key(bind.rkey.0, window.key) {
        return Err(WindowFault::WrongKey);
    }
    if window.key & !TAG != bind.rkey.0 & !TAG {
        return Err(WindowFault::WrongKey);
    }
    Ok(())
}

fn check_rights(region: &Region, bind: &Bind) -> Result<(), WindowFault> {
    let writes = Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let may_write = region.access.contains(Access::LOCAL_WRITE);
    let is_zero_based_type1 = bind.mw_type == MwType::Type1 && bind.access.contains(Access::ZERO_BASED);
    if bind.access.intersects(writes) && !may_write || is_zero_based_type1 {
        return Err(WindowFault::AccessDenied);
    }
    Ok(())
}
