//! What links tell.

use super::super::control::{Adopted, LinkMessage};
use super::super::slice::Slice;

/// What happened on the links.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::fabric) enum Event<'a> {
    /// A member that was not linked is now.
    Joined(Slice),
    /// A member has gone (it is not linked any more).
    Left(Slice),
    /// A member says something.
    Message(Slice, LinkMessage<'a>),
    /// Another process has received this for a service that we claimed.
    Request(Adopted<'a>),
    /// The timer has run out.
    Timer,
    /// Another descriptor in the set is readable.
    Other,
    /// Something without meaning.
    Noise,
}

/// Why nothing was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric) enum NotSent {
    /// There is no link to the owner, or no owner.
    NotLinked,
    /// The owner's inbox is full (it is stopped, or slow), or it is dying.
    DoesNotRead,
}
