//! The verbs of an id.

use std::net::SocketAddr;
use std::time::Duration;

use roce_wire::cm::{RejectReason, SidrRep, SidrStatus};
use softroce_cm::Refuse;
use softroce_engine::Time;
use verbs_api::{CmEventKind, CmPortSpace, ConnectionParameters, Error, ErrorKind, QpAttr, QpState, Result};

use super::channel::Queued;
use super::explain;
use super::id::Phase;
use super::{Cm, CmId};
use crate::card::Card;
use crate::context::Context;
use crate::qp::Qp;

mod address;
mod connect;
mod group;
mod queue_pair;

pub use group::GroupMember;

/// Requests that may wait when the program leaves it open.
const BACKLOG_DEFAULT: u32 = 1024;
/// EADDRNOTAVAIL.
const NOT_HERE: ErrorKind = ErrorKind::System(99);

impl verbs_api::CmId for CmId {
    type M = Cm;

    fn set_cookie(&self, cookie: u64) {
        self.inner.set_cookie(cookie);
    }

    fn port_space(&self) -> CmPortSpace {
        self.inner.space
    }

    /// EADDRINUSE; EADDRNOTAVAIL: no device has the address; EINVAL: bound already.
    fn bind_addr(&self, local: SocketAddr) -> Result<()> {
        self.expect_alive("bind_addr")?;
        let _alone = self.inner.calls.lock();
        self.bind(local)
    }

    /// An id that is not bound is bound to any port of all devices first. EADDRINUSE: another id that shares the port
    /// listens.
    fn listen(&self, backlog: u32) -> Result<()> {
        self.expect_alive("listen")?;
        let _alone = self.inner.calls.lock();
        if self.inner.lock().phase == Phase::Idle {
            self.bind(SocketAddr::from(([0, 0, 0, 0], 0)))?;
        }
        self.expect_phase(&[Phase::Bound], "listen")?;
        // One on all addresses is on no device of its own.
        self.inner.provider.faults().expect_alive("listen")?;
        let backlog = if backlog == 0 { BACKLOG_DEFAULT } else { backlog };
        let ports = self.inner.lock().ports.clone();
        for (position, port) in ports.iter().enumerate() {
            let listens = port
                .context
                .device
                .verb(|card, _| card.listen(port.service, &self.inner, backlog));
            if let Err(error) = listens {
                self.listen_no_more(&ports[..position]);
                return Err(error);
            }
            if let Some(held) = self.inner.lock().ports.get_mut(position) {
                held.is_listening = true;
            }
        }
        self.inner.lock().phase = Phase::Listening;
        Ok(())
    }

