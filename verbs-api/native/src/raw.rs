//! Ownership of one object of the library.

use std::any::Any;
use std::collections::HashMap;
use std::ffi::c_int;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use verbs_api::{Error, ErrorKind, Refused, Result};

use crate::library::{check, last_error};

/// How the library destroys an object.
pub(crate) type Destroy<T> = unsafe extern "C" fn(*mut T) -> c_int;

/// A pointer from the library, how to destroy it, and what must outlive it. Destroyed when dropped; a refusal is then
/// ignored, as there is nobody to tell.
pub(crate) struct Raw<T, K = ()> {
    pointer: NonNull<T>,
    destroy: Destroy<T>,
    what: &'static str,
    gone: AtomicBool,
    objects: Arc<Objects>,
    /// Parents.
    pub(crate) keep: K,
}

// SAFETY: libibverbs allows every verb from every thread.
unsafe impl<T, K: Send> Send for Raw<T, K> {}
// SAFETY: as above.
unsafe impl<T, K: Sync> Sync for Raw<T, K> {}

impl<T: 'static, K: Send + Sync + 'static> Raw<T, K> {
    /// Own what the library has just returned; NULL is the error in `errno`.
    ///
    /// # Safety
    /// `pointer` is NULL or an object that nobody else destroys, `destroy` its function for that, and the object needs
    /// nothing that goes before `keep`.
    pub(crate) unsafe fn new(
        what: &'static str,
        objects: &Arc<Objects>,
        pointer: *mut T,
        destroy: Destroy<T>,
        keep: K,
    ) -> Result<Raw<T, K>> {
        let pointer = NonNull::new(pointer).ok_or_else(|| last_error(&format!("making a {what}")))?;
        objects.insert(pointer.as_ptr() as usize, what);
        Ok(Raw {
            pointer,
            destroy,
            what,
            gone: AtomicBool::new(false),
            objects: objects.clone(),
            keep,
        })
    }

    /// Share it, so that events that name it keep it until they are acknowledged.
    pub(crate) fn share(self) -> Arc<Raw<T, K>> {
        let shared = Arc::new(self);
        let weak: Weak<dyn Any + Send + Sync> = Arc::downgrade(&shared) as _;
        shared.objects.share(shared.address(), weak);
        shared
    }

    /// Destroy it. Waits, as the library does, until all its events are acknowledged. After a refusal it is as before.
    pub(crate) fn destroy(&self) -> Result<()> {
        // Before the call: once it is destroyed, another object may get its address.
        let entry = self.objects.remove(self.address());
        // SAFETY: owned and alive: only the single owner of the handle comes here, once.
        let result = unsafe { (self.destroy)(self.pointer.as_ptr()) };
        match check(self.what, result) {
            Ok(()) => {
                self.gone.store(true, Ordering::Release);
                Ok(())
            }
            Err(error) => {
                if let Some(entry) = entry {
                    self.objects.put_back(self.address(), entry);
                }
                Err(Error::new(error.kind(), format!("destroying a {error}")))
            }
        }
    }
}

impl<T, K> Raw<T, K> {
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.pointer.as_ptr()
    }

    fn address(&self) -> usize {
        self.pointer.as_ptr() as usize
    }
}

impl<T, K> Drop for Raw<T, K> {
    fn drop(&mut self) {
        if *self.gone.get_mut() {
            return;
        }
        let entry = self.objects.remove(self.address());
        // SAFETY: owned and alive.
        if unsafe { (self.destroy)(self.pointer.as_ptr()) } != 0
            && let Some(entry) = entry
        {
            // It exists still, and nobody can reach it: it counts as left over.
            self.objects.put_back(self.address(), entry);
        }
    }
}

impl<T, K> fmt::Debug for Raw<T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:p}", self.what, self.pointer)
    }
}

/// The objects that exist on an open device, by address.
#[derive(Default)]
pub(crate) struct Objects(Mutex<HashMap<usize, Entry>>);

struct Entry {
    what: &'static str,
    shared: Option<Weak<dyn Any + Send + Sync>>,
}

impl Objects {
    fn map(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn insert(&self, address: usize, what: &'static str) {
        self.map().insert(address, Entry { what, shared: None });
    }

    fn share(&self, address: usize, shared: Weak<dyn Any + Send + Sync>) {
        if let Some(entry) = self.map().get_mut(&address) {
            entry.shared = Some(shared);
        }
    }

    fn remove(&self, address: usize) -> Option<Entry> {
        self.map().remove(&address)
    }

    fn put_back(&self, address: usize, entry: Entry) {
        self.map().entry(address).or_insert(entry);
    }

    /// What keeps the object at `address` alive, if anything still does.
    pub(crate) fn holder(&self, address: usize) -> Option<Arc<dyn Any + Send + Sync>> {
        self.map().get(&address)?.shared.as_ref()?.upgrade()
    }

    /// How many there are of each kind, in words; `None` when there are none.
    pub(crate) fn describe(&self) -> Option<String> {
        let mut counts = std::collections::BTreeMap::new();
        for entry in self.map().values() {
            *counts.entry(entry.what).or_insert(0) += 1;
        }
        let words: Vec<String> = counts
            .iter()
            .map(|(what, count)| format!("{what}: {count}"))
            .collect();
        (!words.is_empty()).then(|| words.join(", "))
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.describe().unwrap_or_default())
    }
}

/// Destroy what several handles share: refused while there is another handle, or something stands on it.
pub(crate) fn destroy_shared<I>(
    shared: Arc<I>,
    what: &str,
    destroy: impl FnOnce(&I) -> Result<()>,
) -> Result<(), Refused<Arc<I>>> {
    let inner = Arc::try_unwrap(shared).map_err(|object| Refused {
        error: Error::new(
            ErrorKind::Busy,
            format!("this {what} has other handles, or objects that stand on it"),
        ),
        object,
    })?;
    destroy(&inner).map_err(|error| Refused {
        object: Arc::new(inner),
        error,
    })
}
