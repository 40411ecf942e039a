//! A hint to the processor that memory will be used soon.
//!
//! Among thousands of queue pairs the one that a packet is for lies outside of the near caches. Its many lines are then
//! fetched all at once, rather than one after the other as the code comes to each.

/// Bytes that a processor fetches together.
const LINE: usize = 64;

/// Begin to fetch all of `value`. Changes nothing else.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    let start = std::ptr::from_ref(value).cast::<u8>();
    for offset in (0..size_of::<T>()).step_by(LINE) {
        fetch_line(start.wrapping_add(offset));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline]
fn fetch_line(at: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction takes any address, and has no effect but on the caches.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline]
fn fetch_line(at: *const u8) {
    // SAFETY: the instruction takes any address, and has no effect but on the caches.
    unsafe {
        std::arch::asm!("prfm pldl1keep, [{at}]", at = in(reg) at, options(nostack, preserves_flags, readonly));
    }
}

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri))))]
#[inline]
fn fetch_line(_: *const u8) {}
