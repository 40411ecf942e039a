//! What the engine noted, with what only the system around it knows.

use std::net::IpAddr;

use softroce_engine::{Cause, Engine, Failure};
use verbs_api::{PortState, WcStatus};

use super::{Entry, Kind, Place, has_device_at};
use crate::fabric::Fabric;

/// Write down what the engine has noted.
#[cold]
pub(crate) fn note(failure: &Failure, engine: &Engine, fabric: &dyn Fabric) {
    if super::directory().is_none() {
        return;
    }
    let mut entry = Entry::now(kind(&failure.cause), failure.to_string());
    let own = engine.gid_table().first().map(|entry| entry.gid.ip());
    entry.place = match failure.cause {
        Cause::Request(_) => Some(Place {
            dest_qpn: failure.peer_qpn,
            psn: failure.psn,
            dst: failure.peer,
        }),
        Cause::Refused(_) | Cause::NoReceive | Cause::Dropped(_) => Some(Place {
            dest_qpn: failure.qpn,
            psn: failure.psn,
            dst: own,
        }),
        Cause::CqOverflow => None,
    };
    if let (Cause::Request(request), Some(peer)) = (&failure.cause, failure.peer)
        && request.status == WcStatus::RetryExcErr
    {
        let text = match of_port(engine) {
            Some(text) => text.to_owned(),
            None => advice(peer, fabric.counters().send_refused),
        };
        entry.text.push_str(&text);
    }
    super::note(&entry);
}

/// What to say where nobody answers and the port is why.
pub(crate) fn of_port(engine: &Engine) -> Option<&'static str> {
    (engine.port_attr().state == PortState::Down).then_some("; port 1 is down here")
}

fn kind(cause: &Cause) -> Kind {
    match cause {
        Cause::Refused(_) => Kind::Refused,
        Cause::Request(request) => match request.status {
            WcStatus::RetryExcErr => Kind::NoAnswer,
            WcStatus::RnrRetryExcErr => Kind::NotReady,
            WcStatus::RemAccessErr | WcStatus::RemInvReqErr | WcStatus::RemOpErr => Kind::Rejected,
            _ => Kind::Local,
        },
        Cause::CqOverflow => Kind::Local,
        Cause::NoReceive | Cause::Dropped(_) => Kind::Hint,
    }
}

/// Where to look when nobody answers.
fn advice(peer: IpAddr, send_refused: u64) -> String {
    match has_device_at(peer) {
        Some(false) => {
            format!("; no process has a RoCE device at {peer}: the peer is not running, or its GID is wrong")
        }
        Some(true) => format!(
            "; of the processes with a RoCE device at {peer} none answers for this queue pair: the peer has ended, its number or GID is wrong, or packets are lost"
        ),
        None if send_refused > 0 => {
            format!("; the system refused to send {send_refused} packets: is there a way to {peer}?")
        }
        None => format!("; is the peer running, is {peer} its GID, and is UDP port 4791 open on the way?"),
    }
}
