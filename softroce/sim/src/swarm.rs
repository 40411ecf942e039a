//! Swarms: everything about a run - topology, settings, operations, faults - is drawn from one seed.
//!
//! While it runs: requests complete in order and exactly once, and what is reported as done is done, byte for byte.
//! Then the faults stop, and within a bound everything must have finished, or ended in ERR with all behind it flushed.
//! No byte outside what was asked for changes. Unreliable services may lose messages, but change none.
//!
//! What a run finds is a [`Finding`]; [`reduce`] makes its plan as small as it can.

mod conversation;
mod plan;
mod reduce;
mod stream;

pub use conversation::Conversation;
pub use plan::{Kind, Message, Outage, Plan, Setup, Stream, Unreliable, Weather};
pub use reduce::{Reduction, reduce};

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use softroce::Softroce;

use crate::{Activity, Link, Random, Time, World};

/// How long a run may take once the faults have stopped, ns of virtual time.
const LIVENESS_NS: u64 = 60_000_000_000;
/// Steps of one run; more means that time does not move on.
const STEPS: u64 = 5_000_000;

/// How a run went that found nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Follows from every packet sent and its time.
    pub trace_hash: u64,
    /// Packets sent, lost ones included.
    pub packets: u64,
    /// When it ended.
    pub ended: Time,
}

/// What a run found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub what: String,
    /// When, in virtual time.
    pub at: Time,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (at {})", self.what, self.at)
    }
}

/// Runs a plan.
///
/// # Errors
/// What was found. A panic is a finding too, and so is a plan that is none ([`Plan::check`]).
pub fn run(plan: &Plan) -> Result<Run, Finding> {
    checked(plan)?;
    Swarm::new(plan).finish()
}

/// The same, and its packets are written to this file, whatever comes of it.
///
/// # Errors
/// The file cannot be written.
pub fn run_captured(plan: &Plan, capture: &Path) -> io::Result<Result<Run, Finding>> {
    let file = io::BufWriter::new(std::fs::File::create(capture)?);
    if let Err(finding) = checked(plan) {
        return Ok(Err(finding));
    }
    let mut swarm = Swarm::new(plan);
    let done = swarm.finish();
    swarm.world.write_capture(file)?;
    Ok(done)
}

fn checked(plan: &Plan) -> Result<(), Finding> {
    plan.check().map_err(|what| Finding {
        what: format!("this is no plan: {what}"),
        at: Time::ZERO,
    })
}

struct Swarm<'a> {
    plan: &'a Plan,
    world: World,
    conversations: Vec<Conversation>,
    streams: Vec<stream::Stream>,
}

impl<'a> Swarm<'a> {
    fn finish(&mut self) -> Result<Run, Finding> {
        let done = catch_unwind(AssertUnwindSafe(|| {
            self.open();
            self.run()
        }));
        match done {
            Ok(Ok(())) => Ok(Run {
                trace_hash: self.world.trace_hash(),
                packets: self.world.counters().sent,
                ended: self.world.now(),
            }),
            Ok(Err(what)) => Err(self.finding(what)),
            Err(panic) => {
                let words = panic
                    .downcast_ref::<String>()
                    .map(String::as_str)
                    .or(panic.downcast_ref::<&str>().copied());
                Err(self.finding(format!("a panic: {}", words.unwrap_or("without words"))))
            }
        }
    }

    fn new(plan: &'a Plan) -> Self {
        Swarm {
            plan,
            world: World::new(plan.world_seed),
            conversations: Vec::new(),
            streams: Vec::new(),
        }
    }

    fn finding(&self, what: String) -> Finding {
        Finding {
            what,
            at: self.world.now(),
        }
    }

    fn open(&mut self) {
        let plan = self.plan;
        let address = |n: usize| IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1 + n as u8));
        let names: Vec<String> = (0..plan.devices).map(|n| format!("sim{n}")).collect();
        let devices = names
            .iter()
            .enumerate()
            .map(|(n, name)| self.world.add_device(name, address(n)))
            .collect();
        let provider = Softroce::from_devices(devices);
        self.conversations = plan
            .conversations
            .iter()
            .map(|setup| Conversation::open(&provider, &names, setup))
            .collect();
        self.streams = plan
            .streams
            .iter()
            .map(|setup| stream::Stream::open(&provider, &names, setup))
            .collect();
        self.world.set_all_links(plan.weather.link());
        for device in 0..plan.devices {
            self.world.set_inbox_capacity(device, plan.inbox_bytes);
        }
    }

    fn work(&mut self, random: &mut Random) -> Result<(), String> {
        for (n, conversation) in self.conversations.iter_mut().enumerate() {
            conversation
                .work(random)
                .map_err(|what| format!("conversation {n}: {what}"))?;
        }
        for (n, stream) in self.streams.iter_mut().enumerate() {
            stream
                .work(random)
                .map_err(|what| format!("stream {n}: {what}"))?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.conversations.iter().all(Conversation::is_over)
            && self.streams.iter().all(stream::Stream::is_over)
    }

    fn has_news(&mut self) -> bool {
        // Each must be asked, since asking forgets.
        let mut any = false;
        for conversation in &mut self.conversations {
            any |= conversation.has_news();
        }
        for stream in &mut self.streams {
            any |= stream.has_news();
        }
        any
    }

    fn can_act(&self) -> bool {
        self.conversations.iter().any(Conversation::can_act)
            || self.streams.iter().any(stream::Stream::can_act)
    }

    fn run(&mut self) -> Result<(), String> {
        let mut random = Random::new(self.plan.work_seed);
        let faults_end = Time::ZERO + self.plan.faults_ns;
        let mut outages = self.plan.outages.iter().peekable();
        let mut limit = faults_end;
        let mut is_calm = false;
        for step in 0.. {
            if step == STEPS {
                return Err(format!("no end after {STEPS} steps"));
            }
            self.work(&mut random)?;
            if self.is_over() {
                break;
            }
            while let Some(outage) = outages.next_if(|outage| outage.at_ns <= self.world.now().as_nanos()) {
                let link = Link {
                    up: outage.up,
                    ..self.world.link(outage.from, outage.to)
                };
                self.world.set_link(outage.from, outage.to, link);
            }
            if !is_calm && self.world.now() >= faults_end {
                is_calm = true;
                self.world.set_all_links(Link::default());
                (0..self.plan.devices).for_each(|device| self.world.set_inbox_capacity(device, None));
                limit = self.world.now() + LIVENESS_NS;
            }
            if is_calm && self.world.now() >= limit {
                return Err("not finished in time without faults".into());
            }
            let next_outage = outages.peek().filter(|_| !is_calm).map(|outage| outage.at_ns);
            let until = next_outage.map_or(limit, |at| limit.min(Time::from_nanos(at)));
            let has_changed = self.has_news();
            let is_dead = self.world.advance(until) == Activity::Dead;
            if is_dead && is_calm && !has_changed && !self.has_news() && !self.can_act() {
                return Err("dead lock: nothing in flight, no timer, but not finished".into());
            }
        }
        self.check_end()
    }

    fn check_end(&self) -> Result<(), String> {
        for (n, conversation) in self.conversations.iter().enumerate() {
            conversation
                .check_end()
                .map_err(|what| format!("conversation {n}: {what}"))?;
        }
        let plan = self.plan;
        let is_fair = plan.weather.is_fair() && plan.outages.is_empty() && plan.inbox_bytes.is_none();
        for (n, stream) in self.streams.iter().enumerate() {
            stream
                .check_end(is_fair)
                .map_err(|what| format!("stream {n}: {what}"))?;
        }
        Ok(())
    }
}
