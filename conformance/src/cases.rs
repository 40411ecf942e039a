//! All cases. Each file lists its cases first and has their functions below.

mod acknowledged_events;
mod addresses;
mod answers;
mod atomics;
mod attributes;
mod completion;
mod completion_features;
mod congestion;
mod connection_attacks;
mod connection_losses;
mod connection_messages;
mod connections;
mod corners;
mod counters;
mod crowds;
mod data;
mod datagram_losses;
mod datagram_paths;
mod datagrams;
mod device;
mod device_memory;
mod draining;
mod events;
mod exhaustive;
mod faults;
mod flush;
mod headers;
mod identification;
mod invalidation;
mod leases;
mod limits;
mod local_errors;
mod malformed;
mod memory;
mod migration;
mod mix;
mod modifies;
mod multicast;
mod not_ready;
mod ordering_operations;
mod pace;
mod packets;
mod played;
mod progress;
mod receives;
mod regions;
mod remote_errors;
mod repeats;
mod requester;
mod requests;
mod reregistration;
mod responder;
mod segmentation;
mod send_errors;
mod shared_queues;
mod shared_receives;
mod states;
mod tallies;
mod transitions;
mod unreliable;
mod unreliable_packets;
mod weather;
mod windows;
mod windows_lives;
mod windows_typed;
mod wrong_answers;
mod xrc;
mod xrc_domains;
mod xrc_packets;

use crate::case::Case;
use crate::testbed::Testbed;

/// Every case, in the order of the catalogue's groups as far as one file holds one.
pub fn all<B: Testbed>() -> Vec<Case<B>> {
    let groups = [
        device::cases(),
        headers::cases(),
        identification::cases(),
        transitions::cases(),
        modifies::cases(),
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
        datagram_paths::cases(),
        xrc_packets::cases(),
        xrc_domains::cases(),
        windows_lives::cases(),
        shared_queues::cases(),
        crowds::cases(),
        corners::cases(),
        counters::cases(),
        tallies::cases(),
        congestion::cases(),
        pace::cases(),
        leases::cases(),
        progress::cases(),
        limits::cases(),
        migration::cases(),
        completion_features::cases(),
        acknowledged_events::cases(),
        draining::cases(),
        reregistration::cases(),
        ordering_operations::cases(),
        regions::cases(),
        device_memory::cases(),
        invalidation::cases(),
        windows_typed::cases(),
        windows::cases(),
        xrc::cases(),
        shared_receives::cases(),
        datagram_losses::cases(),
        send_errors::cases(),
        multicast::cases(),
        datagrams::cases(),
        unreliable_packets::cases(),
        unreliable::cases(),
        addresses::cases(),
        connections::cases(),
        connection_losses::cases(),
        connection_messages::cases(),
        connection_attacks::cases(),
    ];
    groups.into_iter().flatten().collect()
}
