//! What a case function holds: the bed, and the waiting on it.

use std::time::Duration;

use verbs_api::{AsyncEvent, CompletionQueue, Context, EventKind, EventSource, Provider, Wc, WcStatus};

use crate::outcome::{CaseResult, Failure};
use crate::testbed::{Activity, Network, Side, Testbed};

/// Completions that are kept for a report.
const COMPLETIONS_MAX: usize = 200;

/// A completion, for a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    /// When it was taken, on the bed's clock.
    pub at: Duration,
    /// The request's number.
    pub wr_id: u64,
    /// Its status.
    pub status: WcStatus,
    /// What it was, where that is known.
    pub what: Option<String>,
    /// Bytes that were received.
    pub byte_len: u32,
    /// The queue pair.
    pub qpn: u32,
}

/// A bed with one case on it.
pub struct Scene<B: Testbed> {
    /// The bed.
    pub bed: B,
    id: &'static str,
    deviations: Vec<String>,
    events: [Vec<AsyncEvent>; 2],
    completions: Vec<Completed>,
}

impl<B: Testbed> Scene<B> {
    /// `bed` with the case `id` on it.
    pub fn new(bed: B, id: &'static str) -> Self {
        Scene {
            bed,
            id,
            deviations: Vec::new(),
            events: [Vec::new(), Vec::new()],
            completions: Vec::new(),
        }
    }

    /// What was accepted as a documented deviation so far.
    pub fn deviations(&self) -> &[String] {
        &self.deviations
    }

    /// The device of one end.
    pub fn context(&self, side: Side) -> &<B::P as Provider>::Context {
        self.bed.context(side)
    }

    /// The network. Only for cases that need one.
    pub fn network(&mut self) -> &mut dyn Network {
        self.bed
            .network()
            .expect("the case names Need::Network, so it only runs where there is one")
    }

    /// Accept what is not as required, when that is documented for this provider; fail otherwise.
    pub fn deviation(&mut self, what: String) -> CaseResult {
        match self.bed.tolerance(self.id, &what) {
            Some(reason) => {
                self.deviations.push(format!("{what} (documented: {reason})"));
                Ok(())
            }
            None => Err(Failure::new(what)),
        }
    }

    /// Let time pass until `look` finds something. Fails when that takes longer than the bed's patience, or when
    /// nothing can happen any more.
    pub fn until<T>(
        &mut self,
        what: &str,
        look: impl FnMut(&mut Self) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        self.until_within(self.bed.patience(), what, look)
    }

    /// The same, for something that may take so long.
    pub fn until_within<T>(
        &mut self,
        patience: Duration,
        what: &str,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, Failure>,
    ) -> Result<T, Failure> {
        let deadline = self.bed.now() + patience;
        loop {
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            if self.bed.now() >= deadline {
                return Err(Failure::new(format!("waited {patience:?} for {what}, in vain")));
            }
            if self.bed.advance(deadline) == Activity::Dead {
                if let Some(found) = look(self)? {
                    return Ok(found);
                }
                return Err(Failure::new(format!(
                    "dead lock: waiting for {what}, but no packet is in flight and no timer runs"
                )));
            }
        }
    }

    /// Whether time passes by itself, on a machine that has other things to do as well.
    pub fn is_real_time(&self) -> bool {
        !self.bed.slack().is_zero()
    }

    /// This in virtual time, that in real time.
    pub fn virtually<T>(&self, in_virtual_time: T, in_real_time: T) -> T {
        if self.is_real_time() {
            in_real_time
        } else {
            in_virtual_time
        }
    }

    /// An ACK timeout code, where an answer must come in time: this one, or the least that the bed can keep to.
    pub fn timeout(&self, code: u8) -> u8 {
        code.max(self.bed.least_timeout())
    }

    /// How long to look whether something happens that must not: in real time half a second at most.
    pub fn patient_for(&self, time: Duration) -> Duration {
        self.virtually(time, time.min(Duration::from_millis(500)))
    }

    /// Let `time` pass, and at least so much that what was on its way has arrived.
    pub fn rest(&mut self, time: Duration) {
        let until = self.bed.now() + time.max(self.bed.settling());
        while self.bed.now() < until {
            self.bed.advance(until);
        }
    }

    /// The next completion, whatever its status.
    pub fn completion(&mut self, cq: &<B::P as Provider>::Cq) -> Result<Wc, Failure> {
        self.until("a completion", |scene| scene.poll_one(cq))
    }

    /// The next completion, which must be a success.
    pub fn success(&mut self, cq: &<B::P as Provider>::Cq) -> Result<Wc, Failure> {
        let wc = self.completion(cq)?;
        if wc.status != WcStatus::Success {
            return Err(Failure::new(format!(
                "request {} must succeed but ended with {:?}",
                wc.wr_id, wc.status
            )));
        }
        Ok(wc)
    }

