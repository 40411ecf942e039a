//! Two connected queue pairs: one makes requests of all kinds, and every outcome is checked.

use std::collections::VecDeque;

use softroce::Softroce;
use verbs_api::{
    Buffer, CompletionQueue, MemoryRegion, Provider, QpState, QueuePair, RecvWr, RemoteAddr, SendFlags,
    SendOp, SendWr, Wc, WcStatus,
};

mod end;

use self::end::End;
use super::plan::{Kind, Message, Setup};
use crate::Random;

/// Bytes between slots, which nobody may touch.
pub(super) const GUARD: usize = 16;
pub(super) const GUARD_BYTE: u8 = 0xC5;

impl Message {
    fn takes_receive(&self) -> bool {
        matches!(self.kind, Kind::Send | Kind::WriteWithImmediate)
    }
}

/// Two connected queue pairs and what they still have to do.
#[derive(Debug)]
pub struct Conversation {
    left: End,
    right: End,
    messages: Vec<Message>,
    slot: usize,
    depth: usize,
    late_receives: u32,
    posted: usize,
    /// Requests before this one have completed, visibly or not.
    done: usize,
    /// The first request that failed.
    failed: Option<usize>,
    /// Requests that take a receive, in order, whose receive has not been posted.
    receives_due: VecDeque<usize>,
    /// And those whose receive has been posted but not completed.
    receives_out: VecDeque<usize>,
    received: usize,
    added: u64,
    news: bool,
}

impl Conversation {
    /// Opens and connects both ends on devices of these names.
    ///
    /// # Panics
    /// When a verb refuses what must work.
    pub fn open(provider: &Softroce, names: &[String], setup: &Setup) -> Conversation {
        let slot = setup.longest.next_multiple_of(8) + GUARD;
        let length = slot * setup.messages.len() + 8;
        let left = End::open(provider, &names[setup.ends[0]], length, setup.depth);
        let right = End::open(provider, &names[setup.ends[1]], length, setup.depth);
        left.connect(&right, setup, setup.psn);
        right.connect(&left, setup, [setup.psn[1], setup.psn[0]]);
        let messages = setup.messages.clone();
        right.buffer.store_u64(slot * messages.len(), 0);
        for (n, message) in messages.iter().enumerate() {
            match message.kind {
                Kind::Read => right.buffer.write(slot * n, &pattern(n, 1, message.size)),
                Kind::FetchAdd => {}
                Kind::Send | Kind::Write | Kind::WriteWithImmediate => {
                    left.buffer.write(slot * n, &pattern(n, 0, message.size));
                }
            }
        }
        let receives_due = (0..messages.len())
            .filter(|n| messages[*n].takes_receive())
            .collect();
        Conversation {
            left,
            right,
            messages,
            slot,
            depth: setup.depth,
            late_receives: setup.late_receives,
            posted: 0,
            done: 0,
            failed: None,
            receives_due,
            receives_out: VecDeque::new(),
            received: 0,
            added: 0,
            news: false,
        }
    }

    /// Whether everything has completed or been flushed.
    pub fn is_over(&self) -> bool {
        match self.failed {
            Some(_) => self.done == self.posted,
            None => {
                self.done == self.messages.len()
                    && self.receives_due.is_empty()
                    && self.receives_out.is_empty()
            }
        }
    }

    /// How many messages succeeded, and their bytes.
    pub fn success(&self) -> (usize, u64) {
        let done = self.failed.unwrap_or(self.done);
        let bytes = self.messages[..done].iter().map(|message| match message.kind {
            Kind::FetchAdd => 8,
            Kind::Send | Kind::Write | Kind::WriteWithImmediate | Kind::Read => message.size as u64,
        });
        (done, bytes.sum())
    }

    /// Whether something happened since the last question.
    pub fn has_news(&mut self) -> bool {
        std::mem::take(&mut self.news)
    }

    /// Whether there is something that it has not posted yet.
    pub fn can_act(&self) -> bool {
        self.failed.is_none() && (!self.receives_due.is_empty() || self.posted < self.messages.len())
    }

