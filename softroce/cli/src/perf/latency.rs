//! Latency: one message at a time.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use verbs_api::{Provider, SendOp, Wc, WcOpcode};

use super::{Operation, Report, Settings, WARM_UP};
use crate::control::Control;
use crate::endpoint::{Endpoint, Sizes, Waiting};
use crate::stats::Distribution;

/// Only the client reports.
pub fn measure<P: Provider>(
    provider: &P,
    control: &mut Control,
    settings: &Settings,
    client: bool,
) -> Result<Option<Report>> {
    let size = settings.size as usize;
    let slot = size.next_multiple_of(8);
    let waiting = if settings.events {
        Waiting::Events
    } else {
        Waiting::Polling
    };
    let sizes = Sizes {
        qps: 1,
        buffer_bytes: 2 * slot,
        message_bytes: size,
        depth: 64,
        recv_depth: 64,
    };
    let mut end = Endpoint::open(provider, settings.service, sizes, settings.mtu, waiting)?;
    let mut run = Run {
        slot,
        size,
        settings: *settings,
        unsignaled: 0,
        completing: 0,
        early: 0,
        receives: RECEIVES,
    };
    if settings.operation == Operation::Send {
        end.post_recvs(0, 0, end.sge(slot, size), RECEIVES as usize)?;
    }
    end.connect(control)?;
    let mut samples = run.sample(&mut end, control, client)?;
    finish(control, client, settings)?;
    let divisor = if matches!(settings.operation, Operation::Send | Operation::Write) {
        2.0
    } else {
        1.0
    };
    Ok(client.then(|| Report {
        latency: Distribution::from_nanos(&mut samples, divisor),
        ..Report::new(settings)
    }))
}

/// Wait for the other end before anything is torn down. A passive server waits here for the whole measurement.
pub(super) fn finish(control: &mut Control, client: bool, settings: &Settings) -> Result<()> {
    let _ = settings;
    if client {
        control.send(&"done")?;
        let _: String = control.receive()?;
    } else {
        let _: String = control.receive_unhurried()?;
        control.send(&"done")?;
    }
    Ok(())
}

struct Run {
    slot: usize,
    size: usize,
    settings: Settings,
    unsignaled: u32,
    /// WRITEs with a completion that has not been seen yet.
    completing: usize,
    /// Answers that came before the completion of what they answer.
    early: u32,
    /// Receives posted (SEND).
    receives: u32,
}

/// A message of an unreliable service that takes so long will never come.
const LOST_AFTER: Duration = Duration::from_secs(5);
const LOST: &str = "an unreliable service does not send it again; measure once more";

/// Receives kept posted: the peer may send again before this end has posted another.
const RECEIVES: u32 = 4;

/// Sends for each one that completes visibly.
const SIGNAL_EVERY: u32 = 16;
/// Visible completions not seen yet; with them up to 48 of the 64 slots of the send queue are taken.
const COMPLETING_MAX: usize = 2;

impl Run {
    /// How long each round took, ns.
    fn sample<P: Provider>(
        &mut self,
        end: &mut Endpoint<P>,
        control: &mut Control,
        client: bool,
    ) -> Result<Vec<u64>> {
        let settings = self.settings;
        let mut samples = Vec::with_capacity(settings.iters as usize);
        let talks = matches!(settings.operation, Operation::Send | Operation::Write);
        if !talks && !client {
            return Ok(samples); // A passive target makes no call.
        }
        for round in 0..settings.iters + WARM_UP {
            let start = Instant::now();
            match (talks, client) {
                (true, true) => {
                    self.send(end, control, round)?;
                    self.arrive(end, control, round)?;
                }
                (true, false) => {
                    self.arrive(end, control, round)?;
                    self.send(end, control, round)?;
                }
                (false, _) => self.fetch(end, control)?,
            }
            if round >= WARM_UP {
                samples.push(start.elapsed().as_nanos() as u64);
            }
        }
        Ok(samples)
    }

    /// The last byte of a message tells its round, so that a peer that looks at memory sees it change.
    fn mark(round: u32) -> u8 {
        (round % 251) as u8 + 1
    }

