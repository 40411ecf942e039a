//! Posting of work requests.
#![forbid(unsafe_code)]

use roce_wire::{Qpn, Srqn};
use verbs_api::{Error, ErrorKind, Payload, QpState, QpType, RecvWr, Result};

use super::Engine;
use super::address::check_handle;
use super::queue_pair::unknown;
use crate::qp::{Operation, ReceiveRefusal, SendRefusal};
use crate::shared::Shared;
use crate::{SendOperation, SendRequest, Time};

impl Engine {
    /// Queue a send request. Packets leave with the next [`Engine::poll_transmit`]; inline data is copied now.
    ///
    /// # Errors
    /// EINVAL: the state, the operation, too many entries, too much inline data, a message above 2^31 bytes; of datagrams,
    /// a message above the port's MTU or an address handle of another domain. ENOMEM: the queue is full.
    /// EOPNOTSUPP: the operation is not offered.
    pub fn post_send(&mut self, now: Time, qpn: u32, request: &SendRequest<'_>) -> Result<()> {
        let op = Operation::of(&request.op)?;
        self.post_operation(now, qpn, request, op)
    }

    /// Take the newest `count` send requests of a queue pair back, without completions: those that were posted since the
    /// last [`Engine::poll_transmit`]. Requests that have begun, or were flushed, stay what they are.
    pub fn withdraw_sends(&mut self, qpn: u32, count: u64) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.withdraw_sends(&mut self.shared, count);
        }
    }

    /// Queue a request whose operation is `op`, whatever the request says.
    pub(super) fn post_operation(
        &mut self,
        now: Time,
        qpn: u32,
        request: &SendRequest<'_>,
        op: Operation,
    ) -> Result<()> {
        self.shared.now = now;
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        match qp.state {
            QpState::Rts | QpState::Sqd | QpState::Sqe | QpState::Err => {}
            QpState::Reset | QpState::Init | QpState::Rtr => {
                return Err(Error::invalid(
                    "send requests are taken from RTS on; modify the queue pair first",
                ));
            }
        }
        check_service(qp.id.qp_type, &request.op)?;
        if let SendOperation::SendTo { ah, remote_qpn, .. } = &request.op {
            check_handle(&self.address_handles, ah, qp.id.pd)?;
            check_datagram(&self.shared, *remote_qpn, &request.payload)?;
        }
        if qp.id.qp_type == QpType::XrcInitiator && !op.is_local() {
            check_srqn(request.xrc_srqn)?;
        }
        if op.returns_data() && matches!(request.payload, Payload::Inline(_)) {
            return Err(Error::invalid(
                "READs and atomics return data, which cannot be inline",
            ));
        }
        if op.has_response() && qp.attr.max_rd_atomic == Some(0) {
            return Err(Error::invalid(
                "max_rd_atomic is 0: READ, atomics, ATOMIC WRITE and FLUSH can never be sent",
            ));
        }
        qp.post_send(&mut self.shared, request, op)
            .map_err(explain_send)?;
        self.fail_overflowed();
        Ok(())
    }

    /// Queue a receive request.
    ///
    /// # Errors
    /// EINVAL: in RESET, too many entries, or a queue pair without a receive queue of its own. ENOMEM: the queue is full.
    pub fn post_recv(&mut self, now: Time, qpn: u32, request: &RecvWr<'_>) -> Result<()> {
        self.shared.now = now;
        let qp = self.qps.get_mut(qpn).ok_or_else(|| unknown(qpn))?;
        if !qp.has_own_receives() {
            return Err(Error::invalid(
                "the queue pair has no receive queue of its own; post to the shared receive queue",
            ));
        }
        if qp.state == QpState::Reset {
            return Err(Error::invalid(
                "receive requests are taken from INIT on; modify the queue pair first",
            ));
        }
        qp.post_recv(&mut self.shared, request).map_err(explain_receive)?;
        self.fail_overflowed();
        Ok(())
    }
}

/// EINVAL for what the service of a queue pair of this type does not have.
fn check_service(qp_type: QpType, op: &SendOperation) -> Result<()> {
    let is_in_service = match qp_type {
        QpType::Rc | QpType::XrcInitiator => !matches!(op, SendOperation::SendTo { .. }),
        QpType::Uc => matches!(
            op,
            SendOperation::Send { .. }
                | SendOperation::Write { .. }
                | SendOperation::LocalInvalidate { .. }
                | SendOperation::BindMw { .. }
        ),
        QpType::Ud | QpType::Gsi => matches!(op, SendOperation::SendTo { .. }),
        QpType::XrcTarget | QpType::RawPacket => false,
    };
    if !is_in_service {
        return Err(Error::invalid(
            "the queue pair's service does not have this operation: UC has SEND and WRITE, UD has SEND to an address \
             handle",
        ));
    }
    Ok(())
}

/// What a datagram must be besides. One above the MTU would be lost without a word (IBA C10-93.1.1): better to say so.
fn check_datagram(shared: &Shared, remote_qpn: u32, payload: &Payload<'_>) -> Result<()> {
    if remote_qpn > Qpn::MULTICAST.value() {
        return Err(Error::invalid(format!(
            "{remote_qpn:#x} is no queue pair number: they have 24 bits"
        )));
    }
    let length: u64 = match payload {
        Payload::Sges(sges) => sges.iter().map(|sge| u64::from(sge.length)).sum(),
        Payload::Inline(bytes) => bytes.len() as u64,
    };
    if length > shared.port_mtu_bytes as u64 {
        return Err(Error::invalid(format!(
            "a datagram of {length} bytes; the port's MTU lets {} through, and datagrams are not cut",
            shared.port_mtu_bytes
        )));
    }
    Ok(())
}

/// What an XRC initiator sends names the shared receive queue that it is for, whatever it does.
fn check_srqn(srqn: Option<u32>) -> Result<()> {
    match srqn {
        Some(number) if Srqn::new(number).is_some() => Ok(()),
        Some(number) => Err(Error::invalid(format!(
            "{number:#x} is no number of a shared receive queue; those have 24 bits"
        ))),
        None => Err(Error::invalid(
            "an XRC request needs the number of the shared receive queue that it is for",
        )),
    }
}

fn explain_send(refusal: SendRefusal) -> Error {
    match refusal {
        SendRefusal::Full { depth } => Error::new(
            ErrorKind::NoMemory,
            format!("the send queue is full with {depth} requests; poll its completions"),
        ),
        SendRefusal::TooManySges { given, limit } => Error::invalid(format!(
            "{given} scatter/gather entries; the queue pair has room for {limit}"
        )),
        SendRefusal::TooMuchInline { given, limit } => Error::invalid(format!(
            "{given} bytes of inline data; the queue pair has room for {limit}"
        )),
        SendRefusal::NoWord { bytes } => {
            Error::invalid(format!("{bytes} bytes for an ATOMIC WRITE, which writes 8"))
        }
        SendRefusal::TooLong { bytes } => Error::invalid(format!(
            "a message of {bytes} bytes; the longest is {}",
            1_u64 << 31
        )),
    }
}

fn explain_receive(refusal: ReceiveRefusal) -> Error {
    match refusal {
        ReceiveRefusal::Full { depth } => Error::new(
            ErrorKind::NoMemory,
            format!("the receive queue is full with {depth} requests"),
        ),
        ReceiveRefusal::TooManySges { given, limit } => Error::invalid(format!(
            "{given} scatter/gather entries; the queue pair has room for {limit}"
        )),
    }
}
