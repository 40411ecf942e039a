//! Protection domains: what may be used together.
#![forbid(unsafe_code)]

use verbs_api::{Error, ErrorKind, Result};

use crate::PdId;
use crate::slots::SlotTable;

/// Protection domains that an engine may hold.
pub(crate) const MAX_PD: usize = 1 << 16;

/// The protection domains of an engine, each with a count of the objects that stand in it.
#[derive(Debug)]
pub(crate) struct ProtectionDomains {
    uses: SlotTable<u32, 16, 32>,
}

impl ProtectionDomains {
    pub(crate) fn new() -> Self {
        ProtectionDomains {
            uses: SlotTable::new(MAX_PD),
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    /// A new domain. ENOMEM at the device's limit.
    pub(crate) fn alloc(&mut self) -> Result<PdId> {
        self.uses.insert(0).map(PdId).map_err(|_| {
            Error::new(
                ErrorKind::NoMemory,
                format!("all {MAX_PD} protection domains are in use; free one first"),
            )
        })
    }

    /// Free a domain. EBUSY while an object stands in it.
    pub(crate) fn dealloc(&mut self, pd: PdId) -> Result<()> {
        let uses = *self.uses.get(pd.0).ok_or_else(|| unknown(pd))?;
        if uses > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "the protection domain is used by {uses} objects (regions, queue pairs); destroy them first"
                ),
            ));
        }
        self.uses.remove(pd.0);
        Ok(())
    }

    /// Count one more object in it. EINVAL when there is no such domain.
    pub(crate) fn retain(&mut self, pd: PdId) -> Result<()> {
        *self.uses.get_mut(pd.0).ok_or_else(|| unknown(pd))? += 1;
        Ok(())
    }

    /// Count one object less; every call pairs with a [`Self::retain`].
    pub(crate) fn release(&mut self, pd: PdId) {
        let uses = self.uses.get_mut(pd.0).expect("a used protection domain exists");
        *uses = uses.checked_sub(1).expect("a release pairs with a retain");
    }
}

fn unknown(pd: PdId) -> Error {
    Error::invalid(format!(
        "there is no protection domain {:#x} (freed already, or of another device)",
        pd.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_busy_while_an_object_stands_in_it_and_unknown_after_it_was_freed() {
        let mut pds = ProtectionDomains::new();
        let pd = pds.alloc().unwrap();
        pds.retain(pd).unwrap();
        assert_eq!(pds.dealloc(pd).unwrap_err().kind(), ErrorKind::Busy);
        pds.release(pd);
        pds.dealloc(pd).unwrap();
        assert_eq!(pds.dealloc(pd).unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(pds.retain(pd).unwrap_err().kind(), ErrorKind::Invalid);
    }
}
