//! An open device.

use std::ffi::c_int;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use verbs_api::{
    AsyncEvent, AsyncEventGuard, Capabilities, CqInit, DeviceAttr, Error, EventKind, EventSource, Gid,
    GidEntry, GidType, Object, PortAttr, Refused, Result,
};
use verbs_sys::convert::{device_attr_from_c, gid_entry_from_c, port_attr_from_c};
use verbs_sys::*;

use crate::library::{Library, check, last_error};
use crate::raw::{Raw, sole_owner};
use crate::{Channel, Cq, Native, Pd};

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) raw: Raw<ibv_context>,
    pub(crate) library: Arc<Library>,
    name: String,
}

/// An open device.
#[derive(Debug)]
pub struct Context(pub(crate) Arc<Inner>);

/// Make a descriptor never block: waiting is done with `poll`.
pub(crate) fn set_nonblocking(fd: c_int) -> Result<()> {
    // SAFETY: plain system calls on a descriptor.
    let result = unsafe {
        let flags = libc::fcntl(fd, libc::F_GETFL);
        if flags < 0 {
            flags
        } else {
            libc::fcntl(fd, libc::F_SETFL, flags | libc::O_NONBLOCK)
        }
    };
    if result < 0 {
        Err(last_error("making an event descriptor non-blocking"))
    } else {
        Ok(())
    }
}

impl Context {
    pub(crate) fn open(library: &Arc<Library>, device: *mut ibv_device, name: &str) -> Result<Context> {
        // SAFETY: the device is in a live list; the context is ours from here on.
        let raw = unsafe {
            Raw::new(
                "opening an RDMA device",
                (library.ibv_open_device)(device),
                library.ibv_close_device,
            )?
        };
        // SAFETY: the context is alive.
        set_nonblocking(unsafe { (*raw.as_ptr()).async_fd })?;
        Ok(Context(Arc::new(Inner {
            raw,
            library: library.clone(),
            name: name.into(),
        })))
    }

    fn as_ptr(&self) -> *mut ibv_context {
        self.0.raw.as_ptr()
    }

    /// `query_port` of the second table, where there is one that reaches so far.
    fn query_port_op(
        &self,
    ) -> Option<unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr, usize) -> c_int> {
        let context = self.as_ptr();
        // SAFETY: the context is alive. When it says that it is the tail of the larger struct, that struct lies before
        // it, `sz` at its fixed place; the operation is read only when `sz` covers it.
        unsafe {
            if (*context).abi_compat != ibv_context::EXTENDED {
                return None;
            }
            let extended = context
                .byte_sub(offset_of!(verbs_context, context))
                .cast::<verbs_context>();
            let size = (&raw const (*extended).sz).read();
            if size < verbs_context::reach(offset_of!(verbs_context, query_port)) {
                return None;
            }
            (&raw const (*extended).query_port).read()
        }
    }

    fn gid_table_one_by_one(&self) -> Result<Vec<GidEntry>> {
        let ports = verbs_api::Context::query_device(self)?.phys_port_cnt;
        let mut entries = Vec::new();
        for port in 1..=ports {
            for index in 0..verbs_api::Context::query_port(self, port)?.gid_tbl_len {
                let mut gid = ibv_gid::default();
                // SAFETY: the context is alive, `gid` a valid place.
                let result =
                    unsafe { (self.0.library.ibv_query_gid)(self.as_ptr(), port, index as c_int, &mut gid) };
                if result == 0 && gid != ibv_gid::default() {
                    let gid = Gid(gid.raw);
                    entries.push(GidEntry {
                        gid,
                        index,
                        port,
                        gid_type: GidType::Ib,
                        interface_index: 0,
                    });
                }
            }
        }
        Ok(entries)
    }
}

impl Object for Context {
    fn destroy(self) -> Result<(), Refused<Self>> {
        let inner = sole_owner(self.0, "device").map_err(|refused| Refused {
            object: Context(refused.object),
            error: refused.error,
        })?;
        let Inner { raw, library, name } = inner;
        raw.destroy().map_err(|refused| Refused {
            object: Context(Arc::new(Inner {
                raw: refused.object,
                library,
                name,
            })),
            error: refused.error,
        })
    }
}

impl verbs_api::Context for Context {
    type P = Native;

