//! The functions of libibverbs, found by name in the library opened at run time.

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use verbs_api::{Error, ErrorKind, Result};
use verbs_sys::*;

use crate::DropIn;

/// Exported by softroce's drop-in alone.
const DROP_IN_MARK: &CStr = c"softroce_dropin";

/// Without these there is nothing to start with, so that a library without them is no libibverbs.
const ESSENTIAL: [&str; 4] = [
    "ibv_get_device_list",
    "ibv_free_device_list",
    "ibv_open_device",
    "ibv_close_device",
];

/// The functions of a library, by name and type.
macro_rules! functions {
    ($library:literal: $($name:ident: fn($($argument:ty),*) $(-> $result:ty)?,)*) => {
        /// The functions that the library has. It stays open for the life of the process: it may have started threads.
        #[derive(Clone, Copy)]
        pub(crate) struct Library {
            $($name: Option<unsafe extern "C" fn($($argument),*) $(-> $result)?>,)*
        }

        impl Library {
            fn load(handle: $crate::library::Handle) -> Library {
                Library {
                    $(
                        $name: handle.find(stringify!($name)).map(|symbol| {
                            // SAFETY: the function of this name has this type by the library's ABI.
                            unsafe {
                                std::mem::transmute::<
                                    *mut std::ffi::c_void,
                                    unsafe extern "C" fn($($argument),*) $(-> $result)?,
                                >(symbol)
                            }
                        }),
                    )*
                }
            }

            $(
                /// The function, or `Unsupported` with its name.
                pub(crate) fn $name(&self) -> Result<unsafe extern "C" fn($($argument),*) $(-> $result)?> {
                    self.$name.ok_or_else(|| Error::unsupported(concat!(stringify!($name), ", which this ", $library, " lacks,")))
                }
            )*
        }

        impl std::fmt::Debug for Library {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str($library)
            }
        }
    };
}
pub(crate) use functions;

functions! {
    "libibverbs":
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device,
    ibv_free_device_list: fn(*mut *mut ibv_device),
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char,
    ibv_get_device_guid: fn(*mut ibv_device) -> u64,
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context,
    ibv_close_device: fn(*mut ibv_context) -> c_int,
    ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
    ibv_query_gid: fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
    _ibv_query_gid_table: fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize,
    _ibv_query_gid_ex: fn(*mut ibv_context, u32, u32, *mut ibv_gid_entry, u32, usize) -> c_int,
    ibv_query_pkey: fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int,
    ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int,
    ibv_ack_async_event: fn(*mut ibv_async_event),
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd,
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int,
    ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
    ibv_reg_mr_iova2: fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr,
    ibv_rereg_mr: fn(*mut ibv_mr, c_int, *mut ibv_pd, *mut c_void, usize, c_int) -> c_int,
    ibv_dereg_mr: fn(*mut ibv_mr) -> c_int,
    ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel,
    ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int,
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
    ibv_resize_cq: fn(*mut ibv_cq, c_int) -> c_int,
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int,
    ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    ibv_ack_cq_events: fn(*mut ibv_cq, c_uint),
    ibv_create_srq: fn(*mut ibv_pd, *mut ibv_srq_init_attr) -> *mut ibv_srq,
    ibv_modify_srq: fn(*mut ibv_srq, *mut ibv_srq_attr, c_int) -> c_int,
    ibv_query_srq: fn(*mut ibv_srq, *mut ibv_srq_attr) -> c_int,
    ibv_destroy_srq: fn(*mut ibv_srq) -> c_int,
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    ibv_qp_to_qp_ex: fn(*mut ibv_qp) -> *mut ibv_qp_ex,
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    ibv_query_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int,
    ibv_query_qp_data_in_order: fn(*mut ibv_qp, c_int, u32) -> c_int,
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int,
    ibv_attach_mcast: fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int,
    ibv_detach_mcast: fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int,
    ibv_create_ah: fn(*mut ibv_pd, *mut ibv_ah_attr) -> *mut ibv_ah,
    ibv_create_ah_from_wc: fn(*mut ibv_pd, *mut ibv_wc, *mut ibv_grh, u8) -> *mut ibv_ah,
    ibv_destroy_ah: fn(*mut ibv_ah) -> c_int,
}

