//! A connection manager that a provider does not have.

use std::convert::Infallible;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::{CmEvent, CmId, CmPortSpace, ConnectionManager, ConnectionParameters};
use crate::{Object, Provider, QpAttr, QpState, Refused, Result};

/// Stands for the connection manager of a provider without one, where a type is called for. There is no value of it.
pub struct NoConnectionManager<P> {
    never: Infallible,
    provider: PhantomData<fn() -> P>,
}

/// Its ids.
pub struct NoCmId<P> {
    never: Infallible,
    provider: PhantomData<fn() -> P>,
}

impl<P> fmt::Debug for NoConnectionManager<P> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

impl<P> fmt::Debug for NoCmId<P> {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.never {}
    }
}

impl<P: Provider> ConnectionManager for NoConnectionManager<P> {
    type P = P;
    type Id = NoCmId<P>;

    fn create_id(&self, _: CmPortSpace, _: u64) -> Result<NoCmId<P>> {
        match self.never {}
    }
    fn fd(&self) -> BorrowedFd<'_> {
        match self.never {}
    }
    fn wait(&self, _: Option<Duration>) -> Result<Option<CmEvent<Self>>> {
        match self.never {}
    }
}

impl<P: Provider> Object for NoCmId<P> {
    fn destroy(self) -> Result<(), Refused<Self>> {
        match self.never {}
    }
}

impl<P: Provider> CmId for NoCmId<P> {
    type M = NoConnectionManager<P>;

    fn set_cookie(&self, _: u64) {
        match self.never {}
    }
    fn port_space(&self) -> CmPortSpace {
        match self.never {}
    }
    fn bind_addr(&self, _: SocketAddr) -> Result<()> {
        match self.never {}
    }
    fn listen(&self, _: u32) -> Result<()> {
        match self.never {}
    }
    fn resolve_addr(&self, _: Option<SocketAddr>, _: SocketAddr, _: Duration) -> Result<()> {
        match self.never {}
    }
    fn resolve_route(&self, _: Duration) -> Result<()> {
        match self.never {}
    }
    fn context(&self) -> Option<P::Context> {
        match self.never {}
    }
    fn device_name(&self) -> Option<String> {
        match self.never {}
    }
    fn local_addr(&self) -> Option<SocketAddr> {
        match self.never {}
    }
    fn peer_addr(&self) -> Option<SocketAddr> {
        match self.never {}
    }
    fn bind_qp(&self, _: &P::Qp) -> Result<()> {
        match self.never {}
    }
    fn unbind_qp(&self) {
        match self.never {}
    }
    fn qp_attr(&self, _: QpState) -> Result<QpAttr> {
        match self.never {}
    }
    fn connect(&self, _: &ConnectionParameters<'_>) -> Result<()> {
        match self.never {}
    }
    fn accept(&self, _: Option<&ConnectionParameters<'_>>) -> Result<()> {
        match self.never {}
    }
    fn reject(&self, _: &[u8]) -> Result<()> {
        match self.never {}
    }
    fn established(&self) -> Result<()> {
        match self.never {}
    }
    fn disconnect(&self) -> Result<()> {
        match self.never {}
    }
}
