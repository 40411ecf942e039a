//! A stream whose connection is there, or was. Nothing here waits, except for [`Connected::abort`]'s verbs.

use std::time::{Duration, Instant};

use verbs_api::{CmEventKind, CmId, ConnectionManager, Provider, Result};

use crate::errors::{Errno, error};
use crate::link::{Fate, Link};
use crate::mappings::Mappings;

/// What a socket is ready for, as `poll` has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Reading, or accepting, would not wait.
    pub input: bool,
    /// Writing would not wait.
    pub output: bool,
    /// Both ways are closed.
    pub hang_up: bool,
    /// An error waits.
    pub error: bool,
}

/// Which ways to close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shutdown {
    /// `SHUT_RD`.
    Read,
    /// `SHUT_WR`.
    Write,
    /// `SHUT_RDWR`.
    Both,
}

/// How far the way out is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WayOut {
    Open,
    /// The end of data is to be sent as soon as it can be.
    Ending,
    Ended,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Connected<M: ConnectionManager> {
    pub(crate) id: M::Id,
    pub(crate) link: Link<M::P>,
    pub(crate) mappings: Mappings<M::P>,
    way_out: WayOut,
    reading_is_shut: bool,
    /// Either side has said that it is over.
    is_disconnected: bool,
    /// Somebody was told that the connection has failed: `poll` and `SO_ERROR` say it no more. Reading goes on to say it,
    /// so that nobody takes it for the end of data.
    is_failure_told: bool,
    heard: Instant,
}

impl<M: ConnectionManager> Connected<M> {
    pub(crate) fn new(id: M::Id, link: Link<M::P>) -> Self {
        Connected {
            id,
            link,
            mappings: Mappings::default(),
            way_out: WayOut::Open,
            reading_is_shut: false,
            is_disconnected: false,
            is_failure_told: false,
            heard: Instant::now(),
        }
    }

    /// Take in what has happened. True when there was something.
    pub(crate) fn pump(&mut self, cm: &M) -> Result<bool> {
        let mut found = self.link.poll()?;
        while let Some(event) = cm.wait(Some(Duration::ZERO))? {
            found = true;
            let is_over = matches!(
                event.kind,
                CmEventKind::Disconnected
                    | CmEventKind::ConnectError
                    | CmEventKind::Unreachable
                    | CmEventKind::Rejected
                    | CmEventKind::DeviceRemoval
            );
            drop(event);
            if is_over {
                // What came before is in the queue by now.
                self.link.poll()?;
                self.disconnect();
            }
        }
        if matches!(self.link.fate(), Fate::Broken(_)) {
            self.disconnect();
        }
        if self.way_out == WayOut::Ending && self.link.end()? {
            self.way_out = WayOut::Ended;
        }
        self.mappings.tell(&mut self.link)?;
        if found {
            self.heard = Instant::now();
        }
        Ok(found)
    }

    /// Prepare to sleep: take in what has happened until there is nothing, and the next thing will show.
    pub(crate) fn arm(&mut self, cm: &M) -> Result<bool> {
        let mut found = false;
        loop {
            self.link.arm()?;
            match self.pump(cm)? {
                true => found = true,
                false => return Ok(found),
            }
        }
    }

    /// A peer of which nothing was heard for a while is made to answer.
    pub(crate) fn look_at_peer(&mut self, now: Instant) -> Result<()> {
        if now.saturating_duration_since(self.heard) < crate::wait::LOOK_UP {
            return Ok(());
        }
        self.heard = now;
        self.link.probe()
    }

    fn disconnect(&mut self) {
        if !self.is_disconnected {
            self.is_disconnected = true;
            // It is over in any case.
            let _ = self.id.disconnect();
        }
    }

    /// Why nothing goes any more.
    fn over(&self) -> Option<Errno> {
        match self.link.fate() {
            Fate::Broken(errno) => Some(errno),
            Fate::Flushed => Some(Errno::ECONNRESET),
            Fate::Alive => self.is_disconnected.then_some(Errno::ECONNRESET),
        }
    }

    /// Read what there is; 0 at the end of data, `None` when that would wait.
    pub(crate) fn receive(&mut self, out: &mut [u8]) -> Result<Option<usize>> {
        let count = self.link.peek(0, out);
        if count > 0 {
            self.link.consume(count);
        }
        match count {
            0 if !out.is_empty() => self.without_data(),
            count => Ok(Some(count)),
        }
    }

