//! The verbs of an id.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::ptr::null;
use std::sync::Arc;
use std::time::Duration;

use verbs_api::{
    CmPortSpace, ConnectionParameters, Error, PeerParameters, QpAttr, QpState, QpType, QueuePair as _, Result,
};
use verbs_sys::cm_constants::{
    RDMA_OPTION_ID_ACK_TIMEOUT, RDMA_OPTION_ID_AFONLY, RDMA_OPTION_ID_REUSEADDR, RDMA_OPTION_ID_TOS,
};
use verbs_sys::convert::qp_attr_from_c;
use verbs_sys::rdma_conn_param;

use super::id::{Group, Membership, Part};
use super::manager::Turn;
use super::transition::{self, Depths};
use super::{Cm, CmId};
use crate::qp::Bound;
use crate::{Context, Qp, Transport};

/// The Q_Key of RDMA CM's datagrams, which librdmacm has no way to change.
const QKEY: u32 = 0x0123_4567;
/// Queue pair numbers and Q_Keys aside, retries are numbers of three bits.
const RETRIES_MAX: u8 = 7;
const QPN_MAX: u32 = 0xff_ffff;

/// Room for private data in the messages of connections, and in those of datagrams.
#[derive(Clone, Copy)]
struct Room {
    connection: usize,
    datagram: usize,
}

const IN_REQUEST: Room = Room {
    connection: 56,
    datagram: 180,
};
const IN_REPLY: Room = Room {
    connection: 196,
    datagram: 136,
};
const IN_REFUSAL: Room = Room {
    connection: 148,
    datagram: 136,
};

impl verbs_api::CmId for CmId {
    type M = Cm;

    fn set_cookie(&self, cookie: u64) {
        self.inner.manager.turn().set_cookie(self.inner.raw, cookie);
    }

    fn port_space(&self) -> CmPortSpace {
        self.inner.space
    }

    fn bind_addr(&self, local: SocketAddr) -> Result<()> {
        self.inner.manager.turn().bind_addr(self.inner.raw, &local)
    }

    fn listen(&self, backlog: u32) -> Result<()> {
        self.inner.manager.turn().listen(self.inner.raw, backlog)
    }

    fn resolve_addr(&self, local: Option<SocketAddr>, remote: SocketAddr, timeout: Duration) -> Result<()> {
        let turn = self.inner.manager.turn();
        turn.resolve_addr(self.inner.raw, local, &remote, timeout)
    }

    fn resolve_route(&self, timeout: Duration) -> Result<()> {
        self.inner.manager.turn().resolve_route(self.inner.raw, timeout)
    }

    /// A context of ours beside that which librdmacm has of the device, since it may close that when a card is pulled.
    fn context(&self) -> Option<Context> {
        let name = self.device_name()?;
        self.inner
            .provider
            .managers
            .shared_context(&self.inner.provider, &name)
            .ok()
    }

    fn device_name(&self) -> Option<String> {
        let turn = self.inner.manager.turn();
        let device = turn.device(self.inner.raw)?;
        Some(self.inner.provider.name_of(device.as_ptr()))
    }

    fn local_addr(&self) -> Option<SocketAddr> {
        self.inner.manager.turn().local_addr(self.inner.raw)
    }

    fn peer_addr(&self) -> Option<SocketAddr> {
        self.inner.manager.turn().peer_addr(self.inner.raw)
    }

    /// EINVAL: the queue pair is of another device or library, or there is one already, or its type is not the port space's.
    /// EOPNOTSUPP: it is one of XRC, or of iWARP.
    fn bind_qp(&self, qp: &Qp) -> Result<()> {
        transition::fits(qp.qp_type(), self.inner.space.is_datagram())?;
        if qp.context().transport == Transport::Iwarp {
            return Err(Error::unsupported("binding a queue pair of iWARP to an id"));
        }
        if qp.context().library.identity() != self.inner.provider.library.identity() {
            return Err(Error::invalid("the queue pair is of another library than the id"));
        }
        match self.device_name() {
            Some(name) if name == qp.context().name() => {}
            Some(name) => {
                return Err(Error::invalid(format!(
                    "the queue pair is of the device {}, and the id of {name}",
                    qp.context().name()
                )));
            }
            None => return Err(Error::invalid("the id is bound to no device yet")),
        }
        let turn = self.inner.manager.turn();
        let mut state = self.inner.lock();
        if state.qp.is_some() {
            return Err(Error::invalid("the id has a queue pair already"));
        }
        let bound = Bound::new(qp);
        transition::prepare(&turn, self.inner.raw, &bound)?;
        turn.set_qp_type(self.inner.raw, bound.qp_type);
        state.qp = Some(bound);
        Ok(())
    }

    fn unbind_qp(&self) {
        self.inner.lock().qp = None;
    }

