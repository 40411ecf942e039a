//! Events: from those of C to values, and what they mean for the queue pair and the groups of an id.

use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::Arc;

use verbs_api::{Acknowledge, CmEvent, CmEventKind, DatagramPeer, Error, PeerParameters, Result};
use verbs_sys::convert::ah_attr_from_c;
use verbs_sys::{ibv_gid, rdma_cm_event, rdma_conn_param, rdma_ud_param};

use super::channel::Channel;
use super::id::{IdInner, IdState, Membership, Part};
use super::manager::{RawId, Turn};
use super::{Cm, CmId, transition};

/// Events of ids that are being destroyed, passed over in one go.
const PASSED_OVER_MAX: usize = 1024;

/// What C says about an event, copied.
struct Seen {
    id: Option<RawId>,
    /// Of requests.
    listener: Option<RawId>,
    code: c_int,
    status: c_int,
    said: Said,
}

/// What an event of a connection, or one of datagrams, says.
enum Said {
    Connection {
        peer: PeerParameters,
        private_data: Vec<u8>,
    },
    Datagram {
        peer: DatagramPeer,
        /// A group's address, as `ibv_attach_mcast` takes it.
        group: ibv_gid,
        lid: u16,
        private_data: Vec<u8>,
        /// What the library has in place of private data in events of groups.
        group_cookie: u64,
    },
}

/// What a turn has got hold of, and lets go of outside of it.
#[derive(Default)]
struct Holds {
    owner: Option<Arc<IdInner>>,
    request: Option<Arc<IdInner>>,
}

impl Cm {
    /// The next event, if one waits.
    pub(super) fn take(&self) -> Result<Option<CmEvent<Cm>>> {
        for _ in 0..PASSED_OVER_MAX {
            match self.take_one()? {
                Found::Event(event) => return Ok(Some(*event)),
                Found::Nothing => return Ok(None),
                Found::OfNobody => {}
            }
        }
        Ok(None)
    }

    fn take_one(&self) -> Result<Found> {
        // Before the turn, so that it ends after it.
        let mut holds = Holds::default();
        let mut turn = self.channel.manager.turn();
        let Some(event) = turn.next_event(self.channel.raw)? else {
            return Ok(Found::Nothing);
        };
        let seen = see(&turn, event);
        // All of it is copied. Destroying the id waits for the copy instead.
        turn.acknowledge(event)?;
        let Seen {
            id,
            listener,
            code,
            status,
            said,
        } = seen;
        let kind = u32::try_from(code).ok().and_then(CmEventKind::from_code);
        let kind = kind.ok_or_else(|| {
            Error::invalid(format!("librdmacm tells of an event of the unknown type {code}"))
        })?;
        let id = id.ok_or_else(|| Error::invalid(format!("librdmacm tells of {kind:?} without an id")))?;
        let raw_owner = match kind {
            CmEventKind::ConnectRequest => listener.ok_or_else(|| {
                Error::invalid("librdmacm tells of a connection request without its listener")
            })?,
            _ => id,
        };
        holds.owner = turn.find(raw_owner);
        if kind == CmEventKind::ConnectRequest {
            if turn.is_known(id) {
                return Err(Error::invalid(
                    "librdmacm tells of a connection request with an id that there is already",
                ));
            }
            match &holds.owner {
                Some(listener) => holds.request = Some(adopt(&mut turn, id, listener, &self.channel, &said)),
                None => turn.destroy_id(id)?,
            }
        }
        let Some(owner) = holds.owner.take() else {
            return Ok(Found::OfNobody);
        };
        let (kind, status) = follow(&turn, &owner, kind, status, &said);
        let cookie = turn.cookie(owner.raw);
        owner.taken.add();
        drop(turn);
        let request = holds.request.take().map(|inner| CmId { inner });
        Ok(Found::Event(Box::new(event_of(
            owner, kind, status, cookie, request, said,
        ))))
    }
}

/// What a look at the channel brings.
enum Found {
    Nothing,
    /// Its id is being destroyed.
    OfNobody,
    Event(Box<CmEvent<Cm>>),
}

/// Copy an event.
fn see(turn: &Turn<'_>, event: NonNull<rdma_cm_event>) -> Seen {
    // SAFETY: it came from the library and is not acknowledged.
    let c = unsafe { event.as_ref() };
    let (id, listener) = (RawId::new(c.id), RawId::new(c.listen_id));
    let is_request = c.event == CmEventKind::ConnectRequest as c_int;
    let owner = if is_request { listener } else { id };
    let is_datagram = owner.is_some_and(|owner| turn.is_about_datagrams(owner));
    let is_of_group = [CmEventKind::MulticastJoin, CmEventKind::MulticastError]
        .iter()
        .any(|kind| c.event == *kind as c_int);
    let said = match is_datagram || is_of_group {
        // SAFETY: the library fills this member in for ids of datagrams, and for groups. All of its values are numbers.
        true => said_of_datagram(unsafe { &c.param.ud }, is_of_group),
        // SAFETY: and this one for the others.
        false => said_of_connection(unsafe { &c.param.conn }),
    };
    Seen {
        id,
        listener,
        code: c.event,
        status: c.status,
        said,
    }
}

fn said_of_connection(c: &rdma_conn_param) -> Said {
    Said::Connection {
        peer: PeerParameters {
            responder_resources: c.responder_resources,
            initiator_depth: c.initiator_depth,
            flow_control: c.flow_control != 0,
            retry_count: c.retry_count,
            rnr_retry_count: c.rnr_retry_count,
            srq: c.srq != 0,
            qp_num: c.qp_num,
        },
        private_data: bytes(c.private_data, c.private_data_len),
    }
}