    /// Look at completions and post what there is to post.
    ///
    /// # Errors
    /// What is not as it must be.
    pub fn work(&mut self, random: &mut Random) -> Result<(), String> {
        self.collect_sends()?;
        self.collect_receives()?;
        while !self.receives_due.is_empty()
            && self.receives_out.len() < 64
            && !random.chance(self.late_receives)
        {
            self.post_receive()?;
        }
        while self.failed.is_none()
            && self.posted < self.messages.len()
            && self.posted - self.done < self.depth
        {
            if !self.post_send()? {
                break;
            }
        }
        Ok(())
    }

    fn post_receive(&mut self) -> Result<(), String> {
        let Some(n) = self.receives_due.pop_front() else {
            return Ok(());
        };
        let end = &self.right;
        let sges = match self.messages[n].kind {
            Kind::Send => vec![end.sge(self.slot * n, self.messages[n].size)],
            _ => Vec::new(),
        };
        end.qp
            .post_recv(&[RecvWr {
                wr_id: n as u64,
                sges: &sges,
            }])
            .map_err(|e| format!("receive {n}: {e}"))?;
        self.receives_out.push_back(n);
        self.news = true;
        Ok(())
    }

    /// Post the next request; false when the queue is full.
    fn post_send(&mut self) -> Result<bool, String> {
        let n = self.posted;
        let message = self.messages[n];
        let at = self.slot * n;
        let remote = RemoteAddr {
            addr: self.right.mr.addr() + at as u64,
            rkey: self.right.mr.rkey(),
        };
        let counter = RemoteAddr {
            addr: self.right.mr.addr() + (self.slot * self.messages.len()) as u64,
            ..remote
        };
        let imm = Some(n as u32);
        let (op, size) = match message.kind {
            Kind::Send => (SendOp::Send { imm }, message.size),
            Kind::Write => (SendOp::Write { remote, imm: None }, message.size),
            Kind::WriteWithImmediate => (SendOp::Write { remote, imm }, message.size),
            Kind::Read => (SendOp::Read { remote }, message.size),
            Kind::FetchAdd => (
                SendOp::FetchAdd {
                    remote: counter,
                    add: n as u64 + 1,
                },
                8,
            ),
        };
        // Cut in two where there is room for it.
        let cut = size / 3;
        let sges = [self.left.sge(at, cut), self.left.sge(at + cut, size - cut)];
        let sges = if message.kind == Kind::FetchAdd {
            &[self.left.sge(at, 8)][..]
        } else {
            &sges[..]
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, message.is_signaled);
        flags.set(SendFlags::FENCE, message.is_fenced);
        match self
            .left
            .qp
            .post_send(&[SendWr::new(n as u64, op, sges).with_flags(flags)])
        {
            Ok(()) => {
                self.posted += 1;
                self.news = true;
                Ok(true)
            }
            Err(refused) if refused.error.kind() == verbs_api::ErrorKind::NoMemory => Ok(false),
            Err(refused) => Err(format!("request {n}: {refused}")),
        }
    }

    fn collect_sends(&mut self) -> Result<(), String> {
        while let Some(wc) = poll(&self.left.cq)? {
            self.news = true;
            let n = wc.wr_id as usize;
            if n < self.done || n >= self.posted {
                return Err(format!(
                    "completion of request {n}, but {}..{} are outstanding",
                    self.done, self.posted
                ));
            }
            match (self.failed, wc.status) {
                (None, WcStatus::Success) => {
                    for silent in self.done..n {
                        if self.messages[silent].is_signaled {
                            return Err(format!("request {n} completed, but {silent} before it did not"));
                        }
                        self.check_done(silent)?;
                    }
                    if !self.messages[n].is_signaled {
                        return Err(format!("request {n} is unsignalled, but its success was told"));
                    }
                    self.check_done(n)?;
                }
                (None, WcStatus::RetryExcErr | WcStatus::RnrRetryExcErr) => {
                    for silent in self.done..n {
                        if self.messages[silent].is_signaled {
                            return Err(format!(
                                "request {n} failed, but {silent} before it did not complete"
                            ));
                        }
                        self.check_done(silent)?;
                    }
                    self.failed = Some(n);
                }
                (Some(_), WcStatus::WrFlushErr) if n == self.done => {}
                (failed, status) => {
                    return Err(format!(
                        "request {n} ended with {status:?}, expected {} next, failed: {failed:?}",
                        self.done
                    ));
                }
            }
            self.done = n + 1;
        }
        Ok(())
    }