    fn qp_attr(&self, state: QpState) -> Result<QpAttr> {
        let turn = self.inner.manager.turn();
        let qp_type = match (&self.inner.lock().qp, self.inner.space.is_datagram()) {
            (Some(bound), _) => bound.qp_type,
            (None, true) => QpType::Ud,
            (None, false) => QpType::Rc,
        };
        let (values, mask) = transition::told(&turn, self.inner.raw, qp_type, state)?;
        qp_attr_from_c(&values, mask)
    }

    /// EOPNOTSUPP: a Q_Key other than RDMA CM's own.
    fn connect(&self, parameters: &ConnectionParameters<'_>) -> Result<()> {
        let turn = self.inner.manager.turn();
        let mut c = self.parameters(&turn, parameters, IN_REQUEST)?;
        turn.connect(self.inner.raw, &mut c)
    }

    /// EOPNOTSUPP: a Q_Key other than RDMA CM's own; private data in the last message of the handshake.
    fn accept(&self, parameters: Option<&ConnectionParameters<'_>>) -> Result<()> {
        let turn = self.inner.manager.turn();
        let part = self.inner.lock().part;
        match part {
            Part::Requested(offer) => self.reply(&turn, &offer, parameters)?,
            Part::Replied => {
                if parameters.is_some_and(|said| !said.private_data.is_empty()) {
                    return Err(Error::unsupported(
                        "private data in the last message of the handshake",
                    ));
                }
                turn.establish(self.inner.raw)?;
            }
            Part::Other | Part::Ended => {
                return Err(Error::invalid(
                    "there is nothing to accept: the id came with no request, or was answered already",
                ));
            }
        }
        self.inner.lock().part = Part::Other;
        Ok(())
    }

    fn reject(&self, private_data: &[u8]) -> Result<()> {
        self.fits(private_data, IN_REFUSAL)?;
        let turn = self.inner.manager.turn();
        turn.reject(self.inner.raw, private_data)?;
        self.inner.lock().part = Part::Ended;
        Ok(())
    }

    fn established(&self) -> Result<()> {
        self.inner.manager.turn().notify_established(self.inner.raw)
    }

    /// The queue pair, if bound, goes to ERR. EINVAL: there never was a connection.
    fn disconnect(&self) -> Result<()> {
        let turn = self.inner.manager.turn();
        let mut state = self.inner.lock();
        if let Some(qp) = &state.qp {
            transition::fail(qp);
        }
        if state.part == Part::Ended {
            return Ok(());
        }
        turn.disconnect(self.inner.raw)?;
        state.part = Part::Ended;
        Ok(())
    }

    fn join_multicast(&self, group: SocketAddr, cookie: u64) -> Result<()> {
        let turn = self.inner.manager.turn();
        turn.join_multicast(self.inner.raw, &group, cookie)?;
        self.inner.lock().groups.push(Group {
            address: group,
            cookie,
            membership: Membership::Asked,
        });
        Ok(())
    }

    /// EADDRNOTAVAIL: not joined.
    fn leave_multicast(&self, group: SocketAddr) -> Result<()> {
        let turn = self.inner.manager.turn();
        let mut state = self.inner.lock();
        let position = state.groups.iter().position(|joined| joined.address == group);
        let joined = position.map(|position| state.groups.remove(position));
        if let (Some(Membership::Attached { group, lid }), Some(qp)) =
            (joined.map(|joined| joined.membership), &state.qp)
        {
            // It may be destroyed already.
            let _ = qp.detach(&group, lid);
        }
        turn.leave_multicast(self.inner.raw, &group)
    }

    /// Waits until events of the id that were taken are dropped. EINVAL: the other channel is one of another library.
    fn migrate(&self, to: &Cm) -> Result<()> {
        if !Arc::ptr_eq(&self.inner.manager, &to.channel.manager) {
            return Err(Error::invalid(
                "an id cannot move to a channel of another library or provider",
            ));
        }
        // Let go of at the end, outside the turn.
        let before;
        let turn = self.inner.turn_without_events();
        turn.migrate(self.inner.raw, to.channel.raw)?;
        before = std::mem::replace(&mut self.inner.lock().channel, to.channel.clone());
        drop(turn);
        drop(before);
        Ok(())
    }

    fn set_type_of_service(&self, type_of_service: u8) -> Result<()> {
        self.set(RDMA_OPTION_ID_TOS, [type_of_service])
    }

    fn set_ack_timeout(&self, code: u8) -> Result<()> {
        self.set(RDMA_OPTION_ID_ACK_TIMEOUT, [code])
    }

    fn set_reuse_address(&self, reuse: bool) -> Result<()> {
        self.set(RDMA_OPTION_ID_REUSEADDR, c_int::from(reuse).to_ne_bytes())
    }

