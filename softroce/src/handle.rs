//! Handles own their parents by `Arc`; a parent can be destroyed once nothing else owns it.

use std::sync::Arc;

use verbs_api::{Error, ErrorKind, Refused};

/// A refusal whose object can still be turned back into the public handle.
pub(crate) struct InUse<T> {
    inner: Arc<T>,
    error: Error,
}

impl<T> InUse<T> {
    /// As the public refusal.
    pub(crate) fn map<H>(self, handle: impl FnOnce(Arc<T>) -> H) -> Refused<H> {
        Refused {
            object: handle(self.inner),
            error: self.error,
        }
    }
}

/// The object itself, if this is its last owner; else EBUSY with the likely `user` named.
pub(crate) fn into_sole_owner<T>(inner: Arc<T>, what: &str, user: &str) -> Result<T, InUse<T>> {
    Arc::try_unwrap(inner).map_err(|inner| InUse {
        error: Error::new(
            ErrorKind::Busy,
            format!(
                "the {what} is still used by {user} or another handle ({} owners); destroy those first",
                Arc::strong_count(&inner)
            ),
        ),
        inner,
    })
}
