//! Bandwidth and message rate: many messages in flight.

use std::time::Instant;

use anyhow::Result;
use verbs_api::{
    CompletionQueue, Payload, Provider, QueuePair, RecvWr, SendFlags, SendOp, SendWr, Wc, WcOpcode,
};

use super::latency::finish;
use super::{Operation, Report, Settings};
use crate::control::Control;
use crate::endpoint::{Endpoint, Sizes, Waiting};

/// Requests outstanding a queue pair.
const DEPTH: u32 = 256;
/// Requests posted with one call, the last of which completes visibly.
const LIST: u32 = 32;
/// Bytes of the buffer that messages cycle through.
const BUFFER_BYTES_MAX: usize = 1 << 24;

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
        depth: DEPTH,
    };
    let mut end = Endpoint::open(provider, sizes, settings.mtu, waiting)?;
    let stream = Stream {
        slot,
        slots,
        settings: *settings,
    };
    let receiver = !client && settings.operation == Operation::Send;
    let mut receives = Receives::new(settings);
    if receiver {
        receives.fill(&end, &stream, DEPTH)?;
    }
    end.connect(control)?;
    let mut report = None;
    if client {
        let start = Instant::now();
        stream.run(&mut end, control)?;
        let seconds = start.elapsed().as_secs_f64();
        let messages = f64::from(settings.iters) * f64::from(settings.qps);
        report = Some(Report {
            gbit_per_s: Some(messages * f64::from(settings.size) * 8.0 / seconds / 1e9),
            messages_per_s: Some(messages / seconds),
            ..Report::new(settings)
        });
    } else if receiver {
        receives.run(&mut end, control, &stream)?;
    }
    finish(control, client, settings)?;
    Ok(report)
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
                Operation::Send => SendOp::Send { imm: None },
                Operation::Write => SendOp::Write { remote, imm: None },
                Operation::Read => SendOp::Read { remote },
                Operation::Atomic => SendOp::FetchAdd { remote, add: 1 },
            };
            let last = i as u32 + 1 == list;
            let flags = if last {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            };
            SendWr {
                wr_id: u64::from(message) + 1,
                op,
                payload: Payload::Sges(&sges[i]),
                flags,
                xrc_srqn: None,
            }
        });
        Ok(end.qps[qp].post_send(&requests[..list as usize])?)
    }
}

/// The receiving end of SENDs.
struct Receives {
    left: u64,
}

impl Receives {
    fn new(settings: &Settings) -> Self {
        Receives {
            left: u64::from(settings.iters) * u64::from(settings.qps),
        }
    }

    fn fill<P: Provider>(&self, end: &Endpoint<P>, stream: &Stream, count: u32) -> Result<()> {
        (0..end.qps.len()).try_for_each(|qp| Self::post(end, stream, qp, count))
    }

    fn post<P: Provider>(end: &Endpoint<P>, stream: &Stream, qp: usize, count: u32) -> Result<()> {
        let size = stream.settings.size as usize;
        let sges: [_; LIST as usize] = std::array::from_fn(|i| [end.sge(stream.offset(i as u32), size)]);
        let requests: [RecvWr<'_>; LIST as usize] = std::array::from_fn(|i| RecvWr {
            wr_id: 0,
            sges: &sges[i],
        });
        let mut left = count;
        while left > 0 {
            let list = left.min(LIST);
            end.qps[qp].post_recv(&requests[..list as usize])?;
            left -= list;
        }
        Ok(())
    }

    fn run<P: Provider>(
        &mut self,
        end: &mut Endpoint<P>,
        control: &mut Control,
        stream: &Stream,
    ) -> Result<()> {
        let index_of: std::collections::HashMap<u32, usize> = end
            .qps
            .iter()
            .enumerate()
            .map(|(index, qp)| (qp.qpn(), index))
            .collect();
        let mut used = vec![0u32; end.qps.len()];
        let mut completions = [Wc::default(); 64];
        while self.left > 0 {
            let count = end.wait(control, &mut completions)?;
            for wc in &completions[..count] {
                debug_assert_eq!(wc.opcode, WcOpcode::Recv);
                let qp = index_of[&wc.qp_num];
                used[qp] += 1;
                self.left -= 1;
                if used[qp] == LIST {
                    used[qp] = 0;
                    Self::post(end, stream, qp, LIST)?;
                }
            }
        }
        // Acknowledgements of the last messages may still be on their way.
        end.cq.poll(&mut completions)?;
        Ok(())
    }
}
