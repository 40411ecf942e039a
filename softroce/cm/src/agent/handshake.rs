//! A handshake that is not complete, for a person who wonders why a program does not come to an end.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use roce_wire::Qpn;
use roce_wire::cm::ServiceId;
use softroce_engine::Time;

use super::Agent;
use crate::connection::Connection;
use crate::state::State;

/// See the module's documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handshake {
    /// The owner's number of its own.
    pub owner: u64,
    /// Where it stands.
    pub state: State,
    /// The peer's address.
    pub peer: IpAddr,
    /// The service that one asked the other for.
    pub service: ServiceId,
    /// The own queue pair; 0 while it is not known.
    pub local_qpn: Qpn,
    /// How often the message that has no answer was sent.
    pub sent: u32,
    /// Since it was sent first, or since the peer's message came, ns.
    pub waited_ns: u64,
}

impl Handshake {
    /// Whether the peer has not said anything at all.
    pub const fn is_unheard(&self) -> bool {
        matches!(self.state, State::ReqSent | State::SidrReqSent)
    }

    /// Whom we asked, by address and port where the service is one of a port.
    pub fn asked(&self) -> String {
        match self.service.port() {
            Some((_, port)) => SocketAddr::new(self.peer, port).to_string(),
            None => format!("{} ({})", self.peer, self.service),
        }
    }
}

impl fmt::Display for Handshake {
    /// One sentence.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.waited_ns as f64 / 1e9;
        let (peer, service, sent) = (self.peer, self.service, self.sent);
        match self.state {
            State::ReqSent | State::SidrReqSent => write!(
                f,
                "a request to {} has no answer since {seconds:.1} s (sent {sent} times)",
                self.asked()
            ),
            State::MraReqReceived => write!(
                f,
                "{} has a request and has not replied to it since {seconds:.1} s: its program has yet to accept or reject it",
                self.asked()
            ),
            State::RepReceived | State::MraRepSent => write!(
                f,
                "the reply of {} waits for the program since {seconds:.1} s: it has yet to make its queue pair ready and to say so (rdma_establish)",
                self.asked()
            ),
            State::ReqReceived | State::MraReqSent | State::SidrReqReceived => write!(
                f,
                "a request of {peer} for {service} waits for the program to accept or reject it since {seconds:.1} s (rdma_accept, rdma_reject)"
            ),
            State::RepSent => write!(
                f,
                "the reply to {peer}, which asked for {service}, has no answer since {seconds:.1} s (sent {sent} times)"
            ),
            State::MraRepReceived => write!(
                f,
                "{peer}, which asked for {service}, has the reply and is not ready since {seconds:.1} s"
            ),
            State::Established
            | State::DreqSent
            | State::DreqReceived
            | State::Timewait
            | State::SidrAnswered
            | State::Closed => write!(f, "the connection with {peer} is complete, or over"),
        }
    }
}

impl Connection {
    /// The handshake, while there is one that somebody cares for.
    pub(crate) fn handshake(&self, now: Time) -> Option<Handshake> {
        let is_complete = matches!(
            self.state,
            State::Established
                | State::DreqSent
                | State::DreqReceived
                | State::Timewait
                | State::SidrAnswered
                | State::Closed
        );
        let owner = self.owner.filter(|_| !is_complete)?;
        Some(Handshake {
            owner,
            state: self.state,
            peer: self.peer.address,
            service: self.service,
            local_qpn: self.local_qpn,
            sent: self.attempts.sent,
            waited_ns: now.since(self.attempts.since),
        })
    }
}

impl Agent {
    /// The handshakes that are not complete, those that wait longest first.
    pub fn handshakes(&self, now: Time) -> Vec<Handshake> {
        let mut found: Vec<Handshake> = self
            .connections
            .values()
            .filter_map(|connection| connection.handshake(now))
            .collect();
        found.sort_by_key(|handshake| std::cmp::Reverse(handshake.waited_ns));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handshake(state: State) -> Handshake {
        Handshake {
            owner: 1,
            state,
            peer: "127.0.0.77".parse().unwrap(),
            service: ServiceId::of_port(6, 7998),
            local_qpn: Qpn::new(0x11).unwrap(),
            sent: 21,
            waited_ns: 6_000_000_000,
        }
    }

    #[test]
    fn a_handshake_says_who_has_yet_to_do_what() {
        assert_eq!(
            handshake(State::ReqSent).to_string(),
            "a request to 127.0.0.77:7998 has no answer since 6.0 s (sent 21 times)"
        );
        assert_eq!(
            handshake(State::MraReqReceived).to_string(),
            "127.0.0.77:7998 has a request and has not replied to it since 6.0 s: its program has yet to accept or reject it"
        );
        assert_eq!(
            handshake(State::ReqReceived).to_string(),
            "a request of 127.0.0.77 for TCP port 7998 waits for the program to accept or reject it since 6.0 s (rdma_accept, rdma_reject)"
        );
        assert_eq!(
            handshake(State::RepSent).to_string(),
            "the reply to 127.0.0.77, which asked for TCP port 7998, has no answer since 6.0 s (sent 21 times)"
        );
        let other = Handshake {
            service: ServiceId(7),
            peer: "::1".parse().unwrap(),
            ..handshake(State::SidrReqSent)
        };
        assert!(
            other
                .to_string()
                .starts_with("a request to ::1 (service 0x0000000000000007) has no answer"),
            "{other}"
        );
    }
}
