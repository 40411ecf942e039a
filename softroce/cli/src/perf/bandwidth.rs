//! Bandwidth and message rate: many messages in flight.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use verbs_api::{CompletionQueue, Provider, QueuePair, SendOp, SendWr, Wc, WcOpcode};

use super::latency::finish;
use super::{Operation, Report, Settings};
use crate::control::Control;
use crate::endpoint::{Endpoint, Sizes, Waiting};

/// Requests outstanding a queue pair.
const DEPTH: u32 = 256;
/// Receives outstanding where nobody is asked to wait.
const UNRELIABLE_DEPTH: u32 = 8192;
/// Receives outstanding of all queue pairs, where there are many.
const RECEIVES_MAX: u32 = 1 << 15;
/// Requests posted with one call, the last of which completes visibly.
const LIST: u32 = 32;
/// Bytes of the buffer that messages cycle through, or of one longer message: as many as the raw stream is copied out to,
/// and no more than the tools of perftest use. With 16 MiB at each end the figures tell as much of the cache.
const BUFFER_BYTES_MAX: usize = 1 << 20;

/// Receives outstanding a queue pair. What finds none over an unreliable service is lost, and a receiver that must be
/// woken first is away for many small messages.
fn recv_depth(settings: &Settings) -> u32 {
    if settings.service.is_reliable() {
        DEPTH
    } else {
        (RECEIVES_MAX / settings.qps).clamp(DEPTH, UNRELIABLE_DEPTH)
    }
}

/// Only the client reports.
pub fn measure<P: Provider>(
    provider: &P,
    control: &mut Control,
    settings: &Settings,
    client: bool,
) -> Result<Option<Report>> {
    let slot = (settings.size as usize).next_multiple_of(64);
    let slots = (BUFFER_BYTES_MAX / slot).clamp(1, DEPTH as usize);
    let waiting = if settings.events {
        Waiting::Events
    } else {
        Waiting::Polling
    };
    let sizes = Sizes {
        qps: settings.qps as usize,
        buffer_bytes: slot * slots,
        message_bytes: settings.size as usize,
        depth: DEPTH,
        recv_depth: recv_depth(settings),
    };
    let mut end = Endpoint::open(provider, settings.service, sizes, settings.mtu, waiting)?;
    let stream = Stream {
        slot,
        slots,
        settings: *settings,
    };
    let receiver = !client && settings.operation == Operation::Send;
    let mut receives = Receives::new(settings);
    if receiver {
        receives.fill(&end)?;
    }
    end.connect(control)?;
    let start = Instant::now();
    if client {
        stream.run(&mut end, control)?;
    } else if receiver && settings.service.is_reliable() {
        receives.run(&mut end, control)?;
    }
    let seconds = start.elapsed().as_secs_f64();
    let counts_arrivals = settings.operation == Operation::Send && !settings.service.is_reliable();
    let arrived = match (counts_arrivals, client) {
        (false, _) => {
            finish(control, client, settings)?;
            None
        }
        (true, true) => {
            control.send(&"sent")?;
            Some(control.receive::<u64>()?)
        }
        (true, false) => {
            receives.run_until_told(&mut end, control)?;
            let _: String = control.receive()?;
            control.send(&receives.arrived)?;
            None
        }
    };
    let sent = u64::from(settings.iters) * u64::from(settings.qps);
    let messages = arrived.unwrap_or(sent) as f64;
    Ok(client.then(|| Report {
        gbit_per_s: Some(messages * f64::from(settings.size) * 8.0 / seconds / 1e9),
        messages_per_s: Some(messages / seconds),
        lost: arrived.map(|arrived| sent.saturating_sub(arrived)),
        ..Report::new(settings)
    }))
}

struct Stream {
    slot: usize,
    slots: usize,
    settings: Settings,
}

impl Stream {
    fn offset(&self, message: u32) -> usize {
        message as usize % self.slots * self.slot
    }

    /// Keep every queue pair full until `iters` messages have completed on each.
    fn run<P: Provider>(&self, end: &mut Endpoint<P>, control: &mut Control) -> Result<()> {
        let qps = end.qps.len();
        let mut posted = vec![0u32; qps];
        let mut completed = vec![0u32; qps];
        let index_of: std::collections::HashMap<u32, usize> = end
            .qps
            .iter()
            .enumerate()
            .map(|(index, qp)| (qp.qpn(), index))
            .collect();
        let mut completions = [Wc::default(); 64];
        let mut finished = 0;
        for qp in 0..qps {
            self.top_up(end, qp, &mut posted[qp], completed[qp])?;
        }
        while finished < qps {
            let count = end.wait(control, &mut completions)?;
            for wc in &completions[..count] {
                let qp = index_of[&wc.qp_num];
                // Completions are in order, and tell how many messages of the queue pair are done.
                completed[qp] = wc.wr_id as u32;
                if completed[qp] == self.settings.iters {
                    finished += 1;
                }
                self.top_up(end, qp, &mut posted[qp], completed[qp])?;
            }
        }
        Ok(())
    }

