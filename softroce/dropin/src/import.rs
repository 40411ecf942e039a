//! Further handles of devices, domains and memory, found by the numbers that programs pass on (`ibv_import_*`).
//!
//! A device is known by the descriptor `cmd_fd` or a duplicate of it, an object by the number `handle` in its struct.
//! All within the process that opened the device: another process cannot reach this one's card, and is told so. What has
//! been imported keeps its object: EBUSY, until it is given back.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::{Arc, Weak};

use softroce::lock::{Mutex, MutexGuard};
use verbs_api::{Error, ErrorKind, MemoryRegion as _, Refused, Result};
use verbs_sys::*;

use crate::device::Registry;
use crate::device_memory::{self, DmHandle};
use crate::entry::{number, pointer};
use crate::memory::{MrHandle, PdExtra, PdHandle};
use crate::{Dm, Mr, Pd, context};

/// What of a context can be imported.
#[derive(Default)]
pub(crate) struct Exports {
    pub(crate) pds: Arc<Table<Pd>>,
    pub(crate) mrs: Arc<Table<Mutex<Mr>>>,
    pub(crate) dms: Arc<Table<Dm>>,
}

/// Objects of one kind by number.
pub(crate) struct Table<T> {
    objects: Mutex<Objects<T>>,
}

struct Objects<T> {
    by_number: BTreeMap<u32, Weak<T>>,
    next: u32,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        let (by_number, next) = (BTreeMap::new(), 0);
        Table {
            objects: Mutex::new(Objects { by_number, next }),
        }
    }
}

impl<T> Table<T> {
    fn lock(&self) -> MutexGuard<'_, Objects<T>> {
        self.objects.lock()
    }

    /// Give an object a number, for as long as the entry lives.
    pub(crate) fn export(self: &Arc<Self>, object: &Arc<T>) -> Export<T> {
        let mut objects = self.lock();
        while objects.by_number.contains_key(&objects.next) {
            objects.next = objects.next.wrapping_add(1);
        }
        let number = objects.next;
        objects.next = number.wrapping_add(1);
        objects.by_number.insert(number, Arc::downgrade(object));
        Export {
            table: self.clone(),
            number,
        }
    }

    fn find(&self, number: u32, what: &str) -> Result<Arc<T>> {
        let object = self.lock().by_number.get(&number).and_then(Weak::upgrade);
        object.ok_or_else(|| {
            Error::new(
                ErrorKind::System(libc::ENOENT),
                format!("no {what} of this device has the handle {number}"),
            )
        })
    }
}

/// An object's number. What was imported has none of its own.
pub(crate) struct Export<T> {
    table: Arc<Table<T>>,
    pub(crate) number: u32,
}

impl<T> Export<T> {
    /// The same number for the object in its new place.
    fn renew(&self, object: &Arc<T>) {
        let object = Arc::downgrade(object);
        self.table.lock().by_number.insert(self.number, object);
    }
}

impl<T> Drop for Export<T> {
    fn drop(&mut self) {
        self.table.lock().by_number.remove(&self.number);
    }
}

/// Destroy an object, unless it has been imported: EBUSY.
pub(crate) fn destroy_exported<T>(
    object: Arc<T>,
    export: Option<&Export<T>>,
    destroy: impl FnOnce(T) -> Result<(), Refused<T>>,
) -> Result<(), Refused<Arc<T>>> {
    let alone = Arc::try_unwrap(object).map_err(|object| Refused {
        object,
        error: Error::new(
            ErrorKind::Busy,
            "an imported handle of the object exists; give it back first (ibv_unimport_…)",
        ),
    })?;
    destroy(alone).map_err(|refused| {
        let object = Arc::new(refused.object);
        if let Some(export) = export {
            export.renew(&object);
        }
        Refused {
            object,
            error: refused.error,
        }
    })
}

/// Which file a descriptor is of: the same for its duplicates, and for no other while one of them is open.
pub(crate) fn file_of(fd: c_int) -> Result<(u64, u64)> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a valid place.
    if unsafe { libc::fstat(fd, stat.as_mut_ptr()) } != 0 {
        return Err(Error::invalid(format!("{fd} is no open descriptor")));
    }
    // SAFETY: filled in by the call.
    let stat = unsafe { stat.assume_init() };
    Ok((stat.st_dev, stat.st_ino))
}

/// `ibv_import_device`: one more context of an open device. It owns the descriptor from then on.
///
/// # Safety
/// `cmd_fd` is the caller's to give away.
pub(crate) unsafe extern "C" fn ibv_import_device(cmd_fd: c_int) -> *mut ibv_context {
    pointer("ibv_import_device", || {
        let family = Registry::this()?.family_of(file_of(cmd_fd)?).ok_or_else(|| {
            Error::unsupported(
                "importing a device by a descriptor that is of no open context of this process (cmd_fd)",
            )
        })?;
        // SAFETY: the caller's promise.
        let command_fd = unsafe { OwnedFd::from_raw_fd(cmd_fd) };
        context::hand_out_one_more(family, command_fd)
    })
}

/// `ibv_import_pd`
///
/// # Safety
/// `context` is NULL or open.
pub(crate) unsafe extern "C" fn ibv_import_pd(context: *mut ibv_context, handle: u32) -> *mut ibv_pd {
    pointer("ibv_import_pd", || {
        // SAFETY: the caller's promise.
        let exports = unsafe {
            context::object(context)?;
            context::exports(context)
        };
        let pd = exports.pds.find(handle, "protection domain")?;
        Ok(PdHandle::hand_out(
            ibv_pd { context, handle },
            pd,
            PdExtra::default(),
        ))
    })
}

