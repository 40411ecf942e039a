//! `softroce pingpong`: two processes send a message back and forth, and can check every byte of it.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use verbs_api::{Buffer, Provider, SendOp, Wc, WcOpcode};

use crate::control::Control;
use crate::device::{self, DeviceArgs};
use crate::endpoint::{Endpoint, Sizes, Waiting};
use crate::output;

/// Send a message back and forth between two processes (start one without HOST, then one with, whose size, MTU and
/// number count)
#[derive(Args, Debug)]
pub struct Pingpong {
    /// The server to connect to; without it this process is the server
    host: Option<String>,
    /// The service of the queue pairs
    #[arg(long, default_value = "rc", value_parser = ["rc"])]
    transport: String,
    /// Bytes a message
    #[arg(long, default_value_t = 4096)]
    size: u32,
    /// Round trips
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    iters: u32,
    /// Path MTU: 256, 512, 1024, 2048 or 4096; the interface's when left out
    #[arg(long, value_parser = device::parse_mtu)]
    mtu: Option<usize>,
    /// Sleep on the completion channel rather than spin
    #[arg(long)]
    events: bool,
    /// Check every byte that arrives
    #[arg(long)]
    check: bool,
    /// TCP port on which the two ends meet
    #[arg(long, default_value_t = 18515, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// Print the result as JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
    /// Write all packets of this end to a pcapng file
    #[arg(long, value_name = "FILE")]
    capture: Option<PathBuf>,
}

/// What the client decides for both ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Settings {
    size: u32,
    iters: u32,
    mtu: usize,
    check: bool,
    events: bool,
}

const SIZE_BYTES_MAX: u32 = 1 << 30;
const SEND_ID: u64 = 1;
const RECV_ID: u64 = 2;

impl Pingpong {
    /// Run one end.
    pub fn run(self) -> Result<()> {
        if self.size > SIZE_BYTES_MAX {
            bail!("--size {} is above {SIZE_BYTES_MAX} bytes", self.size);
        }
        device::check_capture(self.capture.as_deref())?;
        device::check_address(&self.device)?;
        let own = Settings {
            size: self.size,
            iters: self.iters,
            mtu: self.mtu.unwrap_or(0),
            check: self.check,
            events: self.events,
        };
        let (mut control, settings) = match &self.host {
            Some(host) => {
                let mut control = Control::connect(host, self.port)?;
                control.send(&own)?;
                // Either end can ask for the check, which needs both.
                let agreed: Settings = control.receive()?;
                let settings = Settings {
                    check: agreed.check,
                    ..own
                };
                (control, settings)
            }
            None => {
                let mut control = Control::accept(self.port)?;
                let theirs: Settings = control.receive()?;
                let settings = Settings {
                    events: own.events || theirs.events,
                    check: own.check || theirs.check,
                    ..theirs
                };
                control.send(&settings)?;
                (control, settings)
            }
        };
        if settings.size > SIZE_BYTES_MAX {
            bail!(
                "the peer wants messages of {} bytes; {SIZE_BYTES_MAX} are the limit",
                settings.size
            );
        }
        let provider = device::open(&self.device, self.capture.as_deref(), control.local_ip()?)?;
        let report = converse(&provider, &mut control, settings, self.host.is_some())?;
        report.print(self.json)
    }
}

