//! What a process leaves behind when it ends.
//!
//! An acknowledgement may wait a little, to travel with the answer that the program is likely to post. A program that
//! ends instead, as many do right after their last message, must not leave its peer without: the peer would try again,
//! and then report an error for a message that has arrived. And whoever is connected through RDMA CM hears of the end.

use std::sync::Once;

use crate::card::Card;
use crate::device::Shared;
use crate::{faults, fork, os};

/// Send what waits when this process ends by `exit` or by returning from `main`.
pub(crate) fn watch() {
    static WATCHING: Once = Once::new();
    WATCHING.call_once(|| {
        if let Err(error) = os::at_exit(last_words) {
            tracing::warn!(%error, "cannot watch for the end of the process; its last acknowledgements may be lost");
        }
    });
}

extern "C" fn last_words() {
    fork::visit_open(|shared, guard| {
        part(shared, guard);
        shared.tell_counters_of(guard);
    });
    faults::tell();
}

/// Send the acknowledgements that wait, end the connections of RDMA CM, and leave the address, on all devices of this
/// process: for who ends it without the handlers of `exit`. Waits for no device for long, and for none whose gate this very
/// thread holds (a signal handler may have interrupted it).
pub fn send_what_waits() {
    fork::visit_open(part);
    depart();
}

/// What is sent to the address from now on reaches the other processes on it: nothing of theirs shall lie in a socket that
/// nobody reads any more. The last thing of all, since handlers of `exit` that the program has may still use its devices.
pub(crate) extern "C" fn depart() {
    fork::visit_open(|_, card| card.fabric.depart());
}

fn part(shared: &Shared, card: &mut Card) {
    let was_connected = card.part_with_peers(shared.clock.now());
    card.flush(shared.clock.now(), &shared.pace);
    if was_connected {
        card.pass_on_the_rest();
    }
}
