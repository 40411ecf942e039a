//! Memory that a card may read and write at any time.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, fence};

const ALIGN: usize = 4096;

/// Owned, page-aligned, zeroed memory for registration. Clones share it.
///
/// It never lends a slice: a card, or another thread, may write to it at any moment. Bytes go in and out by copy;
/// aligned 8-byte words move whole, never torn.
///
/// ```
/// let buffer = verbs_api::Buffer::new(4096);
/// buffer.write(5, b"hello");
/// assert_eq!(buffer.to_vec(5..10), b"hello");
/// ```
#[derive(Clone)]
pub struct Buffer {
    memory: Arc<Memory>,
}

struct Memory {
    start: *mut u8,
    length: usize,
}

// SAFETY: the memory is only reached through atomics (below) and by cards, which are other parties in any case.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn layout(length: usize) -> Layout {
        Layout::from_size_align(length.max(1).next_multiple_of(8), ALIGN)
            .expect("a buffer's size fits an address space")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated in `Buffer::new` with the same layout, and nobody else holds it.
        unsafe { dealloc(self.start, Memory::layout(self.length)) }
    }
}

impl Buffer {
    /// `length` zero bytes at an address that is a multiple of 4096.
    pub fn new(length: usize) -> Self {
        let layout = Memory::layout(length);
        // SAFETY: the layout's size is at least 8.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        Buffer {
            memory: Arc::new(Memory { start, length }),
        }
    }

    /// A copy of `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        let buffer = Buffer::new(bytes.len());
        buffer.write(0, bytes);
        buffer
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.memory.length
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address, for scatter/gather entries.
    pub fn addr(&self) -> u64 {
        self.memory.start as u64
    }

    /// Its first byte, for providers.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory.start
    }

    fn check(&self, offset: usize, length: usize) {
        assert!(
            offset.checked_add(length).is_some_and(|end| end <= self.len()),
            "bytes {offset}..+{length} are outside a buffer of {} bytes",
            self.len()
        );
    }

    fn byte(&self, offset: usize) -> &AtomicU8 {
        // SAFETY: callers have checked the offset; the memory lives as long as `self`.
        unsafe { AtomicU8::from_ptr(self.memory.start.add(offset)) }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: callers have checked the offset and its alignment; the memory lives as long as `self`.
        unsafe { AtomicU64::from_ptr(self.memory.start.add(offset).cast()) }
    }

    /// Copy `bytes` to `offset`. Panics when they do not fit.
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done;
            if at.is_multiple_of(8) && bytes.len() - done >= 8 {
                let word = u64::from_ne_bytes(bytes[done..done + 8].try_into().expect("8 bytes"));
                self.word(at).store(word, Ordering::Relaxed);
                done += 8;
            } else {
                self.byte(at).store(bytes[done], Ordering::Relaxed);
                done += 1;
            }
        }
        fence(Ordering::Release);
    }

    /// Copy from `offset` to `bytes`. Panics when they are not all within the buffer.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len());
        fence(Ordering::Acquire);
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done;
            if at.is_multiple_of(8) && bytes.len() - done >= 8 {
                let word = self.word(at).load(Ordering::Relaxed);
                bytes[done..done + 8].copy_from_slice(&word.to_ne_bytes());
                done += 8;
            } else {
                bytes[done] = self.byte(at).load(Ordering::Relaxed);
                done += 1;
            }
        }
    }

    /// A copy of a range.
    pub fn to_vec(&self, range: std::ops::Range<usize>) -> Vec<u8> {
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes);
        bytes
    }

    /// Set every byte of a range.
    pub fn fill(&self, range: std::ops::Range<usize>, byte: u8) {
        self.write(range.start, &vec![byte; range.len()]);
    }

    /// One byte, with acquire order: what a peer wrote before it is visible afterwards.
    pub fn load_u8(&self, offset: usize) -> u8 {
        self.check(offset, 1);
        self.byte(offset).load(Ordering::Acquire)
    }

    /// One aligned word in host order, with acquire order. Panics when `offset` is not a multiple of 8.
    pub fn load_u64(&self, offset: usize) -> u64 {
        self.check(offset, 8);
        assert!(
            offset.is_multiple_of(8),
            "offset {offset} of a word is no multiple of 8"
        );
        self.word(offset).load(Ordering::Acquire)
    }

    /// Store one aligned word in host order, with release order. Panics when `offset` is not a multiple of 8.
    pub fn store_u64(&self, offset: usize, value: u64) {
        self.check(offset, 8);
        assert!(
            offset.is_multiple_of(8),
            "offset {offset} of a word is no multiple of 8"
        );
        self.word(offset).store(value, Ordering::Release);
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({:#x}, {} bytes)", self.addr(), self.len())
    }
}

/// `length` recognisable bytes, which differ by `seed` and by position: for checks of what arrives.
pub fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}
