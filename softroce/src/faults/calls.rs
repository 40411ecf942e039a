//! Calls that fail: those that rules name, and all of a device that has failed for good.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use softroce_faults::errno_name;
use verbs_api::{Error, ErrorKind, Refused, Result};

use super::{Active, Faults, Verb};

impl Faults {
    /// A verb is called.
    ///
    /// # Errors
    /// The one that a rule names.
    #[inline]
    pub fn verb(&self, verb: Verb) -> Result<()> {
        match self.is_loaded() {
            false => Ok(()),
            true => self.ask_about_verb(verb),
        }
    }

    #[cold]
    fn ask_about_verb(&self, verb: Verb) -> Result<()> {
        let Some(active) = self.active() else {
            return Ok(());
        };
        if active.is_dead.load(Ordering::Relaxed) && !is_for_the_end(verb) {
            return Err(failed(verb.name()));
        }
        let mut state = active.state.lock();
        let failed = state
            .injector
            .verb(self.now_ns(), verb)
            .map(|(errno, name)| (errno, name.to_owned()));
        state.keep_book();
        let Some((errno, name)) = failed else {
            return Ok(());
        };
        let shown = errno_name(errno).map_or_else(|| errno.to_string(), str::to_owned);
        Err(Error::new(
            ErrorKind::from_errno(errno),
            format!("{}: {shown}, as the fault rule {name:?} says", verb.name()),
        ))
    }

    /// A call is made on a device that no rule can name: one of RDMA CM.
    ///
    /// # Errors
    /// EIO: the device has failed for good.
    pub(crate) fn expect_alive(&self, call: &str) -> Result<()> {
        let is_dead = |active: Arc<Active>| active.is_dead.load(Ordering::Relaxed);
        match self.active().is_some_and(is_dead) {
            true => Err(failed(call)),
            false => Ok(()),
        }
    }
}

fn failed(call: &str) -> Error {
    Error::new(
        ErrorKind::System(libc::EIO),
        format!("{call}: the device has failed, as a fault rule says"),
    )
}

/// An object is to be destroyed: itself, unless a rule says that the call fails.
pub(crate) fn admit<T>(
    object: T,
    verb: Verb,
    faults: impl FnOnce(&T) -> &Faults,
) -> std::result::Result<T, Refused<T>> {
    match faults(&object).verb(verb) {
        Ok(()) => Ok(object),
        Err(error) => Err(Refused { object, error }),
    }
}

/// What works on a device that has failed: looking at what is left, and putting it away.
fn is_for_the_end(verb: Verb) -> bool {
    matches!(
        verb,
        Verb::GetDeviceList
            | Verb::OpenDevice
            | Verb::CloseDevice
            | Verb::GetAsyncEvent
            | Verb::GetCqEvent
            | Verb::PollCq
            | Verb::DeallocPd
            | Verb::DeregMr
            | Verb::FreeDm
            | Verb::DeallocMw
            | Verb::DestroyCompChannel
            | Verb::DestroyCq
            | Verb::DestroySrq
            | Verb::CloseXrcd
            | Verb::DestroyQp
            | Verb::DestroyAh
            | Verb::DetachMcast
    )
}
