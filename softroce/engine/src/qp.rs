//! Queue pairs.
pub(crate) mod transition;