/// `ibv_unimport_pd`
///
/// # Safety
/// `pd` is NULL or came from `ibv_import_pd`, and is not used afterwards.
pub(crate) unsafe extern "C" fn ibv_unimport_pd(pd: *mut ibv_pd) {
    number("ibv_unimport_pd", || {
        // SAFETY: the caller's promise.
        unsafe {
            PdHandle::object(pd, "the protection domain")?;
            check_imported(&PdHandle::extra(pd).export)?;
            PdHandle::destroy(pd, "the protection domain", give_back)
        }
    });
}

/// `ibv_import_mr`: its address is NULL, as that of another process would mean nothing.
///
/// # Safety
/// `pd` is NULL or alive.
pub(crate) unsafe extern "C" fn ibv_import_mr(pd: *mut ibv_pd, handle: u32) -> *mut ibv_mr {
    pointer("ibv_import_mr", || {
        // SAFETY: the caller's promise; the context is open while a domain on it lives.
        let (context, exports) = unsafe {
            PdHandle::object(pd, "the protection domain")?;
            ((*pd).context, context::exports((*pd).context))
        };
        let mr = exports.mrs.find(handle, "memory region")?;
        let c = {
            let mr = mr.lock();
            ibv_mr {
                context,
                pd,
                addr: null_mut(),
                length: mr.length() as usize,
                handle,
                lkey: mr.lkey().0,
                rkey: mr.rkey().0,
            }
        };
        Ok(MrHandle::hand_out(c, mr, None))
    })
}

/// `ibv_unimport_mr`
///
/// # Safety
/// `mr` is NULL or came from `ibv_import_mr`, and is not used afterwards.
pub(crate) unsafe extern "C" fn ibv_unimport_mr(mr: *mut ibv_mr) {
    number("ibv_unimport_mr", || {
        // SAFETY: the caller's promise.
        unsafe {
            MrHandle::object(mr, "the memory region")?;
            check_imported(MrHandle::extra(mr))?;
            MrHandle::destroy(mr, "the memory region", give_back)
        }
    });
}

/// `ibv_import_dm`
///
/// # Safety
/// `context` is NULL or open.
pub(crate) unsafe extern "C" fn ibv_import_dm(context: *mut ibv_context, handle: u32) -> *mut ibv_dm {
    pointer("ibv_import_dm", || {
        // SAFETY: the caller's promise.
        let exports = unsafe {
            context::object(context)?;
            context::exports(context)
        };
        let dm = exports.dms.find(handle, "device memory")?;
        Ok(DmHandle::hand_out(device_memory::as_c(context, handle), dm, None))
    })
}

/// `ibv_unimport_dm`
///
/// # Safety
/// `dm` is NULL or came from `ibv_import_dm`, and is not used afterwards.
pub(crate) unsafe extern "C" fn ibv_unimport_dm(dm: *mut ibv_dm) {
    number("ibv_unimport_dm", || {
        // SAFETY: the caller's promise.
        unsafe {
            DmHandle::object(dm, "the device memory")?;
            check_imported(DmHandle::extra(dm))?;
            DmHandle::destroy(dm, "the device memory", give_back)
        }
    });
}

/// Only an imported handle is given back; the object's own handle destroys it.
fn check_imported<T>(export: &Option<Export<T>>) -> Result<()> {
    match export {
        None => Ok(()),
        Some(_) => Err(Error::invalid(
            "the handle was not imported; destroy the object instead",
        )),
    }
}

fn give_back<T>(object: Arc<T>) -> Result<(), Refused<Arc<T>>> {
    drop(object);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_found_by_its_number_until_it_is_destroyed_and_stays_when_that_is_refused() {
        let table = Arc::new(Table::default());
        let objects = [Arc::new("a"), Arc::new("b")];
        let exports = [table.export(&objects[0]), table.export(&objects[1])];
        assert_ne!(exports[0].number, exports[1].number);
        let imported = table.find(exports[1].number, "x").unwrap();
        assert_eq!(*imported, "b");
        let [a, b] = objects;
        let refused = destroy_exported(b, Some(&exports[1]), |_| Ok(())).unwrap_err();
        assert_eq!(refused.error.errno(), libc::EBUSY);
        drop(imported);
        let in_use = |object| {
            let error = Error::new(ErrorKind::Busy, "in use");
            Err(Refused { object, error })
        };
        let refused = destroy_exported(refused.object, Some(&exports[1]), in_use).unwrap_err();
        assert_eq!(*table.find(exports[1].number, "x").unwrap(), "b");
        destroy_exported(refused.object, Some(&exports[1]), |_| Ok(())).unwrap();
        destroy_exported(a, Some(&exports[0]), |_| Ok(())).unwrap();
        let number = exports[1].number;
        drop(exports);
        assert_eq!(table.find(number, "x").unwrap_err().errno(), libc::ENOENT);
    }

    #[test]
    fn a_duplicate_is_of_the_same_file_and_a_closed_descriptor_of_none() {
        let (a, b) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let again = a.try_clone().unwrap();
        let file = |socket: &std::os::unix::net::UnixDatagram| {
            file_of(std::os::fd::AsRawFd::as_raw_fd(socket)).unwrap()
        };
        assert_eq!(file(&a), file(&again));
        assert_ne!(file(&a), file(&b));
        assert_eq!(file_of(-1).unwrap_err().errno(), libc::EINVAL);
    }
}