    /// The next completion, which must be that of request `wr_id`, with `status`.
    pub fn ends_with(
        &mut self,
        cq: &<B::P as Provider>::Cq,
        wr_id: u64,
        status: WcStatus,
    ) -> Result<Wc, Failure> {
        let wc = self.completion(cq)?;
        crate::same!(
            (wc.wr_id, wc.status),
            (wr_id, status),
            "completion (request, status)"
        );
        crate::check!(
            wc.qp_num != 0,
            "the completion of request {wr_id} names no queue pair"
        );
        Ok(wc)
    }

    /// The next completion, of request `wr_id`, with `status`; one of `also` is a deviation.
    pub fn ends_with_or(
        &mut self,
        cq: &<B::P as Provider>::Cq,
        wr_id: u64,
        status: WcStatus,
        also: &[WcStatus],
    ) -> CaseResult {
        let wc = self.completion(cq)?;
        crate::same!(wc.wr_id, wr_id, "request of the completion ({:?})", wc.status);
        if wc.status == status {
            Ok(())
        } else if also.contains(&wc.status) {
            self.deviation(format!(
                "request {wr_id}: expected {status:?}, seen {:?}",
                wc.status
            ))
        } else {
            Err(Failure::new(format!(
                "request {wr_id}: expected {status:?}, seen {:?}",
                wc.status
            )))
        }
    }

    /// `count` completions.
    pub fn completions(&mut self, cq: &<B::P as Provider>::Cq, count: usize) -> Result<Vec<Wc>, Failure> {
        let mut all = Vec::with_capacity(count);
        while all.len() < count {
            let wc = self
                .completion(cq)
                .map_err(|e| e.during(format!("after {} of {count}", all.len())))?;
            all.push(wc);
        }
        Ok(all)
    }

    /// The completions that are there now.
    pub fn completions_now(&mut self, cq: &<B::P as Provider>::Cq) -> Result<Vec<Wc>, Failure> {
        let mut all = Vec::new();
        while let Some(wc) = self.poll_one(cq)? {
            all.push(wc);
        }
        Ok(all)
    }

    /// The requests of `wr_ids` all end with a flush, in this order.
    pub fn flushed(
        &mut self,
        cq: &<B::P as Provider>::Cq,
        wr_ids: impl IntoIterator<Item = u64>,
    ) -> CaseResult {
        for wr_id in wr_ids {
            self.ends_with(cq, wr_id, WcStatus::WrFlushErr)?;
        }
        Ok(())
    }

    /// No completion while `time` passes.
    pub fn quiet(&mut self, cqs: &[&<B::P as Provider>::Cq], time: Duration) -> CaseResult {
        let until = self.bed.now() + time.max(self.bed.settling());
        loop {
            for cq in cqs {
                if let Some(wc) = self.poll_one(cq)? {
                    return Err(Failure::new(format!(
                        "a completion that must not be: request {}, {:?}, {:?}",
                        wc.wr_id, wc.status, wc.opcode
                    )));
                }
            }
            if self.bed.now() >= until {
                return Ok(());
            }
            self.bed.advance(until);
        }
    }

    fn collect_events(&mut self, side: Side) -> CaseResult {
        while let Some(guard) = self.bed.context(side).async_event()? {
            self.events[side.index()].push(guard.event());
        }
        Ok(())
    }

    /// Wait for an asynchronous event of the queue pair `qpn`. Other events are kept.
    pub fn qp_event(&mut self, side: Side, qpn: u32, kind: EventKind) -> CaseResult {
        self.event(
            side,
            AsyncEvent {
                kind,
                source: EventSource::Qp(qpn),
            },
        )
    }

    /// Wait for an asynchronous event. Other events are kept.
    pub fn event(&mut self, side: Side, wanted: AsyncEvent) -> CaseResult {
        self.until(&format!("the event {wanted:?} at the {side:?} end"), |scene| {
            scene.collect_events(side)?;
            let list = &mut scene.events[side.index()];
            Ok(list.iter().position(|e| *e == wanted).map(|at| {
                list.remove(at);
            }))
        })
    }

    /// The asynchronous events that have come and were not waited for.
    pub fn other_events(&mut self, side: Side) -> Result<Vec<AsyncEvent>, Failure> {
        self.collect_events(side)?;
        Ok(std::mem::take(&mut self.events[side.index()]))
    }

    fn poll_one(&mut self, cq: &<B::P as Provider>::Cq) -> Result<Option<Wc>, Failure> {
        let mut out = [Wc::default()];
        if cq.poll(&mut out)? != 1 {
            return Ok(None);
        }
        let [wc] = out;
        if self.completions.len() < COMPLETIONS_MAX {
            self.completions.push(Completed {
                at: self.bed.now(),
                wr_id: wc.wr_id,
                status: wc.status,
                what: (wc.status == WcStatus::Success).then(|| format!("{:?}", wc.opcode)),
                byte_len: wc.byte_len,
                qpn: wc.qp_num,
            });
        }
        Ok(Some(wc))
    }

    /// The completions that the case has seen through this scene, up to a number.
    pub fn take_completions(&mut self) -> Vec<Completed> {
        std::mem::take(&mut self.completions)
    }
}