    fn name(&self) -> &str {
        &self.0.name
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            qp_rc: true,
            qp_uc: true,
            resize_cq: true,
            ..Capabilities::default()
        }
    }

    fn query_device(&self) -> Result<DeviceAttr> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is alive, `attr` a valid place.
        check("querying the device", unsafe {
            (self.0.library.ibv_query_device)(self.as_ptr(), attr.as_mut_ptr())
        })?;
        // SAFETY: zeroed at least, and filled in by the library.
        let mut out = device_attr_from_c(unsafe { attr.assume_init_ref() });
        // SAFETY: the context is alive.
        out.num_comp_vectors = unsafe { (*self.as_ptr()).num_comp_vectors }
            .try_into()
            .unwrap_or(1);
        Ok(out)
    }

    fn query_port(&self, port: u8) -> Result<PortAttr> {
        // Zeroed and with room to spare: the exported function fills in the older, shorter struct.
        let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
        let context = self.as_ptr();
        let result = match self.query_port_op() {
            // SAFETY: the context is alive, `attr` has the length that is passed.
            Some(query) => unsafe { query(context, port, attr.as_mut_ptr(), size_of::<ibv_port_attr>()) },
            // SAFETY: as above.
            None => unsafe { (self.0.library.ibv_query_port)(context, port, attr.as_mut_ptr()) },
        };
        check("querying a port", result)?;
        // SAFETY: zeroed at least, and filled in by the library.
        Ok(port_attr_from_c(unsafe { attr.assume_init_ref() }))
    }

    fn gid_table(&self) -> Result<Vec<GidEntry>> {
        const ENTRIES_MAX: usize = 1024;
        let Some(query) = self.0.library.query_gid_table else {
            return self.gid_table_one_by_one();
        };
        let mut entries: Vec<ibv_gid_entry> = Vec::with_capacity(ENTRIES_MAX);
        // SAFETY: there is room for the entries that are asked for.
        let count = unsafe {
            query(
                self.as_ptr(),
                entries.as_mut_ptr(),
                ENTRIES_MAX,
                0,
                size_of::<ibv_gid_entry>(),
            )
        };
        if count < 0 {
            return Err(Error::system(
                "querying the GID table",
                std::io::Error::from_raw_os_error(-i32::try_from(count).unwrap_or(-libc::EIO)),
            ));
        }
        // SAFETY: the library has filled in that many.
        unsafe { entries.set_len((count as usize).min(ENTRIES_MAX)) };
        Ok(entries.iter().filter_map(gid_entry_from_c).collect())
    }

    fn query_pkey(&self, port: u8, index: u16) -> Result<u16> {
        let mut pkey = 0;
        // SAFETY: the context is alive, `pkey` a valid place.
        let result =
            unsafe { (self.0.library.ibv_query_pkey)(self.as_ptr(), port, c_int::from(index), &mut pkey) };
        check("querying a P_Key", result)?;
        Ok(u16::from_be(pkey))
    }

    fn alloc_pd(&self) -> Result<Pd> {
        Pd::alloc(self)
    }

    fn create_channel(&self) -> Result<Channel> {
        Channel::create(self)
    }

    fn create_cq(&self, init: &CqInit<'_, Native>) -> Result<Cq> {
        Cq::create(self, init)
    }

    fn async_event(&self) -> Result<Option<AsyncEventGuard>> {
        let mut event = ibv_async_event {
            element: std::ptr::null_mut(),
            event_type: 0,
        };
        // SAFETY: the context is alive, `event` a valid place.
        if unsafe { (self.0.library.ibv_get_async_event)(self.as_ptr(), &mut event) } != 0 {
            let error = last_error("taking an asynchronous event");
            return if error.errno() == libc::EAGAIN {
                Ok(None)
            } else {
                Err(error)
            };
        }
        let pending = PendingEvent {
            event,
            inner: self.0.clone(),
        };
        let kind = EventKind::from_code(event.event_type as u32).unwrap_or(EventKind::DeviceFatal);
        let source = event_source(&event, kind);
        Ok(Some(AsyncEventGuard::new(
            AsyncEvent { kind, source },
            move || pending.acknowledge(),
        )))
    }

    fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor lives as long as the context, which `self` keeps alive.
        unsafe { BorrowedFd::borrow_raw((*self.as_ptr()).async_fd) }
    }
}

struct PendingEvent {
    event: ibv_async_event,
    inner: Arc<Inner>,
}

// SAFETY: an event may be acknowledged from any thread.
unsafe impl Send for PendingEvent {}

impl PendingEvent {
    fn acknowledge(mut self) {
        // SAFETY: an object with events not acknowledged cannot be destroyed, so that it is alive.
        unsafe { (self.inner.library.ibv_ack_async_event)(&mut self.event) }
    }
}

fn event_source(event: &ibv_async_event, kind: EventKind) -> EventSource {
    use EventKind::*;
    // SAFETY: the kind says what the element is, and an object with events not acknowledged is alive.
    unsafe {
        match kind {
            QpFatal | QpReqErr | QpAccessErr | CommEst | SqDrained | PathMig | PathMigErr
            | QpLastWqeReached => EventSource::Qp((*event.element.cast::<ibv_qp>()).qp_num),
            CqErr => EventSource::Cq((*event.element.cast::<ibv_cq>()).cq_context as u64),
            SrqErr | SrqLimitReached => {
                EventSource::Srq((*event.element.cast::<ibv_srq>()).srq_context as u64)
            }
            PortActive | PortErr | LidChange | PkeyChange | SmChange | ClientReregister | GidChange => {
                // The union holds an `int` here.
                EventSource::Port((event.element as usize as u32) as u8)
            }
            DeviceFatal | WqFatal => EventSource::Device,
        }
    }
}
