//! Where the bytes are that a program's advice is about.
#![forbid(unsafe_code)]

use std::ops::Range;

use verbs_api::{Access, Advice, Error, ErrorKind, Result, Sge};

use super::{Memory, MemoryFault};
use crate::PdId;

impl Memory {
    /// The addresses of an entry's bytes. EFAULT: as ibv_advise_mr(3) has it, for a key that opens nothing, opens
    /// another domain's memory or does not grant writing, and for bytes outside of the region. EINVAL: a region that is
    /// not on demand.
    pub(crate) fn advised(&self, pd: PdId, advice: Advice, sge: &Sge) -> Result<Range<usize>> {
        let need = match advice {
            Advice::PrefetchWrite => Access::LOCAL_WRITE,
            Advice::Prefetch | Advice::PrefetchNoFault => Access::empty(),
        };
        let fault = |fault: MemoryFault| {
            Error::new(
                ErrorKind::Fault,
                format!(
                    "advice about {} bytes at {:#x} with the key {:#x}: {fault:?}",
                    sge.length, sge.addr, sge.lkey.0
                ),
            )
        };
        let extent = self.open_local(pd, sge.lkey.0, need).map_err(fault)?;
        let start = extent
            .at(sge.addr, u64::from(sge.length))
            .map_err(fault)?
            .address();
        let on_demand = self.open_local(pd, sge.lkey.0, Access::ON_DEMAND);
        match (on_demand, start) {
            (Ok(_), Some(start)) => Ok(start..start + sge.length as usize),
            (Ok(_) | Err(_), _) => Err(Error::invalid(format!(
                "the region with the key {:#x} is not on demand: its memory is there already",
                sge.lkey.0
            ))),
        }
    }
}
