//! What objects are made of. A part cannot go while an object uses it.
#![forbid(unsafe_code)]

use verbs_api::Result;

use super::Engine;
use crate::{CqId, PdId, SrqId, XrcDomainId};

/// Another object that one is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Pd(PdId),
    Cq(CqId),
    Srq(SrqId),
    XrcDomain(XrcDomainId),
}

impl Engine {
    /// Count one more user of each part. On an error (EINVAL: there is no such part) none is counted.
    pub(super) fn retain_parts(&mut self, parts: &[Part]) -> Result<()> {
        for (index, part) in parts.iter().enumerate() {
            let retained = match *part {
                Part::Pd(pd) => self.pds.retain(pd),
                Part::Cq(cq) => self.shared.cqs.retain(cq),
                Part::Srq(srq) => self.shared.srqs.retain(srq),
                Part::XrcDomain(domain) => self.xrc_domains.retain(domain),
            };
            if retained.is_err() {
                self.release_parts(&parts[..index]);
                return retained;
            }
        }
        Ok(())
    }

    /// Count one user less of each part.
    pub(super) fn release_parts(&mut self, parts: &[Part]) {
        for part in parts {
            match *part {
                Part::Pd(pd) => self.pds.release(pd),
                Part::Cq(cq) => self.shared.cqs.release(cq),
                Part::Srq(srq) => self.shared.srqs.release(srq),
                Part::XrcDomain(domain) => self.xrc_domains.release(domain),
            }
        }
    }
}
