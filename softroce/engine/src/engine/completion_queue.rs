//! Verbs on completion queues.
#![forbid(unsafe_code)]

use std::sync::Arc;

use verbs_api::{Notify, Result};

use super::Engine;
use crate::{CompletionRing, CqId};

impl Engine {
    /// A completion queue for `cqe` completions, and the ring to poll them from.
    pub fn create_cq(&mut self, cqe: u32) -> Result<(CqId, Arc<CompletionRing>)> {
        let created = self.shared.cqs.create(cqe)?;
        self.shared.reserve_events(self.qps.slot_count());
        Ok(created)
    }

    /// Destroy a completion queue. EBUSY while a queue pair uses it.
    pub fn destroy_cq(&mut self, cq: CqId) -> Result<()> {
        self.shared.cqs.destroy(cq)
    }

    /// Ask for one event at the next completion; see `ibv_req_notify_cq(3)`.
    pub fn req_notify_cq(&mut self, cq: CqId, notify: Notify) -> Result<()> {
        self.shared.cqs.req_notify(cq, notify)
    }

    /// Let a completion queue hold `cqe` completions; those that wait are kept, in order, and its ring stays the same.
    /// Polling goes on meanwhile.
    ///
    /// # Errors
    /// EINVAL: 0, above the device's limit, or below what is waiting.
    pub fn resize_cq(&mut self, cq: CqId, cqe: u32) -> Result<()> {
        self.shared.cqs.resize(cq, cqe)
    }

    /// Hold the event of an armed queue back until `count` completions have come for it, or `period_us` microseconds
    /// have passed since the first of them. Unsuccessful ones are never held back. A 0 of either turns that off (as in
    /// hardware: an event that only more completions can cause might never come).
    ///
    /// # Errors
    /// EINVAL: no such queue.
    pub fn moderate_cq(&mut self, cq: CqId, count: u16, period_us: u16) -> Result<()> {
        self.shared.cqs.moderate(cq, count, period_us)
    }

    /// Have completions of this queue say when they happened: [`verbs_api::Wc::timestamp_ns`] is the engine's time, and
    /// never runs backwards. Without this it is 0.
    ///
    /// # Errors
    /// EINVAL: no such queue.
    pub fn stamp_cq(&mut self, cq: CqId) -> Result<()> {
        self.shared.cqs.stamp(cq)
    }
}
