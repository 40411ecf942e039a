//! What a program holds a pointer to: the C struct, and behind it the provider's object.

use std::cell::UnsafeCell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr;

use verbs_api::{Refused, Result};

use crate::entry::null;

/// An object handed out to C. The pointer that C knows is that of its first member.
#[repr(C)]
pub(crate) struct Handle<C, T, E = ()> {
    /// C may read and write it at any time.
    c: UnsafeCell<C>,
    object: UnsafeCell<ManuallyDrop<T>>,
    /// What we keep beside the object; stays while the object is being destroyed.
    extra: E,
}

impl<C, T, E> Handle<C, T, E> {
    /// Hand an object out; it lives until [`Handle::destroy`].
    pub(crate) fn hand_out(c: C, object: T, extra: E) -> *mut C {
        Self::hand_out_at(Box::new(MaybeUninit::uninit()), c, object, extra)
    }

    /// The same at a place reserved before, whose address the object knows already.
    pub(crate) fn hand_out_at(place: Box<MaybeUninit<Self>>, c: C, object: T, extra: E) -> *mut C {
        let handle = Handle {
            c: UnsafeCell::new(c),
            object: UnsafeCell::new(ManuallyDrop::new(object)),
            extra,
        };
        Box::into_raw(Box::write(place, handle)).cast()
    }

    /// The object behind a pointer, unless that is NULL.
    ///
    /// # Safety
    /// `pointer` is NULL or came from `hand_out` of this very type, and is not destroyed during `'a`.
    pub(crate) unsafe fn object<'a>(pointer: *mut C, what: &str) -> Result<&'a T> {
        // SAFETY: the caller's promise; the object is only moved by `destroy`, which the caller rules out.
        match unsafe { pointer.cast::<Self>().as_ref() } {
            // SAFETY: as above.
            Some(handle) => Ok(unsafe { &*handle.object.get() }),
            None => Err(null(what)),
        }
    }

    /// What we keep beside it.
    ///
    /// # Safety
    /// `pointer` is not NULL and came from `hand_out` of this very type; a `destroy` may run, but not end, during `'a`.
    pub(crate) unsafe fn extra<'a>(pointer: *mut C) -> &'a E {
        // SAFETY: the caller's promise; `destroy` touches another member until it ends.
        unsafe { &(*pointer.cast::<Self>()).extra }
    }

    /// Destroy the object by `how`. When it refuses, everything is as before.
    ///
    /// # Safety
    /// `pointer` is NULL or came from `hand_out` of this very type, and nobody uses it any more, except for `extra` until
    /// `how` returns.
    pub(crate) unsafe fn destroy(
        pointer: *mut C,
        what: &str,
        how: impl FnOnce(T) -> Result<(), Refused<T>>,
    ) -> Result<()> {
        if pointer.is_null() {
            return Err(null(what));
        }
        let handle = pointer.cast::<Self>();
        // SAFETY: the pointer is live, and the slot is filled again below, or never read again.
        let slot = unsafe { (*handle).object.get() };
        // SAFETY: as above.
        let object = ManuallyDrop::into_inner(unsafe { ptr::read(slot) });
        match how(object) {
            Ok(()) => {
                // SAFETY: made by `Box::into_raw`; the object is gone and its slot does not drop it again.
                drop(unsafe { Box::from_raw(handle) });
                Ok(())
            }
            Err(refused) => {
                // SAFETY: the slot was emptied above.
                unsafe { ptr::write(slot, ManuallyDrop::new(refused.object)) };
                Err(refused.error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use verbs_api::Error;

    use super::*;

    type Example = Handle<u32, String, u8>;

    #[test]
    fn the_pointer_is_that_of_the_c_struct_and_leads_to_the_object() {
        let pointer = Example::hand_out(7, "seven".into(), 9);
        // SAFETY: just handed out.
        unsafe {
            assert_eq!(*pointer, 7);
            assert_eq!(Example::object(pointer, "x").unwrap(), "seven");
            assert_eq!(*Example::extra(pointer), 9);
            Example::destroy(pointer, "x", |_| Ok(())).unwrap();
        }
    }

    #[test]
    fn a_refused_destruction_leaves_the_object_in_its_place() {
        let pointer = Example::hand_out(7, "seven".into(), 9);
        // SAFETY: just handed out.
        unsafe {
            let error = Example::destroy(pointer, "x", |object| {
                Err(Refused {
                    object,
                    error: Error::new(verbs_api::ErrorKind::Busy, "in use"),
                })
            });
            assert_eq!(error.unwrap_err().errno(), libc::EBUSY);
            assert_eq!(Example::object(pointer, "x").unwrap(), "seven");
            Example::destroy(pointer, "x", |_| Ok(())).unwrap();
        }
    }

    #[test]
    fn null_is_refused_by_name() {
        // SAFETY: NULL is allowed.
        let error = unsafe { Example::object(ptr::null_mut(), "the queue pair") }.unwrap_err();
        assert_eq!(error.to_string(), "the queue pair is NULL");
    }
}
