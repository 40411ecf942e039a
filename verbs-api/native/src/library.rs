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

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?,)*) => {
        /// The functions. The library stays open for the life of the process: it may have started threads.
        #[derive(Clone, Copy)]
        pub(crate) struct Library {
            $(pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
            pub(crate) query_gid_table: Option<QueryGidTable>,
        }

        impl Library {
            fn load(handle: Handle) -> Result<Library> {
                Ok(Library {
                    $(
                        // SAFETY: the function of this name has this type by libibverbs' ABI.
                        $name: unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(
                                handle.symbol(stringify!($name))?,
                            )
                        },
                    )*
                    query_gid_table: handle.symbol("_ibv_query_gid_table").ok().map(|symbol| {
                        // SAFETY: as above.
                        unsafe { std::mem::transmute::<*mut c_void, QueryGidTable>(symbol) }
                    }),
                })
            }
        }
    };
}

/// Absent before rdma-core 32.
type QueryGidTable = unsafe extern "C" fn(*mut ibv_context, *mut ibv_gid_entry, usize, u32, usize) -> isize;

functions! {
    ibv_get_device_list: fn(*mut c_int) -> *mut *mut ibv_device,
    ibv_free_device_list: fn(*mut *mut ibv_device),
    ibv_get_device_name: fn(*mut ibv_device) -> *const c_char,
    ibv_get_device_guid: fn(*mut ibv_device) -> u64,
    ibv_open_device: fn(*mut ibv_device) -> *mut ibv_context,
    ibv_close_device: fn(*mut ibv_context) -> c_int,
    ibv_query_device: fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    ibv_query_port: fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
    ibv_query_gid: fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
    ibv_query_pkey: fn(*mut ibv_context, u8, c_int, *mut u16) -> c_int,
    ibv_get_async_event: fn(*mut ibv_context, *mut ibv_async_event) -> c_int,
    ibv_ack_async_event: fn(*mut ibv_async_event),
    ibv_alloc_pd: fn(*mut ibv_context) -> *mut ibv_pd,
    ibv_dealloc_pd: fn(*mut ibv_pd) -> c_int,
    ibv_reg_mr: fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr,
    ibv_reg_mr_iova2: fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr,
    ibv_dereg_mr: fn(*mut ibv_mr) -> c_int,
    ibv_create_comp_channel: fn(*mut ibv_context) -> *mut ibv_comp_channel,
    ibv_destroy_comp_channel: fn(*mut ibv_comp_channel) -> c_int,
    ibv_create_cq: fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq,
    ibv_resize_cq: fn(*mut ibv_cq, c_int) -> c_int,
    ibv_destroy_cq: fn(*mut ibv_cq) -> c_int,
    ibv_get_cq_event: fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    ibv_ack_cq_events: fn(*mut ibv_cq, c_uint),
    ibv_create_qp: fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    ibv_modify_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    ibv_query_qp: fn(*mut ibv_qp, *mut ibv_qp_attr, c_int, *mut ibv_qp_init_attr) -> c_int,
    ibv_destroy_qp: fn(*mut ibv_qp) -> c_int,
    ibv_attach_mcast: fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int,
    ibv_detach_mcast: fn(*mut ibv_qp, *const ibv_gid, u16) -> c_int,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("libibverbs")
    }
}

impl Library {
    pub(crate) fn open(path: &Path, drop_in: DropIn) -> Result<Arc<Library>> {
        let handle = Handle::open(path)?;
        if drop_in == DropIn::Refused && handle.find(DROP_IN_MARK).is_some() {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "{} is softroce's drop-in, not the system's library: run without `softroce run`, or ask for the \
                     drop-in by name",
                    path.display()
                ),
            ));
        }
        Library::load(handle).map(Arc::new)
    }
}

/// The library as `dlopen` knows it.
#[derive(Clone, Copy)]
struct Handle(*mut c_void);

impl Handle {
    fn open(path: &Path) -> Result<Handle> {
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
                    "cannot open {}: {reason}. It comes with rdma-core (Debian: libibverbs1 and ibverbs-providers)",
                    path.display()
                ),
            ));
        }
        Ok(Handle(handle))
    }

    fn find(self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open and the name a C string.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }

    fn symbol(self, name: &str) -> Result<*mut c_void> {
        let c_name = CString::new(name).expect("names of functions hold no zero byte");
        self.find(&c_name).ok_or_else(|| {
            Error::new(
                ErrorKind::NotFound,
                format!(
                    "the library has no function {name}: it is older than rdma-core 26, or no libibverbs"
                ),
            )
        })
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
    let text = std::io::Error::from_raw_os_error(errno);
    Error::new(ErrorKind::from_errno(errno), format!("{what}: {text}{hint}"))
}