    fn top_up<P: Provider>(
        &self,
        end: &Endpoint<P>,
        qp: usize,
        posted: &mut u32,
        completed: u32,
    ) -> Result<()> {
        // READs and atomics are asked for in smaller lists, since fewer may be outstanding.
        while *posted < self.settings.iters {
            let list = LIST.min(self.settings.iters - *posted);
            if *posted - completed + list > DEPTH {
                return Ok(());
            }
            self.post_list(end, qp, *posted, list)?;
            *posted += list;
        }
        Ok(())
    }

    fn post_list<P: Provider>(&self, end: &Endpoint<P>, qp: usize, first: u32, list: u32) -> Result<()> {
        let size = self.settings.size as usize;
        let sges: [_; LIST as usize] =
            std::array::from_fn(|i| [end.sge(self.offset(first + i as u32), size)]);
        let requests: [SendWr<'_, P>; LIST as usize] = std::array::from_fn(|i| {
            let message = first + i as u32;
            let remote = end.remote(self.offset(message));
            let op = match self.settings.operation {
                Operation::Send => end.send_op(qp, None),
                Operation::Write => SendOp::Write { remote, imm: None },
                Operation::Read => SendOp::Read { remote },
                Operation::Atomic => SendOp::FetchAdd { remote, add: 1 },
            };
            let last = i as u32 + 1 == list;
            end.request(u64::from(message) + 1, op, &sges[i], last)
        });
        Ok(end.qps[qp].post_send(&requests[..list as usize])?)
    }
}

/// The receiving end of SENDs.
struct Receives {
    settings: Settings,
    arrived: u64,
    /// Receive requests used up, by queue pair, and not posted again yet.
    used: HashMap<u32, u32>,
}

/// Silence after which nothing more of an unreliable service is on its way.
const SILENCE: Duration = Duration::from_millis(100);

impl Receives {
    fn new(settings: &Settings) -> Self {
        Receives {
            settings: *settings,
            arrived: 0,
            used: HashMap::new(),
        }
    }

    /// What arrives is not looked at: all messages may land in the same place.
    fn post<P: Provider>(&self, end: &Endpoint<P>, qp: usize, count: u32) -> Result<()> {
        end.post_recvs(qp, 0, end.sge(0, self.settings.size as usize), count as usize)
    }

    fn fill<P: Provider>(&mut self, end: &Endpoint<P>) -> Result<()> {
        (0..end.qps.len()).try_for_each(|qp| self.post(end, qp, recv_depth(&self.settings)))
    }

    fn note<P: Provider>(&mut self, end: &Endpoint<P>, completions: &[Wc]) -> Result<()> {
        for wc in completions {
            debug_assert_eq!(wc.opcode, WcOpcode::Recv);
            self.arrived += 1;
            let used = self.used.entry(wc.qp_num).or_default();
            *used += 1;
            if *used == LIST {
                *used = 0;
                let qp = end.qps.iter().position(|qp| qp.qpn() == wc.qp_num).unwrap_or(0);
                self.post(end, qp, LIST)?;
            }
        }
        Ok(())
    }

    fn run<P: Provider>(&mut self, end: &mut Endpoint<P>, control: &mut Control) -> Result<()> {
        let all = u64::from(self.settings.iters) * u64::from(self.settings.qps);
        let mut completions = [Wc::default(); 64];
        while self.arrived < all {
            let count = end.wait(control, &mut completions)?;
            self.note(end, &completions[..count])?;
        }
        // Acknowledgements of the last messages may still be on their way.
        end.cq.poll(&mut completions)?;
        Ok(())
    }

    /// Until the sender says that it has sent everything, and nothing more arrives.
    fn run_until_told<P: Provider>(&mut self, end: &mut Endpoint<P>, control: &mut Control) -> Result<()> {
        let mut completions = [Wc::default(); 64];
        loop {
            let deadline = Some(Instant::now() + SILENCE);
            let count = end.wait_until(control, &mut completions, deadline)?;
            self.note(end, &completions[..count])?;
            if count == 0 && control.has_word()? {
                return Ok(());
            }
        }
    }
}
