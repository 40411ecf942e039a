//! Bytes in and out, and waiting for that.

use std::time::Instant;

use verbs_api::{ConnectionManager, Result};

use super::{Inner, LOOKS, Patience, Role, StreamSocket};
use crate::errors::would_block;
use crate::wait::LOOK_UP;

/// How much a read is to bring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// What there is.
    Some,
    /// All of the buffer, unless the data ends (`MSG_WAITALL`).
    All,
    /// What there is, which stays (`MSG_PEEK`).
    Peek,
}

impl<M: ConnectionManager> StreamSocket<M> {
    /// Read into `out`; 0 at the end of data. Data that was read before an error is not lost: the error comes next time.
    pub fn receive(&self, out: &mut [u8], amount: Amount, patience: Patience) -> Result<usize> {
        if amount == Amount::Peek {
            return self.until(patience, |inner| inner.connected_or_wait(|c| c.peek(0, out)));
        }
        let mut done = 0;
        loop {
            let rest = &mut out[done..];
            let read = self.until(patience, |inner| inner.connected_or_wait(|c| c.receive(rest)));
            match read {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            if amount != Amount::All || done == out.len() || matches!(read, Ok(0)) {
                return Ok(done);
            }
        }
    }

    /// Send all of `bytes`; what there is room for, when the call may not wait. A number less than all says that something
    /// has gone wrong since, which the next call tells.
    pub fn send(&self, bytes: &[u8], patience: Patience) -> Result<usize> {
        let mut done = 0;
        loop {
            let rest = &bytes[done..];
            match self.until(patience, |inner| inner.connected_or_wait(|c| c.send(rest))) {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            if done == bytes.len() {
                return Ok(done);
            }
        }
    }

    /// Take in what has happened, and wake the others when that was something.
    pub(super) fn pump(&self, inner: &mut Inner<M>) -> Result<()> {
        if inner.pump()? {
            self.wake.all();
        }
        Ok(())
    }

    /// Try until it works, or fails. EAGAIN: it would wait and may not; EINTR: a signal came.
    pub(super) fn until<R>(
        &self,
        patience: Patience,
        mut attempt: impl FnMut(&mut Inner<M>) -> Result<Option<R>>,
    ) -> Result<R> {
        let may_wait = patience == Patience::OfSocket && !self.is_nonblocking();
        if let Some(done) = attempt(&mut self.lock())? {
            return Ok(done);
        }
        loop {
            let began = Instant::now();
            loop {
                let mut inner = self.lock();
                self.pump(&mut inner)?;
                if let Some(done) = attempt(&mut inner)? {
                    return Ok(done);
                }
                drop(inner);
                if !may_wait {
                    return Err(would_block());
                }
                if began.elapsed() > LOOKS {
                    break;
                }
                std::thread::yield_now();
            }
            let watch = {
                let mut inner = self.lock();
                if inner.arm()? {
                    self.wake.all();
                }
                if let Some(done) = attempt(&mut inner)? {
                    return Ok(done);
                }
                self.wake.watch(&inner.cm, inner.channels())
            };
            watch.sleep(LOOK_UP)?;
            drop(watch);
            self.look_at_peer()?;
        }
    }
}

impl<M: ConnectionManager> Inner<M> {
    /// Something to do with a connection, if need be after waiting for it to come about.
    pub(super) fn connected_or_wait<R>(
        &mut self,
        act: impl FnOnce(&mut crate::connected::Connected<M>) -> Result<Option<R>>,
    ) -> Result<Option<R>> {
        match &self.role {
            Role::Connecting(_) => Ok(None),
            _ => act(self.connected()?),
        }
    }
}
