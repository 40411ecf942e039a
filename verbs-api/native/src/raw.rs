//! Ownership of one object of the library.

use std::ffi::c_int;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_api::{Error, ErrorKind, Refused, Result};

use crate::library::{check, last_error};

/// A pointer from the library, and how to destroy it. Destroyed when dropped; a refusal is then ignored, as there is
/// nobody to tell.
pub(crate) struct Raw<T> {
    pointer: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T) -> c_int,
    what: &'static str,
}

// SAFETY: libibverbs allows every verb from every thread.
unsafe impl<T> Send for Raw<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Raw<T> {}

impl<T> Raw<T> {
    /// Own what the library has just returned; NULL is the error in `errno`.
    ///
    /// # Safety
    /// `pointer` is NULL or an object that nobody else destroys, and `destroy` its function for that.
    pub(crate) unsafe fn new(
        what: &'static str,
        pointer: *mut T,
        destroy: unsafe extern "C" fn(*mut T) -> c_int,
    ) -> Result<Raw<T>> {
        let pointer = NonNull::new(pointer).ok_or_else(|| last_error(what))?;
        Ok(Raw {
            pointer,
            destroy,
            what,
        })
    }

    pub(crate) fn as_ptr(&self) -> *mut T {
        self.pointer.as_ptr()
    }

    pub(crate) fn destroy(self) -> Result<(), Refused<Raw<T>>> {
        let this = ManuallyDrop::new(self);
        // SAFETY: owned and alive.
        let result = unsafe { (this.destroy)(this.pointer.as_ptr()) };
        check(this.what, result).map_err(|error| Refused {
            object: ManuallyDrop::into_inner(this),
            error,
        })
    }
}

impl<T> Drop for Raw<T> {
    fn drop(&mut self) {
        // SAFETY: owned and alive.
        unsafe { (self.destroy)(self.pointer.as_ptr()) };
    }
}

impl<T> fmt::Debug for Raw<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:p}", self.pointer)
    }
}

/// Take a shared object out of its `Arc`, or say that it is still in use.
pub(crate) fn sole_owner<T>(shared: Arc<T>, what: &str) -> Result<T, Refused<Arc<T>>> {
    Arc::try_unwrap(shared).map_err(|object| Refused {
        error: Error::new(
            ErrorKind::Busy,
            format!("this {what} has other handles, or objects that stand on it"),
        ),
        object,
    })
}
