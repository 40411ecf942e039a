//! Registered memory, with canaries around each region.

/// Bytes of a region.
pub const REGION_BYTES: usize = 4096;
pub const REGIONS: usize = 5;
const CANARY_BYTES: usize = 256;
const CANARY: u8 = 0xc9;
const STRIDE_BYTES: usize = REGION_BYTES + CANARY_BYTES;
const MEMORY_WORDS: usize = (CANARY_BYTES + REGIONS * STRIDE_BYTES) / 8;

/// What may happen to a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// All rights.
    Open,
    /// The peer may read it. Nobody writes.
    ReadOnly,
    /// Only receives and the results of READs and atomics go there.
    Local,
    /// All rights, in another protection domain: out of reach.
    Foreign,
    /// All rights, until it is deregistered.
    Doomed,
}

pub const ALL_REGIONS: [Region; REGIONS] = [
    Region::Open,
    Region::ReadOnly,
    Region::Local,
    Region::Foreign,
    Region::Doomed,
];

/// All regions.
pub struct Memory {
    words: *mut u64,
}

impl Memory {
    pub fn new() -> Memory {
        let mut fresh = vec![u64::from_ne_bytes([CANARY; 8]); MEMORY_WORDS].into_boxed_slice();
        for region in ALL_REGIONS {
            let start = offset_of(region) / 8;
            fresh[start..start + REGION_BYTES / 8].fill(u64::from_ne_bytes([fill_of(region); 8]));
        }
        Memory {
            words: Box::into_raw(fresh).cast(),
        }
    }

    pub fn start_of(&self, region: Region) -> *mut u8 {
        self.words.wrapping_byte_add(offset_of(region)).cast()
    }

    pub fn check_canaries(&self) {
        for gap in 0..=REGIONS {
            let canary = self.bytes(gap * STRIDE_BYTES, CANARY_BYTES);
            assert!(
                canary.iter().all(|byte| *byte == CANARY),
                "canary {gap} was written"
            );
        }
    }

    pub fn check_untouched(&self, region: Region) {
        let bytes = self.region(region);
        assert!(
            bytes.iter().all(|byte| *byte == fill_of(region)),
            "{region:?} was written"
        );
    }

    /// A copy of a region.
    pub fn region(&self, region: Region) -> Vec<u8> {
        self.bytes(offset_of(region), REGION_BYTES)
    }

    fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        assert!(offset + len <= MEMORY_WORDS * 8);
        let mut out = vec![0; len];
        // SAFETY: in bounds; the engine touches the memory only inside of calls of this same thread.
        unsafe { std::ptr::copy_nonoverlapping(self.words.cast::<u8>().add(offset), out.as_mut_ptr(), len) }
        out
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(self.words, MEMORY_WORDS);
        // SAFETY: it came from a box of this length, and the engine, which is dropped first, is the only other user.
        drop(unsafe { Box::from_raw(words) });
    }
}

/// Where a region begins for peers and work requests.
pub fn iova_of(region: Region) -> u64 {
    0x10_0000 * (1 + region as u64)
}

fn offset_of(region: Region) -> usize {
    CANARY_BYTES + region as usize * STRIDE_BYTES
}

fn fill_of(region: Region) -> u8 {
    0x11 * (1 + region as u8)
}