    /// The same, but it stays. From `skip` on, if so much is there.
    pub(crate) fn peek(&mut self, skip: usize, out: &mut [u8]) -> Result<Option<usize>> {
        match self.link.peek(skip, out) {
            0 if !out.is_empty() => self.without_data(),
            count => Ok(Some(count)),
        }
    }

    /// What reading gives when there is nothing to read.
    fn without_data(&mut self) -> Result<Option<usize>> {
        if self.no_more_input() {
            return Ok(Some(0));
        }
        match self.over() {
            Some(errno) => {
                self.is_failure_told = true;
                Err(error(errno, "the connection has ended without the end of data"))
            }
            None => Ok(None),
        }
    }

    /// EPIPE, or why the connection is over: nothing can be sent.
    fn check_way_out(&mut self) -> Result<()> {
        if self.way_out != WayOut::Open {
            return Err(error(Errno::EPIPE, "the socket is shut down for writing"));
        }
        match self.over() {
            Some(_) if self.link.peer_has_ended() => {
                Err(error(Errno::EPIPE, "the peer has closed the connection"))
            }
            Some(errno) => {
                self.is_failure_told = true;
                Err(error(errno, "the connection is over"))
            }
            None => Ok(()),
        }
    }

    /// Send what there is room for; `None` when there is none.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<Option<usize>> {
        self.check_way_out()?;
        self.mappings.tell(&mut self.link)?;
        if !self.mappings.are_told() {
            return Ok(None);
        }
        match self.link.send(bytes)? {
            0 if !bytes.is_empty() => Ok(None),
            count => Ok(Some(count)),
        }
    }

    /// Write to what the peer has mapped at `offset`; `None` when there is no room.
    pub(crate) fn write_direct(&mut self, bytes: &[u8], offset: u64) -> Result<Option<usize>> {
        self.check_way_out()?;
        match self.link.write_direct(bytes, offset)? {
            0 if !bytes.is_empty() => Ok(None),
            count => Ok(Some(count)),
        }
    }

    pub(crate) fn shut_down(&mut self, how: Shutdown) -> Result<()> {
        if how != Shutdown::Write {
            self.reading_is_shut = true;
        }
        if how != Shutdown::Read && self.way_out == WayOut::Open {
            self.way_out = match self.link.end()? {
                true => WayOut::Ended,
                false => WayOut::Ending,
            };
        }
        Ok(())
    }

    /// Whether closing need not wait: all has arrived, the end included, or nothing will any more.
    pub(crate) fn has_arrived(&self) -> bool {
        self.over().is_some() || self.way_out == WayOut::Ended && self.link.has_sent_all()
    }

    /// The connection ends, here and now.
    pub(crate) fn abort(&mut self) {
        self.disconnect();
    }

    fn no_more_input(&self) -> bool {
        self.reading_is_shut || self.link.peer_has_ended()
    }

    /// Why the connection has failed. It shows once all that came before it is read.
    fn failure(&self) -> Option<Errno> {
        let is_read = self.link.readable() == 0 && !self.no_more_input();
        self.over().filter(|_| is_read)
    }

    /// The same, told once (`SO_ERROR`).
    pub(crate) fn take_failure(&mut self) -> Option<Errno> {
        let failure = self.failure().filter(|_| !self.is_failure_told);
        self.is_failure_told |= failure.is_some();
        failure
    }

    /// As TCP has it: a peer that has closed in order is the end of input, and no more than that while our way out is open.
    /// An error shows once all that came before it is read, and until somebody is told.
    pub(crate) fn ready(&self) -> Ready {
        let is_over = self.over().is_some();
        let no_more_input = self.no_more_input();
        let has_failed = self.failure().is_some();
        Ready {
            input: self.link.readable() > 0 || no_more_input || is_over,
            output: self.link.is_writable() || self.way_out != WayOut::Open || is_over,
            hang_up: has_failed || no_more_input && self.way_out != WayOut::Open,
            error: has_failed && !self.is_failure_told,
        }
    }

    /// The channel to sleep on.
    pub(crate) fn channel(&self) -> <M::P as Provider>::Channel {
        self.link.channel().clone()
    }
}
