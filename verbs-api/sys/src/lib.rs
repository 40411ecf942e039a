//! The C structs of libibverbs and librdmacm, as Rust mirrors, and conversions between them and the values of `verbs-api`.
//!
//! Names are those of C, so that the man pages serve as documentation. Layouts are those of the newest headers; a test
//! compares every offset with a committed list and with the installed C headers. Where a struct grew in a later
//! release ([`ibv_port_attr`], [`ibv_qp_ex`], [`verbs_context`]) the new members lie at the end that older programs do
//! not look at, and a library must honour the size that its caller states.
//!
//! Nothing here calls into a library.

// The names are C's own, and so is what they mean.
#![allow(non_camel_case_types, non_snake_case, missing_docs)]

mod attr;
mod cm;
mod constants;
mod context;
pub mod convert;
mod device;
mod mirror;
mod object;
mod work;

pub use attr::*;
pub use cm::*;
pub use constants::*;
pub use context::*;
pub use device::*;
pub use mirror::{Mirror, mirrors};
pub use object::*;
pub use work::*;
