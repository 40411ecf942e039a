//! XRC domains: which targets may take requests from which shared receive queues.
#![forbid(unsafe_code)]

use verbs_api::{Error, ErrorKind, Result};

use crate::XrcDomainId;
use crate::slots::SlotTable;

/// XRC domains that an engine may hold.
const MAX_XRC_DOMAINS: usize = 1 << 16;

/// The XRC domains of an engine, each with a count of the targets and shared receive queues that stand in it.
#[derive(Debug)]
pub(crate) struct XrcDomains {
    uses: SlotTable<u32, 16, 32>,
}

impl XrcDomains {
    pub(crate) fn new() -> Self {
        XrcDomains {
            uses: SlotTable::new(MAX_XRC_DOMAINS),
        }
    }

    /// A new domain. ENOMEM at the engine's limit.
    pub(crate) fn alloc(&mut self) -> Result<XrcDomainId> {
        self.uses.insert(0).map(XrcDomainId).map_err(|_| {
            Error::new(
                ErrorKind::NoMemory,
                format!("all {MAX_XRC_DOMAINS} XRC domains are in use; free one first"),
            )
        })
    }

    /// Free a domain. EBUSY while something stands in it.
    pub(crate) fn dealloc(&mut self, domain: XrcDomainId) -> Result<()> {
        let uses = *self.uses.get(domain.0).ok_or_else(|| unknown(domain))?;
        if uses > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                format!(
                    "{uses} targets and shared receive queues stand in the XRC domain; destroy them first"
                ),
            ));
        }
        self.uses.remove(domain.0);
        Ok(())
    }

    /// Domains that there are.
    pub(crate) fn len(&self) -> usize {
        self.uses.len()
    }

    /// EINVAL when there is no such domain.
    pub(crate) fn check(&self, domain: XrcDomainId) -> Result<()> {
        match self.uses.get(domain.0) {
            Some(_) => Ok(()),
            None => Err(unknown(domain)),
        }
    }

    /// Count one more object in it. EINVAL when there is no such domain.
    pub(crate) fn retain(&mut self, domain: XrcDomainId) -> Result<()> {
        *self.uses.get_mut(domain.0).ok_or_else(|| unknown(domain))? += 1;
        Ok(())
    }

    /// Count one object less; every call pairs with a [`Self::retain`].
    pub(crate) fn release(&mut self, domain: XrcDomainId) {
        let uses = self.uses.get_mut(domain.0).expect("a used XRC domain exists");
        *uses = uses.checked_sub(1).expect("a release pairs with a retain");
    }
}

fn unknown(domain: XrcDomainId) -> Error {
    Error::invalid(format!(
        "there is no XRC domain {:#x} (freed already, or of another device)",
        domain.0
    ))
}
