//! All cases. Each file lists its cases first and has their functions below.

pub mod atomics;
pub mod completion;
pub mod data;
pub mod device;
pub mod faults;
pub mod flush;
pub mod local_errors;
pub mod memory;
pub mod remote_errors;
pub mod requester;
pub mod responder;
pub mod states;

use crate::case::Case;
use crate::testbed::Testbed;

/// Every case, in the order of the catalogue's groups.
pub fn all<B: Testbed>() -> Vec<Case<B>> {
    let groups = [
        device::cases(),
        states::cases(),
        flush::cases(),
        data::cases(),
        atomics::cases(),
        local_errors::cases(),
        remote_errors::cases(),
        memory::cases(),
        completion::cases(),
        faults::cases(),
        requester::cases(),
        responder::cases(),
    ];
    groups.into_iter().flatten().collect()
}
