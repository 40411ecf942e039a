//! Lists of pointers as C has them: NULL stands behind the last.

use std::ptr;

/// Hand a list out, for [`take_back`].
pub(crate) fn hand_out<T>(mut list: Vec<*mut T>) -> *mut *mut T {
    list.push(ptr::null_mut());
    Box::into_raw(list.into_boxed_slice()).cast()
}

/// Free a list, and not what is in it.
///
/// # Safety
/// `list` is NULL or came from [`hand_out`] and was not freed.
pub(crate) unsafe fn take_back<T>(list: *mut *mut T) {
    if list.is_null() {
        return;
    }
    let mut length = 1;
    // SAFETY: the list ends with NULL.
    while unsafe { !(*list.add(length - 1)).is_null() } {
        length += 1;
    }
    // SAFETY: a boxed slice of this length, made above.
    drop(unsafe { Box::from_raw(ptr::slice_from_raw_parts_mut(list, length)) });
}
