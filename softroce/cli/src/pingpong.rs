//! `softroce pingpong`: two processes send a message back and forth, and can check every byte of it.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use clap::Args;
use serde::{Deserialize, Serialize};
use verbs_api::{Buffer, Provider, Wc, WcOpcode};

use crate::control::Control;
use crate::device::{self, DeviceArgs};
use crate::endpoint::{Endpoint, Kind, Service, Sizes, Waiting, check_told, check_told_mtu, check_transport};
use crate::output;

/// Send a message back and forth between two processes (start one without HOST, then one with, whose service,
/// size, MTU and number count; a server that was told otherwise refuses)
#[derive(Args, Debug)]
pub struct Pingpong {
    /// The server to connect to; without it this process is the server
    host: Option<String>,
    /// The service of the queue pairs (rc when left out; a server goes by its client)
    #[arg(long)]
    transport: Option<Kind>,
    /// Bytes a message [default: 4096]
    #[arg(long)]
    size: Option<u32>,
    /// Round trips [default: 1000]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    iters: Option<u32>,
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
    service: Service,
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
        let size = self.size.unwrap_or(4096);
        if size > SIZE_BYTES_MAX {
            bail!("--size {size} is above {SIZE_BYTES_MAX} bytes");
        }
        device::check_capture(self.capture.as_deref())?;
        device::check_address(&self.device)?;
        let own = Settings {
            service: self.transport.unwrap_or(Kind::Rc).into(),
            size,
            iters: self.iters.unwrap_or(1000),
            mtu: self.mtu.unwrap_or(0),
            check: self.check,
            events: self.events,
        };
        let (mut control, settings) = match &self.host {
            Some(host) => {
                let mut control = Control::connect(host, self.port, "pingpong")?;
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
                let mut control = Control::accept(self.port, "pingpong")?;
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
        check_transport(self.transport, settings.service)?;
        check_told("--size", self.size, settings.size)?;
        check_told("--iters", self.iters, settings.iters)?;
        check_told_mtu(self.mtu, settings.mtu)?;
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
        message_bytes: size,
        depth: 4,
        recv_depth: 4,
    };
    let mut end = Endpoint::open(provider, settings.service, sizes, settings.mtu, waiting)?;
    end.post_recvs(0, RECV_ID, end.sge(size, size), 1)?;
    end.connect(control)?;
    let mut talk = Talk {
        end,
        patterns: Patterns::new(size),
        settings,
        client,
        sent: 0,
        received: 0,
        send_done: true,
        repeated: 0,
    };
    let start = Instant::now();
    talk.run(control)?;
    let elapsed = start.elapsed();
    control.send(&"done")?;
    talk.answer_until_done(control)?;
    let _: String = control.receive()?;
    Ok(Report {
        bytes: 2 * u64::from(settings.size) * u64::from(settings.iters),
        iters: settings.iters,
        seconds: elapsed.as_secs_f64(),
        checked: settings.check,
        repeated: talk.repeated,
    })
}

/// One end of a conversation.
///
/// Where messages may be lost, the immediate of each is its number, the client says its last one again when no
/// answer comes, and the server repeats its answer to one that it knows already.
struct Talk<P: Provider> {
    end: Endpoint<P>,
    patterns: Patterns,
    settings: Settings,
    client: bool,
    sent: u32,
    received: u32,
    /// The last message has left the buffer.
    send_done: bool,
    /// Messages said again.
    repeated: u32,
}

/// How long the client of an unreliable service waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_millis(200);

impl<P: Provider> Talk<P> {
    fn run(&mut self, control: &mut Control) -> Result<()> {
        if self.client && self.settings.iters > 0 {
            self.say_next()?;
        }
        while self.received < self.settings.iters || !self.send_done {
            self.step(control, ANSWER_TIMEOUT)?;
        }
        Ok(())
    }

