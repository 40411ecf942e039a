//! Lists of buffers (`iovec`) and message headers (`msghdr`) of C.

use std::ffi::c_int;

use verbs_api::{Error, Result};

use super::os_error;
use crate::entry::null;

/// `IOV_MAX` of Linux.
const VECTORS_MAX: usize = 1024;

/// A buffer of C's as a slice. EFAULT: NULL with a length.
///
/// # Safety
/// `start` is NULL or valid for reads of `length` bytes during `'a`.
pub(super) unsafe fn bytes_in<'a>(start: *const u8, length: usize) -> Result<&'a [u8]> {
    check(start.is_null(), length)?;
    match length {
        0 => Ok(&[]),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts(start, length) }),
    }
}

/// The same to write to.
///
/// # Safety
/// `start` is NULL or valid for reads and writes of `length` bytes during `'a`.
pub(super) unsafe fn bytes_out<'a>(start: *mut u8, length: usize) -> Result<&'a mut [u8]> {
    check(start.is_null(), length)?;
    match length {
        0 => Ok(&mut []),
        // SAFETY: the caller's promise.
        _ => Ok(unsafe { std::slice::from_raw_parts_mut(start, length) }),
    }
}

fn check(is_null: bool, length: usize) -> Result<()> {
    if is_null && length > 0 {
        return Err(os_error(libc::EFAULT, format!("{length} bytes at NULL")));
    }
    match isize::try_from(length) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::invalid(format!(
            "{length} bytes are more than a buffer can have"
        ))),
    }
}

/// A list of buffers. EINVAL: negative or too long, or more bytes than a call can tell of.
///
/// # Safety
/// `list` is NULL or valid for `count` entries during `'a`.
pub(super) unsafe fn vectors<'a>(list: *const libc::iovec, count: c_int) -> Result<&'a [libc::iovec]> {
    let count = usize::try_from(count).ok().filter(|count| *count <= VECTORS_MAX);
    let count = count.ok_or_else(|| Error::invalid("the number of buffers is negative or above 1024"))?;
    if count == 0 {
        return Ok(&[]);
    }
    if list.is_null() {
        return Err(null("the list of buffers"));
    }
    // SAFETY: the caller's promise.
    let list = unsafe { std::slice::from_raw_parts(list, count) };
    let total = list
        .iter()
        .try_fold(0_isize, |sum, vector| sum.checked_add_unsigned(vector.iov_len));
    match total {
        Some(_) => Ok(list),
        None => Err(Error::invalid(
            "the buffers have more bytes than a call can tell of",
        )),
    }
}

/// The buffers of a message header.
///
/// # Safety
/// `message` is valid, and its list is as for [`vectors`].
pub(super) unsafe fn vectors_of<'a>(message: &libc::msghdr) -> Result<&'a [libc::iovec]> {
    let count = c_int::try_from(message.msg_iovlen).unwrap_or(c_int::MAX);
    // SAFETY: the caller's promise.
    unsafe { vectors(message.msg_iov, count) }
}
