//! Registered memory, and bytes to fill it with.

use std::ops::Range;

use verbs_api::{Access, Buffer, MemoryRegion, ProtectionDomain, Provider, RKey, RemoteAddr, Sge, pattern};

use crate::outcome::{CaseResult, Failure};

/// Everything that a peer can be allowed.
pub fn all_remote() -> Access {
    Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

/// Everything that a region can allow.
pub fn full_access() -> Access {
    Access::LOCAL_WRITE | all_remote()
}

/// Registered memory.
#[derive(Debug)]
pub struct Region<P: Provider> {
    /// The region.
    pub mr: P::Mr,
    /// The bytes.
    pub buffer: Buffer,
}

impl<P: Provider> Region<P> {
    /// Register the whole of `buffer`.
    pub fn new(pd: &P::Pd, buffer: Buffer, access: Access) -> Result<Self, Failure> {
        Ok(Region {
            mr: pd.reg_mr(&buffer, access)?,
            buffer,
        })
    }

    /// The entry for a range of it.
    pub fn sge(&self, range: Range<usize>) -> Sge {
        Sge {
            addr: self.mr.addr() + range.start as u64,
            length: range.len() as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// The entry for all of it.
    pub fn whole(&self) -> Sge {
        self.sge(0..self.buffer.len())
    }

    /// The remote address of the byte at `offset`.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.mr.addr() + offset as u64,
            rkey: self.mr.rkey(),
        }
    }

    /// The same with another key.
    pub fn remote_with(&self, offset: usize, rkey: RKey) -> RemoteAddr {
        RemoteAddr {
            rkey,
            ..self.remote(offset)
        }
    }

    /// Fill it with a pattern that differs by `seed` and by position.
    pub fn scribble(&self, seed: u64) {
        self.buffer.write(0, &pattern(seed, self.buffer.len()));
    }
}

/// Fails unless both are equal, naming the first byte that differs.
pub fn same_bytes(what: &str, seen: &[u8], expected: &[u8]) -> CaseResult {
    crate::same!(seen.len(), expected.len(), "{what}: length");
    if let Some(at) = seen.iter().zip(expected).position(|(a, b)| a != b) {
        return Err(Failure::new(format!(
            "{what}: byte {at} of {} is {:#04x}, must be {:#04x}",
            seen.len(),
            seen[at],
            expected[at]
        )));
    }
    Ok(())
}
