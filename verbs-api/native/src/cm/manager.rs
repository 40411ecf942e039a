//! The calls of librdmacm, one at a time, and the ids that there are.
//!
//! librdmacm allows calls about different ids at once, but not about one. All calls are made under one lock: connections
//! are made seldom enough. None of them waits: an event channel does not block, and an id is destroyed or moved when all of
//! its events are acknowledged.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use verbs_api::{CmPortSpace, DeviceAttr, Error, ErrorKind, QpType, Result};
use verbs_sys::convert::sockaddr_from_c;
use verbs_sys::*;

use super::channel::RawChannel;
use super::id::IdInner;
use super::library::Library;
use crate::library::Library as Verbs;
use crate::query;

mod calls;

/// An id of the library. What is behind it is touched under the lock of its [`Manager`] only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RawId(NonNull<rdma_cm_id>);

// SAFETY: ids belong to no thread; the lock keeps threads apart.
unsafe impl Send for RawId {}
// SAFETY: as above.
unsafe impl Sync for RawId {}

impl RawId {
    pub(super) fn new(id: *mut rdma_cm_id) -> Option<RawId> {
        NonNull::new(id).map(RawId)
    }

    fn as_ptr(self) -> *mut rdma_cm_id {
        self.0.as_ptr()
    }
}

/// An opened librdmacm.
#[derive(Debug)]
pub(super) struct Manager {
    library: Library,
    ids: Mutex<Ids>,
}

/// Those that are not destroyed.
type Ids = HashMap<RawId, Weak<IdInner>>;

impl Manager {
    pub(super) fn new(library: Library) -> Manager {
        Manager {
            library,
            ids: Mutex::default(),
        }
    }

    /// Take one's turn. Nothing may be dropped during it that could be the last of an id or a channel: that takes a turn of
    /// its own.
    pub(super) fn turn(&self) -> Turn<'_> {
        Turn {
            library: &self.library,
            ids: self.ids.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The right to call the library.
pub(super) struct Turn<'a> {
    library: &'a Library,
    ids: MutexGuard<'a, Ids>,
}

/// The result of a call that returns 0, or -1 with `errno`, or an error number.
fn done(what: &str, result: c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        errno if errno > 0 => Err(failed(what, std::io::Error::from_raw_os_error(errno))),
        _ => Err(failed(what, std::io::Error::last_os_error())),
    }
}

fn failed(what: &str, source: std::io::Error) -> Error {
    let kind = match source.raw_os_error() {
        Some(libc::ENOSYS) => ErrorKind::Unsupported,
        errno => ErrorKind::from_errno(errno.unwrap_or(libc::EIO)),
    };
    Error::new(kind, format!("{what}: {source}"))
}

