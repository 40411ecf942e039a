//! The provider backed by libibverbs, that is by a real card or the kernel's soft ones.
//!
//! The library is opened at run time ([`Native::new`]); nothing of it is needed to build. All of verbs is offered: what
//! the library or a driver lacks answers `Unsupported` with the name of the function or operation.
//!
//! Connections by address and port go through librdmacm, opened likewise ([`Native::connection_manager`]).
//!
//! Events are acknowledged when their guards are dropped. `destroy` waits for that, as in C; dropping a handle does not:
//! an event that was taken keeps its object alive, and the last guard destroys it.
//!
//! The drop-in of softroce carries the same names as the real library. Opening it by mistake would compare softroce with
//! itself, so that it is refused unless asked for ([`DropIn::Accepted`]).

mod address;
mod builder;
mod channel;
mod cm;
mod completion;
mod context;
mod device_memory;
mod domain;
mod events;
mod library;
mod memory;
mod polling;
mod post;
mod probe;
mod qp;
mod query;
mod raw;
mod srq;
mod tables;
mod window;
mod xrc;

use std::collections::HashMap;
use std::ffi::CStr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use verbs_api::{DeviceInfo, Error, ErrorKind, Provider, Result};
use verbs_sys::ibv_device;

pub use address::Ah;
pub use channel::Channel;
pub use cm::{Cm, CmId};
pub use completion::Cq;
pub use context::{Context, Transport};
pub use device_memory::Dm;
pub use domain::Pd;
pub use memory::Mr;
pub use qp::Qp;
pub use srq::Srq;
pub use window::Mw;
pub use xrc::XrcDomain;

use library::Library;
use probe::Probed;

/// Whether softroce's drop-in may stand in for the real library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropIn {
    /// It is an error.
    Refused,
    /// It is what a test wants.
    Accepted,
}

/// By which of libibverbs' two interfaces requests are posted and completions polled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Interface {
    /// Lists (`ibv_post_send`, `ibv_poll_cq`), and the other one for what they lack: FLUSH, completion timestamps.
    #[default]
    Lists,
    /// Builder and cursor (`ibv_wr_*`, `ibv_start_poll`) throughout.
    Extended,
}

/// The provider.
#[derive(Clone, Debug)]
pub struct Native {
    library: Arc<Library>,
    interface: Interface,
    /// What was found out about devices by trying, by name: it does not change.
    probed: Arc<Mutex<HashMap<String, Arc<Probed>>>>,
    managers: Arc<cm::Managers>,
}

impl Native {
    /// Open `libibverbs.so.1` as the system finds it.
    ///
    /// # Errors
    /// `NotFound` when there is no such library, or it is another one; the message says what to do.
    pub fn new() -> Result<Native> {
        Native::open_library(Path::new("libibverbs.so.1"), DropIn::Refused)
    }

    /// Open the library of this path (or bare name, for the system's own search).
    pub fn open_library(path: &Path, drop_in: DropIn) -> Result<Native> {
        let (library, maker) = Library::open(path, drop_in)?;
        Ok(Native {
            library,
            interface: Interface::default(),
            probed: Arc::default(),
            managers: Arc::new(cm::Managers::beside(path, maker)),
        })
    }

    /// The same with another interface for what is opened from now on.
    pub fn with_interface(self, interface: Interface) -> Native {
        Native { interface, ..self }
    }

    /// Call `visit` with each device until it returns something.
    fn visit_devices<T>(&self, mut visit: impl FnMut(*mut ibv_device) -> Option<T>) -> Result<Option<T>> {
        let (list_devices, free_list) = (
            self.library.ibv_get_device_list()?,
            self.library.ibv_free_device_list()?,
        );
        let mut count = 0;
        // SAFETY: `count` is a valid place.
        let list = unsafe { list_devices(&mut count) };
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
        unsafe { free_list(list) };
        Ok(found)
    }

    fn name_of(&self, device: *mut ibv_device) -> String {
        match self.library.ibv_get_device_name() {
            // SAFETY: the device is in a live list, and its name is a C string.
            Ok(name) => unsafe { CStr::from_ptr(name(device)) }
                .to_string_lossy()
                .into_owned(),
            // SAFETY: the device is in a live list.
            Err(_) => verbs_sys::convert::text_from_c(unsafe { &(*device).name }),
        }
    }
}

impl Provider for Native {
    type Context = Context;
    type Pd = Pd;
    type Mr = Mr;
    type Dm = Dm;
    type Mw = Mw;
    type Channel = Channel;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;
    type XrcDomain = XrcDomain;
    type Ah = Ah;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        let guid_of = self.library.ibv_get_device_guid()?;
        let mut devices = Vec::new();
        self.visit_devices(|device| {
            // SAFETY: the device is in a live list.
            let guid = u64::from_be(unsafe { guid_of(device) });
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
            (self.name_of(device) == name).then(|| Context::open(self, device, name))
        })?;
        opened.unwrap_or_else(|| {
            Err(Error::new(
                ErrorKind::NotFound,
                format!("there is no RDMA device {name:?}; ibv_devices lists them"),
            ))
        })
    }
}
