//! Completions that are made to fail, for tests of programs.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::fmt;

use verbs_api::WcStatus;

/// Asked before a work request of this queue pair completes with success, and told whether it is a receive: what it
/// completes with instead, if it is to fail.
pub type CompletionJudge = Box<dyn FnMut(u32, bool) -> Option<WcStatus> + Send>;

/// The judge, if there is one, and those who fail by its judgement.
#[derive(Default)]
pub(crate) struct Judge {
    judge: Option<CompletionJudge>,
    /// Queue pairs of which a send request has failed; they follow when the call ends.
    doomed: VecDeque<u32>,
}

impl Judge {
    pub(crate) fn set(&mut self, judge: Option<CompletionJudge>) {
        self.judge = judge;
    }

    /// Whether completions are judged at all.
    #[inline]
    pub(crate) fn sits(&self) -> bool {
        self.judge.is_some()
    }

    /// A send request is about to complete. What comes behind one that failed is flushed.
    #[cold]
    pub(crate) fn send(&mut self, qpn: u32) -> WcStatus {
        if self.doomed.contains(&qpn) {
            return WcStatus::WrFlushErr;
        }
        let Some(status) = self.judge.as_mut().and_then(|judge| judge(qpn, false)) else {
            return WcStatus::Success;
        };
        self.doomed.push_back(qpn);
        status
    }

    /// A receive request is about to complete: what it completes with if it fails.
    #[cold]
    pub(crate) fn receive(&mut self, qpn: u32) -> Option<WcStatus> {
        self.judge.as_mut().and_then(|judge| judge(qpn, true))
    }

    /// A queue pair that has to fail now.
    pub(crate) fn pop_doomed(&mut self) -> Option<u32> {
        self.doomed.pop_front()
    }

    /// Whether there is one.
    pub(crate) fn has_doomed(&self) -> bool {
        !self.doomed.is_empty()
    }
}

impl fmt::Debug for Judge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Judge")
            .field("sits", &self.sits())
            .finish_non_exhaustive()
    }
}