    fn send<P: Provider>(&mut self, end: &mut Endpoint<P>, control: &mut Control, round: u32) -> Result<()> {
        end.buffer.write(self.size - 1, &[Self::mark(round)]);
        self.unsignaled += 1;
        let signaled = self.settings.completions || self.unsignaled == SIGNAL_EVERY;
        let op = match self.settings.operation {
            Operation::Write => SendOp::Write {
                remote: end.remote(self.slot),
                imm: None,
            },
            _ => end.send_op(0, None),
        };
        end.post(0, 1, op, end.sge(0, self.size), signaled)?;
        // Another receive is posted while the message is on its way, not before it leaves.
        while self.settings.operation == Operation::Send && self.receives < RECEIVES {
            end.post_recvs(0, 0, end.sge(self.slot, self.size), 1)?;
            self.receives += 1;
        }
        if signaled {
            self.unsignaled = 0;
            if self.settings.completions {
                return self.complete(end, control);
            }
            if self.settings.operation == Operation::Write {
                // The peer's answer comes by memory, so these completions are ours to collect.
                self.completing += 1;
            }
        }
        let mut completions = [Wc::default(); COMPLETING_MAX + 1];
        while self.completing > COMPLETING_MAX {
            self.completing -= end.wait(control, &mut completions)?;
        }
        Ok(())
    }

    /// Wait for the completion of the message just sent. The answer may come before it.
    fn complete<P: Provider>(&mut self, end: &mut Endpoint<P>, control: &mut Control) -> Result<()> {
        let mut completions = [Wc::default(); 1];
        loop {
            end.wait(control, &mut completions)?;
            if completions[0].opcode != WcOpcode::Recv {
                return Ok(());
            }
            self.early += 1;
        }
    }

    fn arrive<P: Provider>(
        &mut self,
        end: &mut Endpoint<P>,
        control: &mut Control,
        round: u32,
    ) -> Result<()> {
        if self.settings.operation == Operation::Write {
            return self.arrive_in_memory(end, control, round);
        }
        let mut completions = [Wc::default(); 1];
        if self.early > 0 {
            self.early -= 1;
            self.receives -= 1;
            return Ok(());
        }
        loop {
            let deadline = (!self.settings.service.is_reliable()).then(|| Instant::now() + LOST_AFTER);
            if end.wait_until(control, &mut completions, deadline)? == 0 {
                bail!("message {round} was lost: {LOST}");
            }
            if completions[0].opcode == WcOpcode::Recv {
                self.receives -= 1;
                return Ok(());
            }
        }
    }

    fn arrive_in_memory<P: Provider>(
        &mut self,
        end: &mut Endpoint<P>,
        control: &mut Control,
        round: u32,
    ) -> Result<()> {
        let start = Instant::now();
        let last = self.slot + self.size - 1;
        let mut looks = 0u32;
        let mut completions = [Wc::default(); COMPLETING_MAX + 1];
        while end.buffer.load_u8(last) != Self::mark(round) {
            looks = looks.wrapping_add(1);
            if self.settings.memory_poll {
                std::hint::spin_loop();
                if looks.is_multiple_of(64) {
                    // Two spinners and two engines on two cores: without giving way nobody gets on.
                    std::thread::yield_now();
                }
            } else {
                self.completing -= end.poll(&mut completions)?;
            }
            if looks.is_multiple_of(1024) {
                control.check_peer()?;
                if !self.settings.service.is_reliable() && start.elapsed() > LOST_AFTER {
                    bail!("message {round} was lost: {LOST}");
                }
            }
        }
        Ok(())
    }

    fn fetch<P: Provider>(&mut self, end: &mut Endpoint<P>, control: &mut Control) -> Result<()> {
        let remote = end.remote(0);
        let op = match self.settings.operation {
            Operation::Atomic => SendOp::FetchAdd { remote, add: 1 },
            _ => SendOp::Read { remote },
        };
        end.post(0, 1, op, end.sge(0, self.size), true)?;
        let mut completions = [Wc::default(); 1];
        end.wait(control, &mut completions)?;
        Ok(())
    }
}
