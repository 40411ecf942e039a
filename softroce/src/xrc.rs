//! XRC domains, and the sharing of them through a file.
//!
//! A domain that was opened through a file is found again through any descriptor of the same file, also on another
//! context of the device. It lives until its last handle is closed; queue pairs and shared receive queues that stand in
//! it keep the last handle from being closed.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::RawFd;
use std::sync::{Arc, Weak};

use softroce_engine::XrcDomainId;
use verbs_api::{Error, ErrorKind, Object, Refused, Result};

use crate::card::Card;
use crate::context::ContextInner;
use crate::device::{Device, Shared};
use crate::faults::{self, Verb};
use crate::os::{FileIdentity, SharedFile};

/// Whether opening a domain may find one, or make one (`O_CREAT` and `O_EXCL` in C).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XrcOpen {
    /// Find the one of the file; EAGAIN when there is none.
    Existing,
    /// Make one; EINVAL when the file has one already.
    New,
    /// Find it, or make it.
    Either,
}

/// An XRC domain.
pub struct XrcDomain {
    /// `None` only while it is being dropped.
    inner: Option<Arc<DomainInner>>,
    /// Keeps the context open.
    context: Arc<ContextInner>,
}

pub(crate) struct DomainInner {
    /// Keeps the device open: the context that made the domain may close before others that share it.
    owner: Device,
    id: XrcDomainId,
    /// Held open, so that no other file takes over its identity.
    file: Option<SharedFile>,
}

/// Domains of a device that are shared through files, with the number of open handles of each domain.
#[derive(Default)]
pub(crate) struct Domains {
    by_file: HashMap<FileIdentity, Weak<DomainInner>>,
    handles: HashMap<XrcDomainId, usize>,
}

impl XrcDomain {
    pub(crate) fn open(context: &Arc<ContextInner>, fd: Option<RawFd>, mode: XrcOpen) -> Result<XrcDomain> {
        context.device.faults.verb(Verb::OpenXrcd)?;
        let file = match fd {
            Some(fd) => Some(SharedFile::behind(fd).map_err(|error| {
                Error::system(
                    format!("descriptor {fd} leads to no file for an XRC domain"),
                    error,
                )
            })?),
            None if mode == XrcOpen::Existing => {
                return Err(Error::invalid(
                    "an XRC domain without a file is always a new one, which must be asked for",
                ));
            }
            None => None,
        };
        let owner = context.owner().clone();
        let inner = context
            .device
            .verb(|card, _| find_or_make(card, owner, file, mode))?;
        Ok(XrcDomain {
            inner: Some(inner),
            context: context.clone(),
        })
    }

    fn inner(&self) -> &Arc<DomainInner> {
        self.inner
            .as_ref()
            .expect("a handle has its domain until it is dropped")
    }

    pub(crate) fn id(&self) -> XrcDomainId {
        self.inner().id
    }

    /// For an object that stands in the domain.
    pub(crate) fn share(&self) -> Arc<DomainInner> {
        self.inner().clone()
    }

    /// EINVAL unless the domain is one of this device.
    pub(crate) fn check_device(&self, device: &Arc<Shared>) -> Result<()> {
        if Arc::ptr_eq(device, &self.context.device) {
            return Ok(());
        }
        Err(Error::invalid("the XRC domain belongs to another device"))
    }

    /// One handle less. EBUSY, if `unless_used`, for the last one while objects stand in the domain.
    fn close(&self, unless_used: bool) -> Result<()> {
        let inner = self.inner();
        self.context.device.verb(|card, _| {
            let handles = card.domains.handles.entry(inner.id).or_insert(1);
            // The handles and the objects in the domain own it; the engine does not know of handles.
            let children = Arc::strong_count(inner).saturating_sub(*handles);
            if unless_used && *handles == 1 && children > 0 {
                return Err(Error::new(
                    ErrorKind::Busy,
                    format!("{children} queue pairs and shared receive queues stand in the XRC domain; destroy those first"),
                ));
            }
            *handles = handles.saturating_sub(1);
            Ok(())
        })
    }
}

fn find_or_make(
    card: &mut Card,
    owner: Device,
    file: Option<SharedFile>,
    mode: XrcOpen,
) -> Result<Arc<DomainInner>> {
    let domains = &mut card.domains;
    let known = file.as_ref().and_then(|file| domains.by_file.get(&file.identity));
    // Not upgraded before it is sure to be kept: the last owner must not go inside the gate.
    if mode == XrcOpen::New && known.is_some_and(|known| known.strong_count() > 0) {
        return Err(Error::invalid("the file has an XRC domain already"));
    }
    if let Some(inner) = known.and_then(Weak::upgrade) {
        *domains.handles.entry(inner.id).or_insert(0) += 1;
        return Ok(inner);
    }
    if mode == XrcOpen::Existing {
        return Err(Error::new(
            ErrorKind::Again,
            "the file has no XRC domain, and none is to be made",
        ));
    }
    let id = card.engine.alloc_xrc_domain()?;
    let identity = file.as_ref().map(|file| file.identity);
    let inner = Arc::new(DomainInner { owner, id, file });
    domains.handles.insert(id, 1);
    if let Some(identity) = identity {
        domains.by_file.insert(identity, Arc::downgrade(&inner));
    }
    Ok(inner)
}

impl Drop for DomainInner {
    fn drop(&mut self) {
        // Everything in it owns its domain, so nothing is left; in a forked child there is nothing to free.
        let _ = self.owner.shared().verb(|card, _| {
            let domains = &mut card.domains;
            domains.handles.remove(&self.id);
            if let Some(SharedFile { identity, .. }) = &self.file
                && domains
                    .by_file
                    .get(identity)
                    .is_some_and(|known| known.strong_count() == 0)
            {
                domains.by_file.remove(identity);
            }
            card.engine.dealloc_xrc_domain(self.id)
        });
    }
}

impl Drop for XrcDomain {
    fn drop(&mut self) {
        if self.inner.is_some() {
            // Objects that stand in the domain keep it. In a forked child there is nothing to close.
            let _ = self.close(false);
        }
    }
}

impl fmt::Debug for XrcDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("XrcDomain")
            .field("id", &self.inner.as_ref().map(|inner| inner.id))
            .finish()
    }
}

impl Object for XrcDomain {
    /// EBUSY for the last handle of the domain while a queue pair or a shared receive queue stands in it.
    fn destroy(self) -> Result<(), Refused<Self>> {
        if !self.context.device.is_owned() {
            return Ok(());
        }
        let mut this = faults::admit(self, Verb::CloseXrcd, |domain| &domain.context.device.faults)?;
        match this.close(true) {
            Ok(()) => {
                this.inner = None;
                Ok(())
            }
            Err(error) => Err(Refused { object: this, error }),
        }
    }
}
