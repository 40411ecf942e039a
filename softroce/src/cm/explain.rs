//! Connections that did not come about, in words: for the journal of a run, and for who asks what a program waits for.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering;

use roce_wire::cm::{RejectReason, RejectedMessage, SidrStatus};
use softroce_cm::Handshake;
use softroce_engine::Time;
use verbs_api::Error;

use super::id::{IdInner, Phase};
use crate::card::Card;
use crate::journal::failures::of_port;
use crate::journal::{self, Entry, Kind};

/// Entries about ids in an answer, at most.
const TOLD_MAX: usize = 24;

/// The peer's address and port as entries of the journal name it, so that a later success is known to be with the same.
fn name(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "an unknown peer".to_owned(), |peer| peer.to_string())
}

/// Note that `id` is not connected, and why. Without a journal this costs next to nothing.
fn note(id: &IdInner, text: impl FnOnce(Option<SocketAddr>) -> String) {
    if journal::directory().is_some() {
        let peer = id.lock().peer;
        journal::note_connect(&name(peer), text(peer));
    }
}

/// The peer has refused.
#[cold]
pub(super) fn note_rejection(id: &IdInner, of_message: RejectedMessage, reason: RejectReason) {
    note(id, |peer| rejection(id.protocol(), peer, of_message, reason));
}

fn rejection(
    protocol: u8,
    peer: Option<SocketAddr>,
    of_message: RejectedMessage,
    reason: RejectReason,
) -> String {
    let (number, name) = (reason.0, name(peer));
    let why = match reason {
        RejectReason::TIMEOUT => {
            return format!(
                "{name} has given the connection up: it waited too long for an answer (reason {number})"
            );
        }
        RejectReason::INVALID_SERVICE_ID => {
            format!(
                ": nobody listens on {} there (reason {number})",
                service(protocol, peer)
            )
        }
        RejectReason::CONSUMER => {
            format!(" by the program there: rdma_reject, or it let the request go (reason {number})")
        }
        RejectReason::STALE_CONNECTION => {
            format!(": the queue pair is connected already as far as is known there (reason {number})")
        }
        RejectReason::INVALID_MTU => {
            format!(": the path MTU is too large for the port there (reason {number})")
        }
        // Some have no name but their number.
        other if other.to_string() == number.to_string() => format!(" (reason {number})"),
        other => format!(": {other} (reason {number})"),
    };
    match of_message {
        RejectedMessage::REP => format!("rdma_accept of the request of {name} was rejected{why}"),
        _ => format!("rdma_connect to {name} was rejected{why}"),
    }
}

fn service(protocol: u8, peer: Option<SocketAddr>) -> String {
    let port = peer.map_or(0, |peer| peer.port());
    roce_wire::cm::ServiceId::of_port(protocol, port).to_string()
}

/// The peer does not serve datagrams as it was asked to.
#[cold]
pub(super) fn note_no_service(id: &IdInner, status: SidrStatus) {
    note(id, |peer| no_service(id.protocol(), peer, status));
}

fn no_service(protocol: u8, peer: Option<SocketAddr>, status: SidrStatus) -> String {
    let (number, name) = (status.0, name(peer));
    let why = match status {
        SidrStatus::UNSUPPORTED => {
            format!(
                ": nobody listens on {} there (SIDR status {number})",
                service(protocol, peer)
            )
        }
        SidrStatus::REJECTED => {
            format!(" by the program there: rdma_reject, or it let the request go (SIDR status {number})")
        }
        other if other.to_string() == number.to_string() => format!(" (SIDR status {number})"),
        other => format!(": {other} (SIDR status {number})"),
    };
    format!("rdma_connect to {name} was rejected{why}")
}

/// The peer does not answer.
#[cold]
pub(super) fn note_unreachable(id: &IdInner, handshake: &Handshake, card: &Card) {
    note(id, |peer| {
        let mut text = unreachable(peer, handshake);
        if handshake.is_unheard() {
            text.push_str(&advice(handshake.peer, of_port(&card.engine)));
        }
        text
    });
}

fn unreachable(peer: Option<SocketAddr>, handshake: &Handshake) -> String {
    let (name, sent) = (name(peer), handshake.sent);
    let seconds = handshake.waited_ns as f64 / 1e9;
    match handshake.state {
        softroce_cm::State::MraReqReceived => format!(
            "rdma_connect to {name} had no reply in {seconds:.1} s: its program has neither accepted nor rejected it"
        ),
        softroce_cm::State::RepSent | softroce_cm::State::MraRepReceived => format!(
            "rdma_accept of the request of {name} had no answer in {seconds:.1} s (sent {sent} times)"
        ),
        _ => format!("rdma_connect to {name} had no answer in {seconds:.1} s (sent {sent} times)"),
    }
}

/// An address does not resolve.
#[cold]
pub(super) fn note_no_address(remote: SocketAddr, error: &Error) {
    if journal::directory().is_some() {
        let text = format!("rdma_resolve_addr of {remote} failed: {error}");
        journal::note_connect(&remote.to_string(), text);
    }
}

/// A queue pair cannot be connected as the peer has replied.
#[cold]
pub(super) fn note_no_queue_pair(id: &IdInner, qpn: u32, error: &Error) {
    note(id, |peer| {
        let peer = name(peer);
        format!("rdma_connect to {peer} failed: queue pair {qpn:#x} cannot be connected: {error}")
    });
}

/// A connection is there.
pub(super) fn note_connected(id: &IdInner) {
    journal::note_connected(|| name(id.lock().peer));
}

fn advice(peer: IpAddr, of_port: Option<&'static str>) -> String {
    of_port.map_or_else(|| where_to_look(peer), str::to_owned)
}