/// Channels.
impl Turn<'_> {
    pub(super) fn create_channel(&self) -> Result<RawChannel> {
        let create = self.library.rdma_create_event_channel()?;
        // SAFETY: no arguments.
        let channel = unsafe { create() };
        RawChannel::new(channel).ok_or_else(|| {
            let source = std::io::Error::last_os_error();
            let kind = match source.raw_os_error() {
                Some(libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::ENOSYS) => ErrorKind::Unsupported,
                errno => ErrorKind::from_errno(errno.unwrap_or(libc::EIO)),
            };
            Error::new(
                kind,
                format!(
                    "no event channel of RDMA CM: {source}. Is the kernel module rdma_ucm loaded, is there a device, and \
                     may this user open /dev/infiniband/rdma_cm?"
                ),
            )
        })
    }

    pub(super) fn destroy_channel(&self, channel: RawChannel) {
        if let Ok(destroy) = self.library.rdma_destroy_event_channel() {
            // SAFETY: alive until now, and no id is on it: each keeps its channel.
            unsafe { destroy(channel.as_ptr()) };
        }
    }

    /// The next event, if one waits. It must be given back.
    pub(super) fn next_event(&self, channel: RawChannel) -> Result<Option<NonNull<rdma_cm_event>>> {
        let next = self.library.rdma_get_cm_event()?;
        let mut event = null_mut();
        // SAFETY: the channel is alive, the place valid.
        let result = unsafe { next(channel.as_ptr(), &mut event) };
        match done("taking an event of RDMA CM", result) {
            Ok(()) => NonNull::new(event)
                .map(Some)
                .ok_or_else(|| Error::invalid("librdmacm has returned an event that is NULL")),
            Err(error) if matches!(error.errno(), libc::EAGAIN | libc::EINTR) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Give an event back.
    pub(super) fn acknowledge(&self, event: NonNull<rdma_cm_event>) -> Result<()> {
        let acknowledge = self.library.rdma_ack_cm_event()?;
        // SAFETY: it came from the library and was not given back.
        done("acknowledging an event of RDMA CM", unsafe {
            acknowledge(event.as_ptr())
        })
    }
}

/// Ids: their beginning and end, and what C shows of them.
impl Turn<'_> {
    pub(super) fn create_id(&self, channel: RawChannel, space: CmPortSpace, cookie: u64) -> Result<RawId> {
        let create = self.library.rdma_create_id()?;
        let mut id = null_mut();
        // SAFETY: the channel is alive, the place valid; the context is a number to the library.
        let result = unsafe {
            create(
                channel.as_ptr(),
                &mut id,
                cookie as usize as *mut c_void,
                space as c_int,
            )
        };
        done("making an id of RDMA CM", result)?;
        RawId::new(id).ok_or_else(|| Error::invalid("librdmacm has made an id that is NULL"))
    }

    /// From now on events find it.
    pub(super) fn know(&mut self, id: &Arc<IdInner>) {
        self.ids.insert(id.raw, Arc::downgrade(id));
    }

    pub(super) fn is_known(&self, id: RawId) -> bool {
        self.ids.contains_key(&id)
    }

    /// Who holds it, if anybody still does.
    pub(super) fn find(&self, id: RawId) -> Option<Arc<IdInner>> {
        self.ids.get(&id)?.upgrade()
    }

    /// All of its events are acknowledged. After a refusal it is as before.
    pub(super) fn destroy_id(&mut self, id: RawId) -> Result<()> {
        let destroy = self.library.rdma_destroy_id()?;
        // Before the call: another id may get its address.
        let entry = self.ids.remove(&id);
        // SAFETY: alive until now, and nobody comes here a second time.
        let result = done("destroying an id of RDMA CM", unsafe { destroy(id.as_ptr()) });
        if let (Err(_), Some(entry)) = (&result, entry) {
            self.ids.insert(id, entry);
        }
        result
    }

    pub(super) fn migrate(&self, id: RawId, channel: RawChannel) -> Result<()> {
        let migrate = self.library.rdma_migrate_id()?;
        // SAFETY: both are alive.
        done("moving an id to another event channel", unsafe {
            migrate(id.as_ptr(), channel.as_ptr())
        })
    }

    /// Whether it is one of datagrams; of an id that is not known, nothing can be said.
    pub(super) fn is_about_datagrams(&self, id: RawId) -> bool {
        // SAFETY: an id that is known is alive.
        let space = || unsafe { (*id.as_ptr()).ps };
        self.is_known(id) && CmPortSpace::from_code(space() as u32).is_some_and(CmPortSpace::is_datagram)
    }

    pub(super) fn cookie(&self, id: RawId) -> u64 {
        // SAFETY: the id is alive.
        unsafe { (*id.as_ptr()).context as u64 }
    }

    pub(super) fn set_cookie(&self, id: RawId, cookie: u64) {
        // SAFETY: the id is alive; the member is the program's.
        unsafe { (*id.as_ptr()).context = cookie as usize as *mut c_void };
    }

    /// The channel that it is on.
    pub(super) fn channel_of(&self, id: RawId) -> Option<RawChannel> {
        // SAFETY: the id is alive.
        RawChannel::new(unsafe { (*id.as_ptr()).channel })
    }

    /// The kind of queue pair that it is about, where that does not follow from the port space.
    pub(super) fn set_qp_type(&self, id: RawId, qp_type: QpType) {
        // SAFETY: the id is alive; the member is the program's.
        unsafe { (*id.as_ptr()).qp_type = qp_type as c_int };
    }

    /// The device, as the library has opened it.
    fn verbs(&self, id: RawId) -> Option<NonNull<ibv_context>> {
        // SAFETY: the id is alive.
        NonNull::new(unsafe { (*id.as_ptr()).verbs })
    }

    /// The device.
    pub(super) fn device(&self, id: RawId) -> Option<NonNull<ibv_device>> {
        // SAFETY: the library keeps the context open as long as the id is on it.
        NonNull::new(unsafe { self.verbs(id)?.as_ref() }.device)
    }

    /// What it can do.
    pub(super) fn device_attr(&self, id: RawId, verbs: &Verbs) -> Result<DeviceAttr> {
        let context = self
            .verbs(id)
            .ok_or_else(|| Error::invalid("the id is bound to no device yet"))?;
        // SAFETY: as above.
        unsafe { query::plain_attr_of(verbs, context.as_ptr()) }
    }

    /// Its own address.
    pub(super) fn local_addr(&self, id: RawId) -> Option<SocketAddr> {
        // SAFETY: the id is alive.
        let address = sockaddr_from_c(unsafe { &(*id.as_ptr()).route.addr.src_addr })?;
        // That is said of an id that is bound to nothing, when it knows its peer.
        (address.port() != 0 || !address.ip().is_unspecified()).then_some(address)
    }

    pub(super) fn peer_addr(&self, id: RawId) -> Option<SocketAddr> {
        // SAFETY: the id is alive.
        let address = sockaddr_from_c(unsafe { &(*id.as_ptr()).route.addr.dst_addr })?;
        (!address.ip().is_unspecified()).then_some(address)
    }
}
