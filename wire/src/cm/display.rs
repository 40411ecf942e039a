//! Messages of communication management in a few words each.

use std::fmt;

use super::ip::IpCm;
use super::{Message, MessageKind, RejectReason, RejectedMessage, ServiceId, SidrStatus};
use crate::{Headers, Opcode, Qpn};

/// The message of communication management that a packet carries to queue pair 1, if it is one.
pub fn carried(headers: &Headers, payload: &[u8]) -> Option<Message> {
    if headers.bth.opcode != Opcode::UD_SEND_ONLY || headers.bth.dest_qp != Qpn::GSI {
        return None;
    }
    Message::parse(payload).ok().map(|(_, message)| message)
}

impl fmt::Display for MessageKind {
    /// Its name in the specification.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Req => "REQ",
            Self::Mra => "MRA",
            Self::Rej => "REJ",
            Self::Rep => "REP",
            Self::Rtu => "RTU",
            Self::Dreq => "DREQ",
            Self::Drep => "DREP",
            Self::SidrReq => "SIDR_REQ",
            Self::SidrRep => "SIDR_REP",
            Self::Lap => "LAP",
            Self::Apr => "APR",
        })
    }
}

/// A service as short as it gets.
struct Short(ServiceId);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port() {
            Some((6, port)) => write!(f, "tcp:{port}"),
            Some((17, port)) => write!(f, "udp:{port}"),
            Some((protocol, port)) => write!(f, "protocol {protocol}:{port}"),
            None => write!(f, "{}", self.0),
        }
    }
}

/// A number with its name, if it has one.
fn named(f: &mut fmt::Formatter<'_>, what: &str, number: u16, name: &str) -> fmt::Result {
    write!(f, " {what} {number}")?;
    if name != number.to_string() {
        write!(f, " ({name})")?;
    }
    Ok(())
}

fn request(f: &mut fmt::Formatter<'_>, service: ServiceId, private_data: &[u8]) -> fmt::Result {
    write!(f, " {}", Short(service))?;
    // Only services of ports have it.
    match service.port().and_then(|_| IpCm::parse(private_data).ok()) {
        Some(ip) => write!(f, " from {}", ip.source.ip()),
        None => Ok(()),
    }
}

impl fmt::Display for Message {
    /// `CM`, which it is, and what matters most in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CM {}", self.kind())?;
        match self {
            Self::Req(req) => request(f, req.service_id, &req.private_data),
            Self::SidrReq(req) => request(f, req.service_id, &req.private_data),
            Self::Rej(rej) => {
                match rej.reason {
                    RejectReason::INVALID_SERVICE_ID => named(f, "reason", 8, "no listener")?,
                    reason => named(f, "reason", reason.0, &reason.to_string())?,
                }
                match rej.of_message {
                    RejectedMessage::REP => f.write_str(" of a REP"),
                    _ => Ok(()),
                }
            }
            Self::SidrRep(rep) => match rep.status {
                SidrStatus::VALID => write!(f, " qp {}", rep.qpn),
                SidrStatus::UNSUPPORTED => named(f, "status", 1, "no listener"),
                status => named(f, "status", status.0.into(), &status.to_string()),
            },
            Self::Mra(_)
            | Self::Rep(_)
            | Self::Rtu(_)
            | Self::Dreq(_)
            | Self::Drep(_)
            | Self::Lap(_)
            | Self::Apr(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cm::{Rej, Rep, SidrRep};

    #[test]
    fn refusals_are_named_where_they_have_names() {
        let rej = |reason, of_message| {
            Message::Rej(Rej {
                reason,
                of_message,
                ..Rej::default()
            })
            .to_string()
        };
        assert_eq!(
            rej(RejectReason::INVALID_SERVICE_ID, RejectedMessage::REQ),
            "CM REJ reason 8 (no listener)"
        );
        assert_eq!(
            rej(RejectReason::CONSUMER, RejectedMessage::REP),
            "CM REJ reason 28 (consumer) of a REP"
        );
        assert_eq!(rej(RejectReason(77), RejectedMessage::REQ), "CM REJ reason 77");
        let sidr = |status| {
            Message::SidrRep(SidrRep {
                status,
                qpn: Qpn::new(0x25).unwrap(),
                ..SidrRep::default()
            })
            .to_string()
        };
        assert_eq!(sidr(SidrStatus::VALID), "CM SIDR_REP qp 0x25");
        assert_eq!(
            sidr(SidrStatus::UNSUPPORTED),
            "CM SIDR_REP status 1 (no listener)"
        );
    }

    #[test]
    fn only_datagrams_to_queue_pair_1_are_messages() {
        let mad = Message::Rep(Rep::default()).to_mad(1);
        let mut bth = crate::Bth::new(Opcode::UD_SEND_ONLY, Qpn::GSI, crate::Psn::new(0));
        let told = |bth| carried(&Headers::new(bth), &mad).map(|message| message.to_string());
        assert_eq!(told(bth).as_deref(), Some("CM REP"));
        bth.dest_qp = Qpn::new(2).unwrap();
        assert_eq!(told(bth), None);
        let kinds = MessageKind::ALL.map(|kind| kind.to_string());
        assert_eq!(
            kinds.join(" "),
            "REQ MRA REJ REP RTU DREQ DREP SIDR_REQ SIDR_REP LAP APR"
        );
    }
}