    /// The client's last answer may have been lost: repeat it for as long as it is asked for.
    fn answer_until_done(&mut self, control: &mut Control) -> Result<()> {
        while !self.client && !self.settings.service.is_reliable() && !control.has_word()? {
            self.step(control, Duration::from_millis(1))?;
        }
        Ok(())
    }

    /// Wait for completions, and act on them.
    fn step(&mut self, control: &mut Control, patience: Duration) -> Result<()> {
        let is_reliable = self.settings.service.is_reliable();
        let deadline = (!is_reliable).then(|| Instant::now() + patience);
        let mut completions = [Wc::default(); 4];
        let count = self.end.wait_until(control, &mut completions, deadline)?;
        for wc in &completions[..count] {
            if wc.opcode == WcOpcode::Recv {
                self.hear(wc)?;
            } else {
                self.send_done = true;
            }
        }
        // The next message goes out when the last one has arrived, and the buffer is free again.
        let due = self.received + u32::from(self.client);
        if self.send_done && self.sent < due.min(self.settings.iters) {
            self.say_next()?;
        } else if count == 0 && self.client && self.send_done && self.sent > 0 {
            self.say_again()?;
        }
        Ok(())
    }

    fn hear(&mut self, wc: &Wc) -> Result<()> {
        let size = self.settings.size as usize;
        let number = wc.immediate().unwrap_or(self.received);
        if number < self.received {
            self.end.post_recvs(0, RECV_ID, self.end.sge(size, size), 1)?;
            // The server's answer got lost; the client hears a late answer twice, and that is all.
            if !self.client && self.send_done && number + 1 == self.sent {
                self.say_again()?;
            }
            return Ok(());
        }
        let length = self.end.message_bytes(wc);
        if number > self.received || length != size {
            bail!(
                "message {number} of {length} bytes arrived instead of message {} of {size}",
                self.received
            );
        }
        if self.settings.check {
            self.patterns
                .verify(&self.end.buffer, size, !self.client, self.received)?;
        }
        self.received += 1;
        if self.received < self.settings.iters || !self.settings.service.is_reliable() {
            self.end.post_recvs(0, RECV_ID, self.end.sge(size, size), 1)?;
        }
        Ok(())
    }

    fn say_next(&mut self) -> Result<()> {
        if self.settings.check {
            self.patterns.fill(&self.end.buffer, self.client, self.sent);
        }
        self.sent += 1;
        self.say()
    }

    fn say_again(&mut self) -> Result<()> {
        self.repeated += 1;
        self.say()
    }

    fn say(&mut self) -> Result<()> {
        let size = self.settings.size as usize;
        let number = Some(self.sent - 1).filter(|_| !self.settings.service.is_reliable());
        let op = self.end.send_op(0, number);
        self.end.post(0, SEND_ID, op, self.end.sge(0, size), true)?;
        self.send_done = false;
        Ok(())
    }
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
    /// Messages said again since no answer came (unreliable services).
    repeated: u32,
}

impl Report {
    fn print(&self, json: bool) -> Result<()> {
        let mbit_per_s = self.bytes as f64 * 8.0 / self.seconds / 1e6;
        let us_per_iter = self.seconds * 1e6 / f64::from(self.iters.max(1));
        if json {
            let value = serde_json::json!({
                "bytes": self.bytes, "iters": self.iters, "seconds": self.seconds, "checked": self.checked,
                "repeated": self.repeated,
                "mbit_per_s": mbit_per_s, "us_per_iter": us_per_iter,
            });
            return output::line(value);
        }
        output::line(format_args!(
            "{} in {:.3} s = {mbit_per_s:.2} Mbit/s",
            output::count(self.bytes, "byte"),
            self.seconds
        ))?;
        let check = if self.checked { ", every byte checked" } else { "" };
        let again = match self.repeated {
            0 => String::new(),
            lost => format!(
                ", {} lost on the way and said again",
                output::count(lost, "message")
            ),
        };
        output::line(format_args!(
            "{} = {us_per_iter:.2} us an iteration{check}{again}",
            output::count(self.iters, "iteration")
        ))
    }
}
