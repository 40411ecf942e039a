//! One connection: its numbers, its peer, and the last message.

use roce_wire::Qpn;
use roce_wire::cm::{
    Apr, AprStatus, Drep, Dreq, Message, Mra, Rej, RejectReason, RejectedMessage, ServiceId, SidrRep,
    SidrStatus,
};
use softroce_engine::Time;

use crate::agent::Peer;
use crate::state::State;

/// How long a peer is asked to be patient: 4.096 µs · 2^24. The choice of RDMA CM.
pub(crate) const SERVICE_TIMEOUT: u8 = 24;

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) state: State,
    /// Own number.
    pub(crate) id: u32,
    /// The peer's; 0 while not known.
    pub(crate) remote_id: u32,
    pub(crate) peer: Peer,
    /// `None` when nobody cares any more.
    pub(crate) owner: Option<u64>,
    pub(crate) transaction_id: u64,
    /// Of the peer, once known.
    pub(crate) remote_ca_guid: u64,
    pub(crate) remote_qpn: Qpn,
    pub(crate) local_qpn: Qpn,
    /// Where a peer's request waits for the program.
    pub(crate) listener: Option<ServiceId>,
    pub(crate) service: ServiceId,
    /// The message that is sent again.
    pub(crate) last: Option<Box<Message>>,
    pub(crate) clock: Clock,
    pub(crate) attempts: Attempts,
}

/// How often the last message was sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempts {
    pub(crate) sent: u32,
    /// When first; of a peer's request, when it came.
    pub(crate) since: Time,
}

/// When what is sent again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// When it next runs out: when the state's time is over, or for an early repetition before that.
    pub(crate) deadline: Option<Time>,
    /// When the state's time is over; of a peer's request, when the peer may take it for lost.
    pub(crate) due: Option<Time>,
    /// From one sending to the next.
    pub(crate) interval_ns: u64,
    /// What the peer has asked for.
    pub(crate) patience_ns: u64,
    /// How long packets of the connection may still be under way after its end.
    pub(crate) timewait_ns: u64,
    /// Repetitions that are left, and that there are from the start.
    pub(crate) retries_left: u8,
    pub(crate) retries_max: u8,
    /// Refusals for want of a listener that are not believed yet.
    pub(crate) unheard_left: u8,
    /// Early repetitions that are left.
    pub(crate) early_left: u8,
}

impl Connection {
    pub(crate) fn mra(&self, service_timeout: u8) -> Message {
        Message::Mra(Mra {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id,
            of_message: u8::from(matches!(self.state, State::RepReceived | State::MraRepSent)),
            service_timeout,
            ..Mra::default()
        })
    }

    /// A rejection of the peer's message.
    pub(crate) fn rej(&self, reason: RejectReason, info: &[u8], private_data: &[u8]) -> Message {
        let of_message = match self.state {
            State::ReqReceived | State::MraReqSent => RejectedMessage::REQ,
            State::RepReceived | State::MraRepSent => RejectedMessage::REP,
            _ => RejectedMessage::NONE,
        };
        let mut rej = Rej {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id,
            of_message,
            info_length: info.len() as u8,
            reason,
            ..Rej::default()
        };
        rej.info[..info.len()].copy_from_slice(info);
        rej.private_data[..private_data.len()].copy_from_slice(private_data);
        Message::Rej(rej)
    }

    pub(crate) fn dreq(&self, private_data: &[u8]) -> Message {
        let mut dreq = Dreq {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id,
            remote_qpn: self.remote_qpn,
            ..Dreq::default()
        };
        dreq.private_data[..private_data.len()].copy_from_slice(private_data);
        Message::Dreq(dreq)
    }

    pub(crate) fn drep(&self, private_data: &[u8]) -> Message {
        let mut drep = Drep {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id,
            ..Drep::default()
        };
        drep.private_data[..private_data.len()].copy_from_slice(private_data);
        Message::Drep(drep)
    }

    pub(crate) fn apr(&self) -> Message {
        Message::Apr(Apr {
            local_comm_id: self.id,
            remote_comm_id: self.remote_id,
            status: AprStatus::UNSUPPORTED,
            ..Apr::default()
        })
    }

    pub(crate) fn sidr_refusal(&self) -> Message {
        Message::SidrRep(SidrRep {
            request_id: self.remote_id,
            status: SidrStatus::REJECTED,
            service_id: self.service,
            ..SidrRep::default()
        })
    }
}
