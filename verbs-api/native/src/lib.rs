//! The provider backed by libibverbs, that is by a real card or the kernel's soft ones.
//!
//! The library is opened at run time ([`Native::new`]); nothing of it is needed to build. What this provider offers so
//! far: devices, protection domains, memory regions, completion queues and channels, RC, UC queue pairs with
//! SEND, WRITE, READ and atomics. Everything else answers `Unsupported`, and its handle types have no values
//! ([`Absent`]).
//!
//! The drop-in of softroce carries the same names as the real library. Opening it by mistake would compare softroce with
//! itself, so that it is refused unless asked for ([`DropIn::Accepted`]).

mod absent;
mod completion;
mod context;
mod library;
mod memory;
mod qp;
mod raw;

use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

use verbs_api::{DeviceInfo, Error, ErrorKind, Provider, Result};
use verbs_sys::ibv_device;

pub use absent::Absent;
pub use completion::{Channel, Cq};
pub use context::Context;
pub use memory::{Mr, Pd};
pub use qp::Qp;

use library::Library;

/// Whether softroce's drop-in may stand in for the real library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropIn {
    /// It is an error.
    Refused,
    /// It is what a test wants.
    Accepted,
}

/// The provider.
#[derive(Clone, Debug)]
pub struct Native {
    library: Arc<Library>,
}

impl Native {
    /// Open `libibverbs.so.1` as the system finds it.
    ///
    /// # Errors
    /// `NotFound` when there is no such library, or it lacks a function; the message names it.
    pub fn new() -> Result<Native> {
        Native::open_library(Path::new("libibverbs.so.1"), DropIn::Refused)
    }

    /// Open the library of this path (or bare name, for the system's own search).
    pub fn open_library(path: &Path, drop_in: DropIn) -> Result<Native> {
        Ok(Native {
            library: Library::open(path, drop_in)?,
        })
    }

    /// Call `visit` with each device until it returns something.
    fn visit_devices<T>(&self, mut visit: impl FnMut(*mut ibv_device) -> Option<T>) -> Result<Option<T>> {
        let mut count = 0;
        // SAFETY: `count` is a valid place.
        let list = unsafe { (self.library.ibv_get_device_list)(&mut count) };
        if list.is_null() {
            let source = std::io::Error::last_os_error();
            return Err(Error::new(
                ErrorKind::from_errno(source.raw_os_error().unwrap_or(libc::EIO)),
                format!(
                    "listing RDMA devices: {source}. Is the kernel module ib_uverbs loaded, and may this user read it?"
                ),
            ));
        }
        let found = (0..usize::try_from(count).unwrap_or(0)).find_map(|i| {
            // SAFETY: the list holds `count` devices.
            visit(unsafe { *list.add(i) })
        });
        // SAFETY: the list came from the library and nobody keeps a pointer into it: `visit` has returned.
        unsafe { (self.library.ibv_free_device_list)(list) };
        Ok(found)
    }

    fn name_of(&self, device: *mut ibv_device) -> String {
        // SAFETY: the device is in a live list, and its name is a C string.
        unsafe { CStr::from_ptr((self.library.ibv_get_device_name)(device)) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Provider for Native {
    type Context = Context;
    type Pd = Pd;
    type Mr = Mr;
    type Dm = Absent;
    type Mw = Absent;
    type Channel = Channel;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Absent;
    type XrcDomain = Absent;
    type Ah = Absent;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let mut devices = Vec::new();
        self.visit_devices(|device| {
            // SAFETY: the device is in a live list.
            let guid = u64::from_be(unsafe { (self.library.ibv_get_device_guid)(device) });
            devices.push(DeviceInfo {
                name: self.name_of(device),
                guid,
            });
            None::<()>
        })?;
        Ok(devices)
    }

    fn open(&self, name: &str) -> Result<Context> {
        let opened = self.visit_devices(|device| {
            (self.name_of(device) == name).then(|| Context::open(&self.library, device, name))
        })?;
        opened.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no RDMA device {name:?}; ibv_devices lists them"),
            ))
        })
    }
}
