//! The verbs of an id, as the library has them.

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::ptr::{null, null_mut};
use std::time::Duration;

use verbs_api::{Error, EventKind, QpAttr, QpState, Result};
use verbs_sys::cm_constants::RDMA_OPTION_ID;
use verbs_sys::convert::{qp_attr_to_c, sockaddr_to_c};
use verbs_sys::{ibv_qp_attr, rdma_conn_param};

use super::{RawId, Turn, done};

/// A time as C takes it: whole milliseconds, one at least.
fn milliseconds(time: Duration) -> c_int {
    c_int::try_from(time.as_micros().div_ceil(1000))
        .unwrap_or(c_int::MAX)
        .max(1)
}

impl Turn<'_> {
    pub(in crate::cm) fn bind_addr(&self, id: RawId, local: &SocketAddr) -> Result<()> {
        let bind = self.library.rdma_bind_addr()?;
        let mut address = sockaddr_to_c(local);
        // SAFETY: the id is alive, the address during the call.
        done(&format!("binding an id to {local}"), unsafe {
            bind(id.as_ptr(), (&raw mut address).cast())
        })
    }

    pub(in crate::cm) fn listen(&self, id: RawId, backlog: u32) -> Result<()> {
        let listen = self.library.rdma_listen()?;
        let backlog = c_int::try_from(backlog).unwrap_or(c_int::MAX);
        // SAFETY: the id is alive.
        done("listening for connection requests", unsafe {
            listen(id.as_ptr(), backlog)
        })
    }

    pub(in crate::cm) fn resolve_addr(
        &self,
        id: RawId,
        local: Option<SocketAddr>,
        remote: &SocketAddr,
        timeout: Duration,
    ) -> Result<()> {
        let resolve = self.library.rdma_resolve_addr()?;
        let mut local = local.as_ref().map(sockaddr_to_c);
        let local = local
            .as_mut()
            .map_or(null_mut(), |address| (&raw mut *address).cast());
        let mut address = sockaddr_to_c(remote);
        // SAFETY: the id is alive, the addresses during the call.
        done(&format!("resolving {remote}"), unsafe {
            resolve(
                id.as_ptr(),
                local,
                (&raw mut address).cast(),
                milliseconds(timeout),
            )
        })
    }

    pub(in crate::cm) fn resolve_route(&self, id: RawId, timeout: Duration) -> Result<()> {
        let resolve = self.library.rdma_resolve_route()?;
        // SAFETY: the id is alive.
        done("resolving a route", unsafe {
            resolve(id.as_ptr(), milliseconds(timeout))
        })
    }

    /// The attributes of a transition, as the library knows them, and their mask.
    pub(in crate::cm) fn qp_attr(&self, id: RawId, state: QpState) -> Result<(ibv_qp_attr, c_int)> {
        let init = self.library.rdma_init_qp_attr()?;
        let asked = QpAttr {
            state: Some(state),
            ..QpAttr::default()
        };
        let (mut values, mut mask) = qp_attr_to_c(&asked);
        // SAFETY: the id is alive, the places valid.
        done("asking for the attributes of a queue pair", unsafe {
            init(id.as_ptr(), &mut values, &mut mask)
        })?;
        Ok((values, mask))
    }

    pub(in crate::cm) fn connect(&self, id: RawId, parameters: &mut rdma_conn_param) -> Result<()> {
        let connect = self.library.rdma_connect()?;
        // SAFETY: the id is alive, the parameters with their private data during the call.
        done("asking for a connection", unsafe {
            connect(id.as_ptr(), parameters)
        })
    }

    pub(in crate::cm) fn accept(&self, id: RawId, parameters: &mut rdma_conn_param) -> Result<()> {
        let accept = self.library.rdma_accept()?;
        // SAFETY: as above.
        done("accepting a connection", unsafe {
            accept(id.as_ptr(), parameters)
        })
    }

    /// Tell the peer, which has replied, that the queue pair is ready.
    pub(in crate::cm) fn establish(&self, id: RawId) -> Result<()> {
        let establish = self.library.rdma_establish()?;
        // SAFETY: the id is alive.
        done("completing a connection", unsafe { establish(id.as_ptr()) })
    }

    /// At most 255 bytes.
    pub(in crate::cm) fn reject(&self, id: RawId, private_data: &[u8]) -> Result<()> {
        let reject = self.library.rdma_reject()?;
        let length = u8::try_from(private_data.len())
            .map_err(|_| Error::invalid(format!("{} bytes of private data", private_data.len())))?;
        let data = match length {
            0 => null(),
            _ => private_data.as_ptr().cast(),
        };
        // SAFETY: the id is alive, the data during the call.
        done("refusing a connection", unsafe {
            reject(id.as_ptr(), data, length)
        })
    }

    /// Data has come before the last message of the handshake. That it has come meanwhile is no error.
    pub(in crate::cm) fn notify_established(&self, id: RawId) -> Result<()> {
        let notify = self.library.rdma_notify()?;
        // SAFETY: the id is alive.
        let result = unsafe { notify(id.as_ptr(), EventKind::CommEst as c_int) };
        match done("completing a connection", result) {
            Err(error) if error.errno() == libc::EISCONN => Ok(()),
            result => result,
        }
    }

    pub(in crate::cm) fn disconnect(&self, id: RawId) -> Result<()> {
        let disconnect = self.library.rdma_disconnect()?;
        // SAFETY: the id is alive.
        done("disconnecting", unsafe { disconnect(id.as_ptr()) })
    }

    pub(in crate::cm) fn join_multicast(&self, id: RawId, group: &SocketAddr, cookie: u64) -> Result<()> {
        let join = self.library.rdma_join_multicast()?;
        let mut address = sockaddr_to_c(group);
        // SAFETY: the id is alive, the address during the call; the context is a number to the library.
        done(&format!("joining the group {group}"), unsafe {
            join(
                id.as_ptr(),
                (&raw mut address).cast(),
                cookie as usize as *mut c_void,
            )
        })
    }

    pub(in crate::cm) fn leave_multicast(&self, id: RawId, group: &SocketAddr) -> Result<()> {
        let leave = self.library.rdma_leave_multicast()?;
        let mut address = sockaddr_to_c(group);
        // SAFETY: the id is alive, the address during the call.
        done(&format!("leaving the group {group}"), unsafe {
            leave(id.as_ptr(), (&raw mut address).cast())
        })
    }

    /// An option of the level `RDMA_OPTION_ID`.
    pub(in crate::cm) fn set_option<const N: usize>(
        &self,
        id: RawId,
        name: c_int,
        mut value: [u8; N],
    ) -> Result<()> {
        let set = self.library.rdma_set_option()?;
        // SAFETY: the id is alive, the value of the length that is told, during the call.
        done("setting an option of an id", unsafe {
            set(id.as_ptr(), RDMA_OPTION_ID, name, value.as_mut_ptr().cast(), N)
        })
    }
}
