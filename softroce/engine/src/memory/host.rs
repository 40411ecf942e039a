//! Memory of the program, as the engine may touch it.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use super::copy::{self, Outcome};

/// A range of the program's memory that it promised to leave alone or to share.
///
/// The only way to a program's bytes: by copy, with bounds checked, never as a slice, since the program and other
/// cards read and write at the same time. See [`super::copy`] for what order and atomicity a copy keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostMemory {
    start: *mut u8,
    length: usize,
}

// SAFETY: the range is reached by copies that tolerate any concurrent access, from whichever thread runs the engine.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

/// The program has taken away memory that it had registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unmapped;

impl From<Outcome> for Result<(), Unmapped> {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Done => Ok(()),
            Outcome::Faulted => Err(Unmapped),
        }
    }
}

impl HostMemory {
    /// `length` bytes from `start`.
    ///
    /// # Safety
    /// Until the value and all its copies are gone (the region is deregistered), the bytes can be read, and, when the
    /// region that it is for grants LOCAL_WRITE, written; the program accesses them only in ways that tolerate
    /// another party's reads and writes at any moment: atomics, volatile accesses, other languages, or none at all.
    pub(crate) unsafe fn new(start: *mut u8, length: usize) -> Self {
        HostMemory { start, length }
    }

    /// Its first address.
    pub(crate) fn start(&self) -> usize {
        self.start.addr()
    }

    /// The same as a pointer.
    pub(super) fn start_ptr(&self) -> *mut u8 {
        self.start
    }

    /// Bytes.
    pub(crate) fn length(&self) -> usize {
        self.length
    }

    /// Copy out, beginning `offset` bytes into the range. Panics outside of it: the caller has checked.
    #[inline]
    pub(crate) fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), Unmapped> {
        let source = self.at(offset, out.len());
        // SAFETY: `at` has checked the bounds, `new`'s caller answers for the memory; `out` is ours.
        unsafe { copy::from_program(out.as_mut_ptr(), source, out.len()) }.into()
    }

    /// Copy in, beginning `offset` bytes into the range. Panics outside of it: the caller has checked.
    #[inline]
    pub(crate) fn write(&self, offset: usize, data: &[u8]) -> Result<(), Unmapped> {
        let destination = self.at(offset, data.len());
        // SAFETY: `at` has checked the bounds, `new`'s caller answers for the memory; `data` is ours.
        unsafe { copy::to_program(destination, data.as_ptr(), data.len()) }.into()
    }

    /// Whether the word at `offset` is aligned in memory.
    pub(crate) fn is_word_aligned(&self, offset: usize) -> bool {
        (self.start() + offset).is_multiple_of(8)
    }

    /// One atomic compare-and-swap of the processor; the old value comes back. Panics outside of the range or when
    /// the word is not aligned: the caller has checked.
    pub(crate) fn compare_swap(&self, offset: usize, compare: u64, swap: u64) -> Result<u64, Unmapped> {
        let word = self.word(offset);
        let mut old = 0;
        // SAFETY: `word` has checked bounds and alignment, `new`'s caller answers for the memory; `old` is ours.
        let outcome: Result<(), Unmapped> =
            unsafe { copy::compare_swap(word, compare, swap, &mut old) }.into();
        outcome.map(|()| old)
    }

    /// One atomic fetch-and-add of the processor; the old value comes back. Panics as [`Self::compare_swap`].
    pub(crate) fn fetch_add(&self, offset: usize, add: u64) -> Result<u64, Unmapped> {
        let word = self.word(offset);
        let mut old = 0;
        // SAFETY: `word` has checked bounds and alignment, `new`'s caller answers for the memory; `old` is ours.
        let outcome: Result<(), Unmapped> = unsafe { copy::fetch_add(word, add, &mut old) }.into();
        outcome.map(|()| old)
    }

    fn word(&self, offset: usize) -> *mut u64 {
        assert!(
            self.is_word_aligned(offset),
            "an atomic at offset {offset} is not aligned"
        );
        self.at(offset, 8).cast()
    }

    #[inline]
    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        assert!(
            length <= self.length && offset <= self.length - length,
            "bytes {offset}..+{length} are outside a range of {} bytes",
            self.length
        );
        self.start.wrapping_add(offset)
    }
}

/// Memory that the engine owns and treats like a program's.
#[derive(Debug)]
pub(super) struct OwnedMemory {
    whole: HostMemory,
    layout: Layout,
}

impl OwnedMemory {
    /// `length` zero bytes (at least one) aligned to `align`; `None` when there is no memory, or no such alignment.
    pub(super) fn zeroed(length: usize, align: usize) -> Option<Self> {
        let layout = Layout::from_size_align(length, align).ok()?;
        if length == 0 {
            return None;
        }
        // SAFETY: the layout has bytes.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            return None;
        }
        // SAFETY: the bytes are ours until the drop; what copies of this value may be out by then, their keeper
        // (`super::device`) answers for.
        let whole = unsafe { HostMemory::new(start, length) };
        Some(OwnedMemory { whole, layout })
    }

    /// All of it.
    pub(super) fn whole(&self) -> &HostMemory {
        &self.whole
    }
}

impl Drop for OwnedMemory {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and this is the one place that frees it.
        unsafe { dealloc(self.whole.start, self.layout) }
    }
}
