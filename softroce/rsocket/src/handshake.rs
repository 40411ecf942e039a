//! How a connection comes about, from either side.

use std::net::SocketAddr;
use std::time::Duration;

use verbs_api::{CmEvent, CmEventKind, CmId, ConnectionManager, ConnectionParameters, Error, Result};

use crate::connected::Connected;
use crate::errors::{Errno, error};
use crate::link::Link;
use crate::message::Hello;
use crate::options::Options;

/// For each step of the resolution.
const RESOLUTION: Duration = Duration::from_secs(2);
/// Retransmissions, and the same of receivers that are not ready: for ever, since they are alive.
const RETRIES: u8 = 7;
/// Reason of a rejection: nobody listens.
const REJECTED_NOBODY_LISTENS: i32 = 8;
/// Reason of a rejection: the program's.
const REJECTED_BY_PROGRAM: i32 = 28;

/// An id on its way to a listener.
#[derive(Debug)]
pub(crate) struct Connecting<M: ConnectionManager> {
    id: M::Id,
    options: Options,
    /// From the moment when the device is known.
    link: Option<Link<M::P>>,
}

/// How an attempt stands.
pub(crate) enum Attempt<M: ConnectionManager> {
    GoesOn(Box<Connecting<M>>),
    Done(Box<Connected<M>>),
    Failed(Error),
}

fn parameters(private_data: &[u8]) -> ConnectionParameters<'_> {
    ConnectionParameters {
        private_data,
        retry_count: RETRIES,
        rnr_retry_count: RETRIES,
        ..ConnectionParameters::default()
    }
}

impl<M: ConnectionManager> Connecting<M> {
    /// Ask for a connection to `to`.
    pub(crate) fn start(id: M::Id, to: SocketAddr, options: Options) -> Result<Box<Self>> {
        id.resolve_addr(None, to, RESOLUTION)?;
        Ok(Box::new(Connecting {
            id,
            options,
            link: None,
        }))
    }

    pub(crate) fn id(&self) -> &M::Id {
        &self.id
    }

    /// Go on after an event.
    pub(crate) fn handle(mut self: Box<Self>, event: CmEvent<M>) -> Attempt<M> {
        let done = match event.kind {
            CmEventKind::AddrResolved => self.id.resolve_route(RESOLUTION),
            CmEventKind::RouteResolved => self.ask(),
            CmEventKind::Established => {
                let hello = Hello::parse(&event.private_data);
                drop(event);
                return self.established(hello.ok());
            }
            // What the connection goes by is known already.
            CmEventKind::AddrChange => Ok(()),
            kind => Err(failure(kind, event.status)),
        };
        drop(event);
        match done {
            Ok(()) => Attempt::GoesOn(self),
            Err(error) => Attempt::Failed(error),
        }
    }

    fn ask(&mut self) -> Result<()> {
        let context = self
            .id
            .context()
            .ok_or_else(|| Error::invalid("a resolved address has no device"))?;
        let link = Link::new(&context, &self.options)?;
        self.id.bind_qp(link.qp())?;
        link.post_receives()?;
        let hello = link.hello().to_bytes();
        self.link = Some(link);
        self.id.connect(&parameters(&hello))
    }

    fn established(self, hello: Option<Hello>) -> Attempt<M> {
        let Connecting { id, link, .. } = self;
        match (link, hello) {
            (Some(mut link), Some(hello)) => {
                link.meet(&hello);
                Attempt::Done(Box::new(Connected::new(id, link)))
            }
            _ => {
                let _ = id.disconnect();
                Attempt::Failed(error(
                    Errno::EPROTO,
                    "the listener does not speak our protocol of streams",
                ))
            }
        }
    }
}

/// Why there is no connection.
fn failure(kind: CmEventKind, status: i32) -> Error {
    let errno = match (kind, status) {
        (CmEventKind::Rejected, REJECTED_NOBODY_LISTENS | REJECTED_BY_PROGRAM) => Errno::ECONNREFUSED,
        (CmEventKind::Rejected, _) => Errno::ECONNREFUSED,
        (CmEventKind::DeviceRemoval, _) => Errno::ENETDOWN,
        (_, status) if status < 0 => Errno::from_raw(-status),
        _ => Errno::ETIMEDOUT,
    };
    error(errno, format!("no connection: {kind:?}, status {status}"))
}

/// A request that waits on a listener.
#[derive(Debug)]
pub(crate) struct Request<M: ConnectionManager> {
    id: M::Id,
    hello: Hello,
}

impl<M: ConnectionManager> Request<M> {
    /// What an event of a listener brings, if that is a request that we understand; others are refused.
    pub(crate) fn from_event(mut event: CmEvent<M>) -> Option<Self> {
        let id = event.request.take()?;
        match Hello::parse(&event.private_data) {
            Ok(hello) => Some(Request { id, hello }),
            Err(_) => {
                tracing::info!("a request for a connection that is not of our protocol is refused");
                drop(event);
                let _ = id.reject(&[]);
                None
            }
        }
    }

    /// Take it: the rest of its events go to `cm`.
    pub(crate) fn accept(self, cm: &M, options: &Options) -> Result<Connected<M>> {
        let Request { id, hello } = self;
        id.migrate(cm)?;
        let context = id
            .context()
            .ok_or_else(|| Error::invalid("a request has no device"))?;
        let mut link = Link::new(&context, options)?;
        id.bind_qp(link.qp())?;
        link.post_receives()?;
        link.meet(&hello);
        id.accept(Some(&parameters(&link.hello().to_bytes())))?;
        Ok(Connected::new(id, link))
    }
}