    /// The answer is an event, *AddrResolved* or *AddrError*; no time passes.
    fn resolve_addr(&self, local: Option<SocketAddr>, remote: SocketAddr, _timeout: Duration) -> Result<()> {
        self.expect_alive("resolve_addr")?;
        let _alone = self.inner.calls.lock();
        self.expect_phase(&[Phase::Idle, Phase::Bound], "resolve an address")?;
        if let Some(local) = local
            && self.inner.lock().phase == Phase::Idle
            && (local.port() != 0 || !local.ip().is_unspecified())
        {
            self.bind(local)?;
        }
        match self.resolve(remote) {
            Ok(()) => self.inner.tell(CmEventKind::AddrResolved, 0),
            Err(error) if matches!(error.kind(), ErrorKind::System(113)) => {
                tracing::info!(%error, %remote, "an address does not resolve");
                explain::note_no_address(remote, &error);
                self.inner.tell(CmEventKind::AddrError, -error.errno());
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn resolve_route(&self, _timeout: Duration) -> Result<()> {
        self.expect_alive("resolve_route")?;
        let _alone = self.inner.calls.lock();
        self.expect_phase(&[Phase::AddrResolved], "resolve a route")?;
        self.inner.lock().phase = Phase::RouteResolved;
        self.inner.tell(CmEventKind::RouteResolved, 0);
        Ok(())
    }

    fn context(&self) -> Option<Context> {
        self.inner
            .lock()
            .device
            .as_ref()
            .map(|inner| Context { inner: inner.clone() })
    }

    fn device_name(&self) -> Option<String> {
        self.inner
            .lock()
            .device
            .as_ref()
            .map(|inner| inner.device.name.clone())
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.lock().local
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.lock().peer
    }

    /// EINVAL: the queue pair is of another device, or there is one already, or its type is not the port space's.
    fn bind_qp(&self, qp: &Qp) -> Result<()> {
        self.expect_alive("bind_qp")?;
        let _alone = self.inner.calls.lock();
        self.bind_queue_pair(qp)
    }

    fn unbind_qp(&self) {
        self.inner.lock().qp = None;
    }

    /// EINVAL for RTR and RTS before the peer has said what they need, and for states that the manager has no part in.
    fn qp_attr(&self, state: QpState) -> Result<QpAttr> {
        self.expect_alive("qp_attr")?;
        self.queue_pair_attr(state)
    }

    fn connect(&self, parameters: &ConnectionParameters<'_>) -> Result<()> {
        self.expect_alive("connect")?;
        let _alone = self.inner.calls.lock();
        self.expect_phase(&[Phase::RouteResolved], "connect")?;
        match self.inner.space {
            CmPortSpace::Udp | CmPortSpace::Ipoib => self.ask_for_datagrams(parameters),
            CmPortSpace::Tcp | CmPortSpace::Ib => self.ask_for_connection(parameters),
        }
    }

    fn accept(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()> {
        self.expect_alive("accept")?;
        let _alone = self.inner.calls.lock();
        let phase = self.inner.lock().phase;
        match (phase, self.inner.space.is_datagram()) {
            (Phase::Replied, _) => {
                let private_data = parameters.map_or(&[][..], |parameters| parameters.private_data);
                self.command_to(Phase::Connected, |card, now, comm_id| {
                    card.cm.agent.ready(now, comm_id, private_data)
                })
            }
            (Phase::Requested, true) => self.answer_datagrams(parameters),
            (Phase::Requested, false) => self.reply(parameters),
            _ => Err(self.not_now("accept")),
        }
    }

    fn reject(&self, private_data: &[u8]) -> Result<()> {
        self.refuse(RejectReason::CONSUMER, private_data)
    }

    fn established(&self) -> Result<()> {
        self.expect_alive("established")?;
        let _alone = self.inner.calls.lock();
        self.command(|card, now, comm_id| card.cm.agent.establish(now, comm_id))
    }

    /// The queue pair, if bound, goes to ERR. EINVAL: there never was a connection.
    fn disconnect(&self) -> Result<()> {
        self.expect_alive("disconnect")?;
        let _alone = self.inner.calls.lock();
        self.let_queue_pair_fail()?;
        if self.inner.lock().phase == Phase::Ended {
            return Ok(());
        }
        self.command(|card, now, comm_id| card.cm.agent.disconnect(now, comm_id, &[]))
    }

    /// The bound queue pair, if there is one, is attached. The answer is an event, *MulticastJoin*, that says where to send
    /// to. RoCE has no subnet administration: the group is the address itself.
    fn join_multicast(&self, group: SocketAddr, cookie: u64) -> Result<()> {
        self.join_multicast_as(group, GroupMember::Full, cookie)
    }

    /// EADDRNOTAVAIL: not joined.
    fn leave_multicast(&self, group: SocketAddr) -> Result<()> {
        self.leave_group(group)
    }

    fn migrate(&self, to: &Cm) -> Result<()> {
        self.inner.migrate(&to.channel);
        Ok(())
    }

    fn set_type_of_service(&self, type_of_service: u8) -> Result<()> {
        self.expect_alive("set_type_of_service")?;
        self.inner.lock().options.type_of_service = type_of_service;
        Ok(())
    }

    fn set_ack_timeout(&self, code: u8) -> Result<()> {
        self.expect_alive("set_ack_timeout")?;
        if code > 31 {
            return Err(Error::invalid(format!(
                "an ACK timeout code is 0 to 31, not {code}"
            )));
        }
        self.inner.lock().options.ack_timeout = Some(code);
        Ok(())
    }

    /// EINVAL: bound already.
    fn set_reuse_address(&self, reuse: bool) -> Result<()> {
        self.expect_alive("set_reuse_address")?;
        let _alone = self.inner.calls.lock();
        self.expect_phase(&[Phase::Idle], "let an address be shared")?;
        self.inner.lock().options.reuse_address = reuse;
        Ok(())
    }

    /// EINVAL: bound already.
    fn set_only_own_family(&self, only: bool) -> Result<()> {
        self.expect_alive("set_only_own_family")?;
        let _alone = self.inner.calls.lock();
        self.expect_phase(&[Phase::Idle], "keep address families apart")?;
        self.inner.lock().options.only_own_family = only;
        Ok(())
    }
}

impl CmId {
    /// Refuse a request because of its vendor options: [`reject`](verbs_api::CmId::reject) with reason 35.
    ///
    /// # Errors
    /// As `reject`.
    pub fn reject_vendor_options(&self, private_data: &[u8]) -> Result<()> {
        self.refuse(RejectReason::VENDOR_OPTION, private_data)
    }

    /// Whether `call` is of any use.
    ///
    /// # Errors
    /// EIO: the device of the id has failed for good, as a fault rule says. Then only what looks at what is left, and puts
    /// it away, works: events, addresses, leaving a group, moving to another channel, destroying.
    pub fn expect_alive(&self, call: &str) -> Result<()> {
        let device = self.inner.lock().device.clone();
        device.map_or(Ok(()), |context| context.device.faults.expect_alive(call))
    }

    /// An event that the program makes for itself: [`CmEventKind::User`] and its like, with a status and a number of its
    /// own, which comes as the [group's cookie](verbs_api::CmEvent::group_cookie).
    pub fn tell_program(&self, kind: CmEventKind, status: i32, number: u64) {
        let event = Queued {
            group_cookie: number,
            ..Queued::new(&self.inner, kind, status)
        };
        // On a closed channel there is nobody to tell.
        let _ = self.inner.push(event);
    }

    fn refuse(&self, reason: RejectReason, private_data: &[u8]) -> Result<()> {
        self.expect_alive("reject")?;
        let _alone = self.inner.calls.lock();
        self.expect_phase(&[Phase::Requested, Phase::Replied], "reject")?;
        if self.inner.space.is_datagram() {
            let rep = SidrRep {
                status: SidrStatus::REJECTED,
                private_data: field(private_data, 0)?,
                ..SidrRep::default()
            };
            self.command_to(Phase::Ended, |card, now, comm_id| {
                card.cm.agent.answer(now, comm_id, rep)
            })
        } else {
            let refuse = Refuse {
                reason,
                info: &[],
                private_data,
            };
            self.command_to(Phase::Ended, |card, now, comm_id| {
                card.cm.agent.reject(now, comm_id, &refuse)
            })
        }
    }

    fn expect_phase(&self, allowed: &[Phase], what: &str) -> Result<()> {
        if allowed.contains(&self.inner.lock().phase) {
            return Ok(());
        }
        Err(self.not_now(what))
    }

    fn not_now(&self, what: &str) -> Error {
        Error::invalid(format!(
            "an id that is {:?} cannot {what}",
            self.inner.lock().phase
        ))
    }

    /// A command about the connection, and what follows from it.
    fn command(&self, f: impl FnOnce(&mut Card, Time, u32) -> Result<()>) -> Result<()> {
        let device = self.inner.device()?;
        device.device.verb(|card, now| {
            let comm_id = self.inner.lock().comm_id;
            let comm_id = comm_id.ok_or_else(|| self.not_now("do this: it has no connection"))?;
            f(card, now, comm_id)?;
            card.manage(now);
            Ok(())
        })
    }

    /// The same for a command that leads to a phase, from which what follows may lead on.
    fn command_to(&self, phase: Phase, f: impl FnOnce(&mut Card, Time, u32) -> Result<()>) -> Result<()> {
        self.command(|card, now, comm_id| {
            f(card, now, comm_id)?;
            self.inner.lock().phase = phase;
            Ok(())
        })
    }
}

/// Private data in its field, behind `start` bytes. EINVAL when it does not fit.
fn field<const N: usize>(private_data: &[u8], start: usize) -> Result<[u8; N]> {
    let mut bytes = [0; N];
    let room = N - start;
    if private_data.len() > room {
        return Err(Error::invalid(format!(
            "{} bytes of private data do not fit; there is room for {room}",
            private_data.len()
        )));
    }
    bytes[start..start + private_data.len()].copy_from_slice(private_data);
    Ok(bytes)
}
