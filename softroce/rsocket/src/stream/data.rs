//! Bytes in and out, and waiting for that.

use verbs_api::{ConnectionManager, Result};

use super::StreamSocket;
use crate::front::Patience;

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
            return self
                .front
                .until(patience, |inner| inner.connected_or_wait(|c| c.peek(0, out)));
        }
        let mut done = 0;
        loop {
            let rest = &mut out[done..];
            let read = self
                .front
                .until(patience, |inner| inner.connected_or_wait(|c| c.receive(rest)));
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
            match self
                .front
                .until(patience, |inner| inner.connected_or_wait(|c| c.send(rest)))
            {
                Ok(count) => done += count,
                Err(error) if done == 0 => return Err(error),
                Err(_) => return Ok(done),
            }
            if done == bytes.len() {
                return Ok(done);
            }
        }
    }
}