    /// Request `n` has succeeded: its bytes are where they belong.
    fn check_done(&mut self, n: usize) -> Result<(), String> {
        let message = self.messages[n];
        let at = self.slot * n;
        match message.kind {
            Kind::Send | Kind::Write | Kind::WriteWithImmediate => {
                same(&self.right.buffer, at, &pattern(n, 0, message.size), n)
            }
            Kind::Read => same(&self.left.buffer, at, &pattern(n, 1, message.size), n),
            Kind::FetchAdd => {
                let old = self.left.buffer.load_u64(at);
                let expected = self.added;
                self.added += n as u64 + 1;
                if old == expected {
                    Ok(())
                } else {
                    Err(format!("atomic {n} returned {old}, expected {expected}"))
                }
            }
        }
    }

    fn collect_receives(&mut self) -> Result<(), String> {
        while let Some(wc) = poll(&self.right.cq)? {
            self.news = true;
            let Some(n) = self.receives_out.pop_front() else {
                return Err(format!("a receive completed ({wc:?}), but none is posted"));
            };
            if wc.wr_id != n as u64 || wc.status != WcStatus::Success {
                return Err(format!("expected receive {n}, got {wc:?}"));
            }
            if wc.immediate() != Some(n as u32) || wc.byte_len as usize != self.messages[n].size {
                return Err(format!("receive {n} of {} bytes: {wc:?}", self.messages[n].size));
            }
            if n >= self.posted {
                return Err(format!("receive {n} completed before its message was sent"));
            }
            self.received += 1;
        }
        Ok(())
    }

    /// At the end: nothing else has changed, and both queue pairs are in the state that fits.
    ///
    /// # Errors
    /// What is not as it must be.
    pub fn check_end(&self) -> Result<(), String> {
        let state = self.left.qp.state().map_err(|e| e.to_string())?;
        let expected = if self.failed.is_some() {
            QpState::Err
        } else {
            QpState::Rts
        };
        if state != expected {
            return Err(format!("the requester ends in {state:?}, expected {expected:?}"));
        }
        let total = self.right.buffer.load_u64(self.slot * self.messages.len());
        if self.failed.is_none() && total != self.added {
            return Err(format!("the counter is {total}, expected {}", self.added));
        }
        for (n, message) in self.messages.iter().enumerate() {
            let (left, right) = match message.kind {
                Kind::Read => (message.size, message.size),
                Kind::FetchAdd => (8, 0),
                Kind::Send | Kind::Write | Kind::WriteWithImmediate => (message.size, message.size),
            };
            for (buffer, used, end) in [
                (&self.left.buffer, left, "left"),
                (&self.right.buffer, right, "right"),
            ] {
                let (start, stop) = (self.slot * n + used, self.slot * (n + 1));
                if buffer.to_vec(start..stop).iter().any(|byte| *byte != GUARD_BYTE) {
                    return Err(format!(
                        "bytes behind message {n} ({message:?}) at the {end} end were touched"
                    ));
                }
            }
        }
        Ok(())
    }
}

pub(super) fn pattern(n: usize, side: u8, length: usize) -> Vec<u8> {
    let mut random = Random::new((n as u64) << 8 | u64::from(side));
    (0..length).map(|_| random.next_u64() as u8).collect()
}

fn same(buffer: &Buffer, at: usize, expected: &[u8], n: usize) -> Result<(), String> {
    let seen = buffer.to_vec(at..at + expected.len());
    match seen.iter().zip(expected).position(|(a, b)| a != b) {
        None => Ok(()),
        Some(wrong) => Err(format!(
            "message {n} is done, but byte {wrong} of {} is wrong",
            expected.len()
        )),
    }
}

pub(super) fn poll(cq: &<Softroce as Provider>::Cq) -> Result<Option<Wc>, String> {
    let mut wc = [Wc::default()];
    let count = cq.poll(&mut wc).map_err(|e| e.to_string())?;
    Ok((count == 1).then_some(wc[0]))
}
