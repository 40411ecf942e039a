//! Communication IDs: not to be guessed, and not used again soon.

/// Gives numbers: the process's part of the address in the upper 8 bits, so that answers find the process, and 24 bits
/// that follow from the seed.
#[derive(Debug)]
pub(crate) struct Ids {
    prefix: u32,
    state: u64,
}

impl Ids {
    pub(crate) fn new(prefix: u8, seed: u64) -> Self {
        Ids {
            prefix: u32::from(prefix) << 24,
            state: seed,
        }
    }

    /// 64 bits (splitmix64).
    pub(crate) fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number that is not `taken`, and not 0.
    pub(crate) fn next(&mut self, taken: impl Fn(u32) -> bool) -> u32 {
        // Far fewer than half of the 2^24 are in use, so this ends after a few steps.
        loop {
            let id = self.prefix | (self.random() >> 40) as u32;
            if id & 0x00ff_ffff != 0 && !taken(id) {
                return id;
            }
        }
    }
}
