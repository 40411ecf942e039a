//! A queue pair in the hands of a connection manager. Its owner may destroy it at any time; from then on it is not touched.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use verbs_api::{Error, QpType, Result};
use verbs_sys::{ibv_gid, ibv_qp, ibv_qp_attr};

use super::{Keep, Qp};
use crate::library::{Library, check};
use crate::raw::Raw;

/// Whether a queue pair may be touched by others than its handle. Locked while they do.
#[derive(Clone, Debug, Default)]
pub(super) struct Presence(Arc<Mutex<IsHere>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum IsHere {
    #[default]
    Yes,
    No,
}

impl Presence {
    fn set(&self, is_here: IsHere) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = is_here;
    }

    /// The owner destroys it. Waits until nobody touches it.
    pub(super) fn ends(&self) {
        self.set(IsHere::No);
    }

    /// It could not be destroyed.
    pub(super) fn stays(&self) {
        self.set(IsHere::Yes);
    }
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub(crate) struct Bound {
    qp: Weak<Raw<ibv_qp, Keep>>,
    presence: Presence,
    library: Arc<Library>,
    pub(crate) qpn: u32,
    pub(crate) qp_type: QpType,
    pub(crate) has_srq: bool,
}

impl Bound {
    pub(crate) fn new(qp: &Qp) -> Bound {
        // SAFETY: the queue pair is alive.
        let (qpn, has_srq) = unsafe { ((*qp.as_ptr()).qp_num, !(*qp.as_ptr()).srq.is_null()) };
        Bound {
            qp: Arc::downgrade(&qp.raw),
            presence: qp.presence.clone(),
            library: qp.context().library.clone(),
            qpn,
            qp_type: qp.qp_type,
            has_srq,
        }
    }

    /// Do something with it, while it is sure to be alive.
    fn with(&self, verb: impl FnOnce(*mut ibv_qp) -> Result<()>) -> Result<()> {
        let is_here = self.presence.0.lock().unwrap_or_else(PoisonError::into_inner);
        match (*is_here, self.qp.upgrade()) {
            // Not the last to let go of it: the handle cannot end before `is_here` is unlocked.
            (IsHere::Yes, Some(qp)) => verb(qp.as_ptr()),
            (IsHere::No, _) | (_, None) => Err(Error::invalid(format!(
                "queue pair {:#x}, which the id was bound to, is destroyed",
                self.qpn
            ))),
        }
    }

    pub(crate) fn modify(&self, values: &mut ibv_qp_attr, mask: c_int) -> Result<()> {
        let modify = self.library.ibv_modify_qp()?;
        self.with(|qp| {
            // SAFETY: the queue pair is alive, the values valid.
            check("modifying the queue pair of an id", unsafe {
                modify(qp, values, mask)
            })
        })
    }

    /// Let datagrams to a group in.
    pub(crate) fn attach(&self, group: &ibv_gid, lid: u16) -> Result<()> {
        let attach = self.library.ibv_attach_mcast()?;
        self.with(|qp| {
            // SAFETY: the queue pair is alive, the group valid.
            check("joining a multicast group", unsafe { attach(qp, group, lid) })
        })
    }

    /// The contrary.
    pub(crate) fn detach(&self, group: &ibv_gid, lid: u16) -> Result<()> {
        let detach = self.library.ibv_detach_mcast()?;
        self.with(|qp| {
            // SAFETY: as above.
            check("leaving a multicast group", unsafe { detach(qp, group, lid) })
        })
    }
}