fn converse<P: Provider>(
    provider: &P,
    control: &mut Control,
    settings: Settings,
    client: bool,
) -> Result<Report> {
    let size = settings.size as usize;
    let waiting = if settings.events {
        Waiting::Events
    } else {
        Waiting::Polling
    };
    let sizes = Sizes {
        qps: 1,
        buffer_bytes: 2 * size,
        depth: 4,
    };
    let mut end = Endpoint::open(provider, sizes, settings.mtu, waiting)?;
    let mut patterns = Patterns::new(size);
    end.post_recv(0, RECV_ID, end.sge(size, size))?;
    end.connect(control)?;

    let start = Instant::now();
    let mut progress = Turn {
        sent: 0,
        received: 0,
        send_done: true,
    };
    if client && settings.iters > 0 {
        send(&end, &mut patterns, settings, client, &mut progress)?;
    }
    let mut completions = [Wc::default(); 4];
    while progress.received < settings.iters || !progress.send_done {
        let count = end.wait(control, &mut completions)?;
        for wc in &completions[..count] {
            if wc.opcode != WcOpcode::Recv {
                progress.send_done = true;
                continue;
            }
            if wc.byte_len != settings.size {
                bail!(
                    "message {} has {} bytes instead of {size}",
                    progress.received,
                    wc.byte_len
                );
            }
            if settings.check {
                patterns.verify(&end.buffer, size, !client, progress.received)?;
            }
            progress.received += 1;
            if progress.received < settings.iters {
                end.post_recv(0, RECV_ID, end.sge(size, size))?;
            }
        }
        // The next message goes out when the last one has arrived, and the buffer is free again.
        let due = if client {
            progress.received + 1
        } else {
            progress.received
        }
        .min(settings.iters);
        if progress.send_done && progress.sent < due {
            send(&end, &mut patterns, settings, client, &mut progress)?;
        }
    }
    let elapsed = start.elapsed();
    control.send(&"done")?;
    let _: String = control.receive()?;
    Ok(Report {
        bytes: 2 * u64::from(settings.size) * u64::from(settings.iters),
        iters: settings.iters,
        seconds: elapsed.as_secs_f64(),
        checked: settings.check,
    })
}

struct Turn {
    sent: u32,
    received: u32,
    send_done: bool,
}

fn send<P: Provider>(
    end: &Endpoint<P>,
    patterns: &mut Patterns,
    settings: Settings,
    client: bool,
    turn: &mut Turn,
) -> Result<()> {
    let size = settings.size as usize;
    if settings.check {
        patterns.fill(&end.buffer, client, turn.sent);
    }
    end.post(0, SEND_ID, SendOp::Send { imm: None }, end.sge(0, size), true)?;
    turn.sent += 1;
    turn.send_done = false;
    Ok(())
}

/// Message contents that differ in every message and direction, so that a stale or shifted byte shows.
struct Patterns {
    scratch: Vec<u8>,
}

impl Patterns {
    fn new(size: usize) -> Self {
        Patterns {
            scratch: vec![0; size],
        }
    }

    /// From 0xc0 up: Wireshark takes a short payload that begins like an EtherType for an encapsulated frame, and
    /// there are none so high.
    fn byte(client: bool, message: u32, at: usize) -> u8 {
        let x = (at as u32).wrapping_mul(0x9e37_79b1) ^ message.wrapping_mul(0x85eb_ca6b) ^ u32::from(client);
        (x ^ (x >> 15)) as u8 | 0xc0
    }

    fn fill(&mut self, buffer: &Buffer, client: bool, message: u32) {
        for (at, byte) in self.scratch.iter_mut().enumerate() {
            *byte = Self::byte(client, message, at);
        }
        buffer.write(0, &self.scratch);
    }

    fn verify(&mut self, buffer: &Buffer, offset: usize, client: bool, message: u32) -> Result<()> {
        buffer.read(offset, &mut self.scratch);
        for (at, &byte) in self.scratch.iter().enumerate() {
            let expected = Self::byte(client, message, at);
            if byte != expected {
                bail!("message {message}: byte {at} is {byte:#04x} instead of {expected:#04x}");
            }
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct Report {
    bytes: u64,
    iters: u32,
    seconds: f64,
    checked: bool,
}

impl Report {
    fn print(&self, json: bool) -> Result<()> {
        let mbit_per_s = self.bytes as f64 * 8.0 / self.seconds / 1e6;
        let us_per_iter = self.seconds * 1e6 / f64::from(self.iters.max(1));
        if json {
            let value = serde_json::json!({
                "bytes": self.bytes, "iters": self.iters, "seconds": self.seconds, "checked": self.checked,
                "mbit_per_s": mbit_per_s, "us_per_iter": us_per_iter,
            });
            return output::line(value);
        }
        output::line(format_args!(
            "{} bytes in {:.3} s = {mbit_per_s:.2} Mbit/s",
            self.bytes, self.seconds
        ))?;
        let check = if self.checked { ", every byte checked" } else { "" };
        output::line(format_args!(
            "{} iterations = {us_per_iter:.2} us an iteration{check}",
            self.iters
        ))
    }
}
