//! All cases. Each file lists its cases first and has their functions below.

mod answers;
mod atomics;
mod attributes;
mod completion;
mod data;
mod device;
mod events;
mod exhaustive;
mod faults;
mod flush;
mod headers;
mod local_errors;
mod malformed;
mod memory;
mod mix;
mod not_ready;
mod packets;
mod played;
mod receives;
mod remote_errors;
mod repeats;
mod requester;
mod requests;
mod responder;
mod segmentation;
mod states;
mod transitions;
mod weather;
mod wrong_answers;

use crate::case::Case;
use crate::testbed::Testbed;

/// Every case, in the order of the catalogue's groups as far as one file holds one.
pub fn all<B: Testbed>() -> Vec<Case<B>> {
    let groups = [
        device::cases(),
        headers::cases(),
        transitions::cases(),
        states::cases(),
        flush::cases(),
        data::cases(),
        requests::cases(),
        segmentation::cases(),
        packets::cases(),
        atomics::cases(),
        local_errors::cases(),
        faults::cases(),
        weather::cases(),
        exhaustive::cases(),
        requester::cases(),
        answers::cases(),
        wrong_answers::cases(),
        receives::cases(),
        remote_errors::cases(),
        responder::cases(),
        not_ready::cases(),
        repeats::cases(),
        malformed::cases(),
        memory::cases(),
        completion::cases(),
        events::cases(),
    ];
    groups.into_iter().flatten().collect()
}
