//! Requests that stay here: binds of memory windows, and invalidations.
//!
//! They are carried out in their turn, so that what follows in the queue finds them done, and complete in their turn,
//! after everything before them. They have no PSN of their own: `first` is the next request's, `last` the one before.
#![forbid(unsafe_code)]

use verbs_api::WcStatus;

use crate::memory::WindowFault;
use crate::qp::Qp;
use crate::qp::operation::Operation;
use crate::shared::Shared;

impl Qp {
    /// Carry out the current request, a local one, unless that was done before a retry began. When it cannot be done it
    /// fails, as any request does whose turn to complete has come.
    pub(super) fn carry_out_local(&mut self, shared: &mut Shared) {
        let number = self.requester.current;
        if number >= self.requester.begun_end {
            if self.carry_out(shared, number).is_err() {
                self.note_fault(shared, WcStatus::MwBindErr);
                return;
            }
            let next = self.requester.next;
            let wqe = self.send_queue.get_mut(&mut shared.sends, number);
            (wqe.first, wqe.last) = (next, next.before());
            self.requester.begun_end = number + 1;
            self.requester.local_end = number + 1;
        }
        self.requester.current = number + 1;
        self.complete_local(shared);
    }

    /// Carry out request `number`, a local one.
    pub(in crate::qp) fn carry_out(&self, shared: &mut Shared, number: u64) -> Result<(), WindowFault> {
        let who = self.accessor();
        match self.send_queue.get(&shared.sends, number).op {
            Operation::Bind(bind) => shared.memory.bind(who, &bind),
            Operation::LocalInvalidate { rkey } => shared.memory.invalidate(who, rkey),
            Operation::Send { .. }
            | Operation::Write { .. }
            | Operation::Read { .. }
            | Operation::CompareSwap { .. }
            | Operation::FetchAdd { .. }
            | Operation::AtomicWrite { .. }
            | Operation::Flush { .. } => Ok(()),
        }
    }

    /// Local requests that are the oldest, and carried out, are complete.
    pub(in crate::qp) fn complete_local(&mut self, shared: &mut Shared) {
        while self.send_queue.head() < self.requester.local_end
            && self
                .send_queue
                .get(&shared.sends, self.send_queue.head())
                .op
                .is_local()
        {
            self.complete_send(shared, WcStatus::Success);
        }
    }
}