    fn set_only_own_family(&self, only: bool) -> Result<()> {
        self.set(RDMA_OPTION_ID_AFONLY, c_int::from(only).to_ne_bytes())
    }
}

impl CmId {
    fn set<const N: usize>(&self, option: c_int, value: [u8; N]) -> Result<()> {
        self.inner
            .manager
            .turn()
            .set_option(self.inner.raw, option, value)
    }

    /// Whether private data has room in a message: what does not fit would be refused too late, after the queue pair has
    /// been made ready.
    fn fits(&self, private_data: &[u8], room: Room) -> Result<u8> {
        let room = match self.inner.space.is_datagram() {
            true => room.datagram,
            false => room.connection,
        };
        match u8::try_from(private_data.len()) {
            Ok(length) if usize::from(length) <= room => Ok(length),
            _ => Err(Error::invalid(format!(
                "{} bytes of private data do not fit; there is room for {room}",
                private_data.len()
            ))),
        }
    }

    /// What the program said, for C. The private data must outlive it.
    fn parameters(
        &self,
        turn: &Turn<'_>,
        said: &ConnectionParameters<'_>,
        room: Room,
    ) -> Result<rdma_conn_param> {
        let length = self.fits(said.private_data, room)?;
        if said.qkey.is_some_and(|qkey| qkey != QKEY) {
            return Err(Error::unsupported(
                "a Q_Key other than RDMA CM's own (0x01234567)",
            ));
        }
        let (qp_num, srq) = self.queue_pair(turn, said)?;
        let most = self.depths_max(turn)?;
        Ok(rdma_conn_param {
            private_data: match length {
                0 => null(),
                _ => said.private_data.as_ptr().cast(),
            },
            private_data_len: length,
            responder_resources: said.responder_resources.min(most.responder_resources),
            initiator_depth: said.initiator_depth.min(most.initiator_depth),
            flow_control: said.flow_control.into(),
            retry_count: said.retry_count.min(RETRIES_MAX),
            rnr_retry_count: said.rnr_retry_count.min(RETRIES_MAX),
            srq: srq.into(),
            qp_num,
        })
    }

    /// The queue pair to be connected: the bound one, or the one that the program names. Who looks for a service of datagrams
    /// needs none yet.
    fn queue_pair(&self, turn: &Turn<'_>, said: &ConnectionParameters<'_>) -> Result<(u32, bool)> {
        let is_datagram = self.inner.space.is_datagram();
        let state = self.inner.lock();
        match (&state.qp, said.qp) {
            (Some(qp), _) => Ok((qp.qpn, qp.has_srq)),
            (None, Some((number, _))) if number > QPN_MAX => Err(Error::invalid(format!(
                "{number:#x} is no queue pair number (24 bits)"
            ))),
            (None, Some((number, qp_type))) => {
                if !is_datagram {
                    turn.set_qp_type(self.inner.raw, qp_type);
                }
                Ok((number, said.srq))
            }
            (None, None) if is_datagram && state.part == Part::Other => Ok((0, false)),
            (None, None) => Err(Error::invalid(
                "there is no queue pair to connect: bind one, or name one in the parameters",
            )),
        }
    }

    /// What the device can; librdmacm refuses more.
    fn depths_max(&self, turn: &Turn<'_>) -> Result<Depths> {
        let attr = turn.device_attr(self.inner.raw, &self.inner.provider.library)?;
        let byte = |most: u32| u8::try_from(most).unwrap_or(u8::MAX);
        Ok(Depths {
            responder_resources: byte(attr.max_qp_rd_atom),
            initiator_depth: byte(attr.max_qp_init_rd_atom),
        })
    }

    /// Answer a request.
    fn reply(
        &self,
        turn: &Turn<'_>,
        offer: &PeerParameters,
        said: Option<&ConnectionParameters<'_>>,
    ) -> Result<()> {
        let as_offered = ConnectionParameters::as_offered(offer);
        let mut c = self.parameters(turn, said.unwrap_or(&as_offered), IN_REPLY)?;
        // The peer answers no more than it said.
        c.initiator_depth = c.initiator_depth.min(offer.initiator_depth);
        let depths = Depths {
            responder_resources: c.responder_resources,
            initiator_depth: c.initiator_depth,
        };
        let qp = match self.inner.space.is_datagram() {
            // Ready since it was bound.
            true => None,
            false => self.inner.lock().qp.clone(),
        };
        // Before the peer hears of it, and sends.
        if let Some(qp) = &qp {
            transition::bring_up(turn, self.inner.raw, qp, Some(depths))?;
        }
        turn.accept(self.inner.raw, &mut c).inspect_err(|_| {
            if let Some(qp) = &qp {
                transition::fail(qp);
            }
        })
    }
}