/// Where to look when nobody answers to a request.
fn where_to_look(peer: IpAddr) -> String {
    match journal::has_device_at(peer) {
        Some(false) => format!(": no process with a device at {peer}"),
        Some(true) => format!(
            ": of the processes with a device at {peer} none answers (stopped, its backlog is full, or packets are lost on the way)"
        ),
        None => {
            format!("; is a program running at {peer}, and is UDP port 4791 open on the way?")
        }
    }
}

/// What ids wait for.
pub(crate) struct Waits {
    /// Handshakes that are not complete.
    handshakes: Vec<Handshake>,
    /// What ids say in words.
    others: Vec<String>,
    /// Queue pairs that wait for an id, or that it has given up.
    pub(crate) queue_pairs: Vec<u32>,
    /// What is to be said of the port, if it is why.
    of_port: Option<&'static str>,
}

impl Card {
    /// What ids of this device wait for.
    pub(crate) fn waiting_ids(&self, now: Time) -> Waits {
        let handshakes = self.cm.agent.handshakes(now);
        let mut waits = Waits {
            queue_pairs: handshakes
                .iter()
                .map(|handshake| handshake.local_qpn.value())
                .collect(),
            handshakes,
            others: Vec::new(),
            of_port: of_port(&self.engine),
        };
        let own = self.engine.gid_table().first().map(|entry| entry.gid.ip());
        for id in self.cm.known() {
            let state = id.lock();
            let qpn = state.qp.as_ref().map(|qp| qp.qpn);
            match state.phase {
                Phase::Listening => {
                    let listens = state.ports.iter().find(|port| port.is_listening);
                    if let (Some(port), Some(own), 0) = (listens, own, id.requests.load(Ordering::Relaxed)) {
                        let service = port.service;
                        let text = format!("listens on {service} of {own}, and no request has come");
                        waits.others.push(text);
                    }
                    continue;
                }
                Phase::AddrResolved | Phase::RouteResolved => {
                    if let Some(qpn) = qpn {
                        let peer = name(state.peer);
                        let text = format!(
                            "queue pair {qpn:#x} waits for the program to connect it to {peer} (rdma_connect)"
                        );
                        waits.others.push(text);
                    }
                }
                Phase::Requested | Phase::Connecting | Phase::Replied | Phase::Ended => {}
                Phase::Idle | Phase::Bound | Phase::Connected => continue,
            }
            waits.queue_pairs.extend(qpn);
        }
        waits
    }
}

impl Waits {
    /// One entry for each, the most telling first.
    pub(crate) fn entries(self) -> Vec<Entry> {
        let connecting = self.handshakes.iter().map(|handshake| {
            let mut text = handshake.to_string();
            if handshake.is_unheard() {
                text.push_str(&advice(handshake.peer, self.of_port));
            }
            Entry::now(Kind::Connecting, text)
        });
        let others = self.others.into_iter();
        connecting
            .take(TOLD_MAX)
            .chain(others.map(|text| Entry::now(Kind::Waiting, text)))
            .take(TOLD_MAX)
            .collect()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const TCP: u8 = 6;
    const UDP: u8 = 17;

    fn peer() -> Option<SocketAddr> {
        Some("127.0.0.1:7999".parse().unwrap())
    }

    #[test]
    fn a_rejection_says_whose_it_is_and_why() {
        let told = |of_message, reason| rejection(TCP, peer(), of_message, reason);
        for (reason, text) in [
            (
                RejectReason::INVALID_SERVICE_ID,
                "rdma_connect to 127.0.0.1:7999 was rejected: nobody listens on TCP port 7999 there (reason 8)",
            ),
            (
                RejectReason::CONSUMER,
                "rdma_connect to 127.0.0.1:7999 was rejected by the program there: rdma_reject, or it let the request go (reason 28)",
            ),
            (
                RejectReason::NO_RESOURCES,
                "rdma_connect to 127.0.0.1:7999 was rejected: no resources (reason 3)",
            ),
            (
                RejectReason(77),
                "rdma_connect to 127.0.0.1:7999 was rejected (reason 77)",
            ),
        ] {
            assert_eq!(told(RejectedMessage::REQ, reason), text);
        }
        assert_eq!(
            told(RejectedMessage::REP, RejectReason::INVALID_COMM_ID),
            "rdma_accept of the request of 127.0.0.1:7999 was rejected: invalid communication ID (reason 6)"
        );
        assert_eq!(
            told(RejectedMessage::NONE, RejectReason::TIMEOUT),
            "127.0.0.1:7999 has given the connection up: it waited too long for an answer (reason 4)"
        );
    }

    #[test]
    fn a_service_of_datagrams_that_is_not_there_is_told_likewise() {
        assert_eq!(
            no_service(UDP, peer(), SidrStatus::UNSUPPORTED),
            "rdma_connect to 127.0.0.1:7999 was rejected: nobody listens on UDP port 7999 there (SIDR status 1)"
        );
        assert_eq!(
            no_service(UDP, peer(), SidrStatus::REJECTED),
            "rdma_connect to 127.0.0.1:7999 was rejected by the program there: rdma_reject, or it let the request go (SIDR status 2)"
        );
    }

    #[test]
    fn who_is_asked_in_vain_is_looked_for() {
        let text = where_to_look("127.77.0.2".parse().unwrap());
        assert_eq!(text, ": no process with a device at 127.77.0.2");
        let text = where_to_look("192.0.2.77".parse().unwrap());
        assert!(text.starts_with("; is a program running at 192.0.2.77"), "{text}");
    }
}