/// Whose library it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Maker {
    /// Softroce: it is the drop-in, and librdmacm too.
    Softroce,
    /// Somebody else.
    Other,
}

impl Library {
    pub(crate) fn open(path: &Path, drop_in: DropIn) -> Result<(Arc<Library>, Maker)> {
        let handle = Handle::open(path, "libibverbs1 and ibverbs-providers")?;
        let maker = match handle.drop_in_mark() {
            Some(_) => Maker::Softroce,
            None => Maker::Other,
        };
        if drop_in == DropIn::Refused && maker == Maker::Softroce {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "{} is softroce's drop-in, not the system's library: run without `softroce run`, or ask for the \
                     drop-in by name",
                    path.display()
                ),
            ));
        }
        if let Some(name) = ESSENTIAL.iter().find(|name| handle.find(name).is_none()) {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!("{} has no function {name}: it is no libibverbs", path.display()),
            ));
        }
        Ok((Arc::new(Library::load(handle)), maker))
    }

    /// Where its code lies, as a number that two handles of one library have in common.
    pub(crate) fn identity(&self) -> usize {
        self.ibv_open_device.map_or(0, |function| function as usize)
    }
}

/// The library as `dlopen` knows it.
#[derive(Clone, Copy)]
pub(crate) struct Handle(*mut c_void);

impl Handle {
    /// `packages`: where Debian has it.
    pub(crate) fn open(path: &Path, packages: &str) -> Result<Handle> {
        let c_path = CString::new(path.as_os_str().as_bytes())
            .map_err(|_| Error::invalid(format!("{path:?} is no path: it holds a zero byte")))?;
        // SAFETY: `c_path` is a C string.
        let handle = unsafe { libc::dlopen(c_path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            // SAFETY: no other call of the dl family lies between.
            let reason = unsafe { libc::dlerror() };
            let reason = if reason.is_null() {
                "unknown reason".into()
            } else {
                // SAFETY: not null, so a C string.
                unsafe { CStr::from_ptr(reason) }.to_string_lossy()
            };
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "cannot open {}: {reason}. It comes with rdma-core (Debian: {packages})",
                    path.display()
                ),
            ));
        }
        Ok(Handle(handle))
    }

    /// The function of this name, in the library or one that it stands on.
    pub(crate) fn find(self, name: &str) -> Option<*mut c_void> {
        let c_name = CString::new(name).expect("names of functions hold no zero byte");
        self.find_c(&c_name)
    }

    /// What softroce's drop-in alone has.
    pub(crate) fn drop_in_mark(self) -> Option<*mut c_void> {
        self.find_c(DROP_IN_MARK)
    }

    fn find_c(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and the name a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }
}

/// The result of a verb that returns 0 or an error number (or -1 with `errno`).
pub(crate) fn check(what: &str, result: c_int) -> Result<()> {
    match result {
        0 => Ok(()),
        errno if errno > 0 => Err(error(what, errno)),
        _ => Err(last_error(what)),
    }
}

/// The error of a verb that has just returned NULL or -1.
pub(crate) fn last_error(what: &str) -> Error {
    error(
        what,
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

fn error(what: &str, errno: i32) -> Error {
    let hint = match errno {
        libc::ENOMEM => " (a limit of the device, or of locked memory: see ulimit -l)",
        libc::EPERM | libc::EACCES => " (may this user open /dev/infiniband/uverbs*?)",
        libc::EBUSY => " (another object still uses it)",
        _ => "",
    };
    // Drivers say ENOSYS too when they lack an operation.
    let kind = match errno {
        libc::ENOSYS => ErrorKind::Unsupported,
        errno => ErrorKind::from_errno(errno),
    };
    let text = std::io::Error::from_raw_os_error(errno);
    Error::new(kind, format!("{what}: {text}{hint}"))
}