fn said_of_datagram(c: &rdma_ud_param, is_of_group: bool) -> Said {
    Said::Datagram {
        peer: DatagramPeer {
            av: ah_attr_from_c(&c.ah_attr),
            qp_num: c.qp_num,
            qkey: c.qkey,
        },
        group: c.ah_attr.grh.dgid,
        lid: c.ah_attr.dlid,
        private_data: match is_of_group {
            true => Vec::new(),
            false => bytes(c.private_data, c.private_data_len),
        },
        group_cookie: match is_of_group {
            true => c.private_data as u64,
            false => 0,
        },
    }
}

/// Private data of an event that is not acknowledged.
fn bytes(data: *const c_void, length: u8) -> Vec<u8> {
    match data.is_null() || length == 0 {
        true => Vec::new(),
        // SAFETY: the library says that so many bytes are there, as long as the event is not acknowledged.
        false => unsafe { std::slice::from_raw_parts(data.cast(), length.into()) }.to_vec(),
    }
}

/// The new id that a request brings.
fn adopt(
    turn: &mut Turn<'_>,
    id: RawId,
    listener: &IdInner,
    taken_from: &Arc<Channel>,
    said: &Said,
) -> Arc<IdInner> {
    turn.set_cookie(id, 0);
    let offer = match said {
        Said::Connection { peer, .. } => *peer,
        Said::Datagram { .. } => PeerParameters::default(),
    };
    // The listener may have moved since the request came.
    let channel = match turn.channel_of(id) {
        Some(raw) if raw == taken_from.raw => taken_from.clone(),
        _ => listener.lock().channel.clone(),
    };
    let part = Part::Requested(offer);
    IdInner::new(turn, id, &channel, &listener.provider, listener.space, part)
}

/// What has to be done about an event, and what it is then.
fn follow(
    turn: &Turn<'_>,
    id: &IdInner,
    kind: CmEventKind,
    status: c_int,
    said: &Said,
) -> (CmEventKind, c_int) {
    use CmEventKind::*;
    let state = &mut id.lock();
    match kind {
        ConnectResponse => return replied(turn, id.raw, state, status),
        MulticastJoin if status == 0 => return joined(state, said),
        Rejected => {
            if let Some(qp) = &state.qp {
                transition::fail(qp);
            }
            state.part = Part::Ended;
        }
        ConnectError | Unreachable | TimewaitExit => state.part = Part::Ended,
        AddrResolved | AddrError | RouteResolved | RouteError | ConnectRequest | Established
        | Disconnected | DeviceRemoval | MulticastJoin | MulticastError | AddrChange | AddrInfoResolved
        | AddrInfoError | User => {}
    }
    (kind, status)
}

/// The peer has replied to our request.
fn replied(turn: &Turn<'_>, id: RawId, state: &mut IdState, status: c_int) -> (CmEventKind, c_int) {
    let Some(qp) = &state.qp else {
        state.part = Part::Replied;
        return (CmEventKind::ConnectResponse, status);
    };
    match transition::bring_up(turn, id, qp, None).and_then(|()| turn.establish(id)) {
        Ok(()) => (CmEventKind::Established, status),
        Err(error) => {
            transition::fail(qp);
            // So that the peer does not wait for it.
            let _ = turn.reject(id, &[]);
            state.part = Part::Ended;
            (CmEventKind::ConnectError, -error.errno())
        }
    }
}

/// A group is there: the queue pair is let in.
fn joined(state: &mut IdState, said: &Said) -> (CmEventKind, c_int) {
    let Said::Datagram {
        group,
        lid,
        group_cookie,
        ..
    } = said
    else {
        return (CmEventKind::MulticastJoin, 0);
    };
    let attached = state.qp.as_ref().map(|qp| qp.attach(group, *lid));
    let mut groups = state.groups.iter_mut();
    let asked =
        groups.find(|asked| asked.cookie == *group_cookie && matches!(asked.membership, Membership::Asked));
    if let Some(asked) = asked {
        asked.membership = match attached {
            Some(Ok(())) => Membership::Attached {
                group: *group,
                lid: *lid,
            },
            Some(Err(_)) | None => Membership::Without,
        };
    }
    match attached {
        Some(Err(error)) => (CmEventKind::MulticastError, -error.errno()),
        Some(Ok(())) | None => (CmEventKind::MulticastJoin, 0),
    }
}

fn event_of(
    owner: Arc<IdInner>,
    kind: CmEventKind,
    status: c_int,
    cookie: u64,
    request: Option<CmId>,
    said: Said,
) -> CmEvent<Cm> {
    let (peer, private_data, datagram_peer, group_cookie) = match said {
        Said::Connection { peer, private_data } => (peer, private_data, None, 0),
        Said::Datagram {
            peer,
            private_data,
            group_cookie,
            ..
        } => {
            let leads_somewhere = matches!(kind, CmEventKind::Established | CmEventKind::MulticastJoin);
            let peer = (leads_somewhere && status == 0).then_some(peer);
            (PeerParameters::default(), private_data, peer, group_cookie)
        }
    };
    let tells_of_peer = matches!(
        kind,
        CmEventKind::ConnectRequest | CmEventKind::ConnectResponse | CmEventKind::Established
    );
    CmEvent {
        kind,
        cookie,
        request,
        status,
        private_data,
        peer: if tells_of_peer {
            peer
        } else {
            PeerParameters::default()
        },
        datagram_peer,
        group_cookie,
        acknowledge: Acknowledge::new(move || owner.taken.acknowledge()),
    }
}
