//! What a run is made of.

use serde::{Deserialize, Serialize};
use verbs_api::Mtu;

use crate::{Link, Random};

const MILLISECOND: u64 = 1_000_000;

/// Everything that is drawn before a run begins. It is kept as JSON: the same plan gives the same run, always.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// Devices, each with an address of its own.
    pub devices: usize,
    /// Reliable conversations.
    pub conversations: Vec<Setup>,
    /// Unreliable ones.
    #[serde(default)]
    pub streams: Vec<Stream>,
    /// How packets travel until the faults stop.
    pub weather: Weather,
    /// Bytes that a device's socket holds; `None` has no limit.
    pub inbox_bytes: Option<u64>,
    /// When the faults stop.
    pub faults_ns: u64,
    /// In the order of their time.
    pub outages: Vec<Outage>,
    /// What the faults of the network follow from.
    pub world_seed: u64,
    /// What the delays of the programs follow from.
    pub work_seed: u64,
}

/// The chances of a link, as in [`Link`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are those of Link.
pub struct Weather {
    pub latency_ns: u64,
    pub jitter_ns: u64,
    pub rate_bps: Option<u64>,
    pub queue_bytes: u64,
    pub loss_per_mille: u32,
    pub duplication_per_mille: u32,
    pub reordering_per_mille: u32,
    pub hold_ns: u64,
    pub corruption_per_mille: u32,
}

impl Weather {
    /// As a link.
    pub fn link(&self) -> Link {
        Link {
            latency_ns: self.latency_ns,
            jitter_ns: self.jitter_ns,
            rate_bps: self.rate_bps,
            queue_bytes: self.queue_bytes,
            loss_per_mille: self.loss_per_mille,
            duplication_per_mille: self.duplication_per_mille,
            reordering_per_mille: self.reordering_per_mille,
            hold_ns: self.hold_ns,
            corruption_per_mille: self.corruption_per_mille,
            up: true,
        }
    }

    /// Whether every packet arrives once, in order.
    pub fn is_fair(&self) -> bool {
        let chances = self.loss_per_mille
            + self.duplication_per_mille
            + self.reordering_per_mille
            + self.corruption_per_mille;
        chances == 0 && self.rate_bps.is_none()
    }
}

/// A link goes down or comes up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Outage {
    pub at_ns: u64,
    pub from: usize,
    pub to: usize,
    pub up: bool,
}

/// What a request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Kind {
    Send,
    Write,
    WriteWithImmediate,
    Read,
    FetchAdd,
}

/// A request. Each has a slot of its own at either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Message {
    pub kind: Kind,
    pub size: usize,
    pub is_signaled: bool,
    pub is_fenced: bool,
}

/// One pair of reliably connected queue pairs; codes are those of `verbs_api::QpAttr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Setup {
    /// Devices of requester and responder; they may be one.
    pub ends: [usize; 2],
    pub mtu: usize,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
    pub psn: [u32; 2],
    pub messages: Vec<Message>,
    pub longest: usize,
    /// Requests outstanding at most.
    pub depth: usize,
    /// Per mille of the chances in which receives are posted late.
    pub late_receives: u32,
}

/// The service of a [`Stream`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Unreliable {
    Uc,
    Ud,
}

/// One pair of queue pairs that promise nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Stream {
    pub service: Unreliable,
    pub ends: [usize; 2],
    pub mtu: usize,
    pub psn: u32,
    /// The bytes of each message.
    pub sizes: Vec<usize>,
    pub depth: usize,
    pub late_receives: u32,
}

/// Zero half the time, else up to `most`.
fn sometimes(random: &mut Random, most: u64) -> u64 {
    if random.chance(500) {
        0
    } else {
        1 + random.below(most)
    }
}

fn one_of<T: Copy>(random: &mut Random, choices: &[T]) -> T {
    choices[random.below(choices.len() as u64) as usize]
}

impl Plan {
    /// The plan of a seed.
    pub fn draw(seed: u64) -> Plan {
        let mut random = Random::new(seed);
        let devices = 2 + random.below(3) as usize;
        let count = 1 + random.below(6);
        let mut conversations: Vec<Setup> = (0..count).map(|_| Setup::draw(&mut random, devices)).collect();
        let weather = Weather::draw(&mut random);
        let faults_ns = (20 + random.below(400)) * MILLISECOND;
        let outages = outages(&mut random, devices, faults_ns);
        let inbox_bytes = one_of(&mut random, &[None, None, Some(30_000), Some(200_000)]);
        let world_seed = random.next_u64();
        for setup in &mut conversations {
            setup.draw_messages(&mut random);
        }
        // Drawn apart, so that seeds kept from before there were streams still mean the same conversations.
        let mut apart = Random::new(!seed);
        let streams = (0..sometimes(&mut apart, 3))
            .map(|_| Stream::draw(&mut apart, devices))
            .collect();
        Plan {
            devices,
            conversations,
            streams,
            weather,
            inbox_bytes,
            faults_ns,
            outages,
            world_seed,
            work_seed: random.rest(),
        }
    }

    /// What is wrong with a plan that somebody wrote, if anything.
    ///
    /// # Errors
    /// A sentence that names the value.
    pub fn check(&self) -> Result<(), String> {
        const MOST: usize = 64;
        let within = |what: &str, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                Ok(())
            } else {
                Err(format!("{what} is {value}; it must be from {least} to {most}"))
            }
        };
        within("the number of devices", self.devices, 1, 16)?;
        within("the number of conversations", self.conversations.len(), 0, MOST)?;
        within("the number of streams", self.streams.len(), 0, MOST)?;
        let mtu = |bytes: usize| match Mtu::from_bytes(bytes) {
            Some(_) => Ok(()),
            None => Err(format!("{bytes} is no path MTU")),
        };
        let ends = |ends: [usize; 2]| match ends.into_iter().find(|end| *end >= self.devices) {
            Some(end) => Err(format!("there is no device {end}")),
            None => Ok(()),
        };
        for setup in &self.conversations {
            ends(setup.ends)?;
            mtu(setup.mtu)?;
            within("the depth", setup.depth, 1, 1024)?;
            within("the number of messages", setup.messages.len(), 1, 10_000)?;
            within("the longest message", setup.longest, 8, 1 << 20)?;
            for message in &setup.messages {
                within("the size of a message", message.size, 0, setup.longest)?;
            }
        }
        for stream in &self.streams {
            ends(stream.ends)?;
            mtu(stream.mtu)?;
            within("the depth", stream.depth, 1, 1024)?;
            within("the number of messages", stream.sizes.len(), 1, 10_000)?;
            for size in &stream.sizes {
                within("the size of a message", *size, 0, stream.longest())?;
            }
        }
        for outage in &self.outages {
            ends([outage.from, outage.to])?;
        }
        Ok(())
    }
}

fn outages(random: &mut Random, devices: usize, faults_ns: u64) -> Vec<Outage> {
    let mut outages = Vec::new();
    for _ in 0..sometimes(random, 6) {
        let (from, to) = (
            random.below(devices as u64) as usize,
            random.below(devices as u64) as usize,
        );
        let at_ns = random.below(faults_ns);
        outages.push(Outage {
            at_ns,
            from,
            to,
            up: false,
        });
        outages.push(Outage {
            at_ns: at_ns + random.below(60 * MILLISECOND),
            from,
            to,
            up: true,
        });
    }
    outages.sort_by_key(|outage| outage.at_ns);
    outages
}

impl Weather {
    fn draw(random: &mut Random) -> Weather {
        Weather {
            latency_ns: 500 + random.below(50_000),
            jitter_ns: sometimes(random, 20_000),
            rate_bps: one_of(random, &[None, None, Some(200_000_000), Some(10_000_000_000)]),
            queue_bytes: 20_000 + random.below(500_000),
            loss_per_mille: sometimes(random, 120) as u32,
            duplication_per_mille: sometimes(random, 100) as u32,
            reordering_per_mille: sometimes(random, 150) as u32,
            hold_ns: 1_000 + random.below(3 * MILLISECOND),
            corruption_per_mille: sometimes(random, 60) as u32,
        }
    }
}

/// A message of which nothing has been drawn.
const PLAIN: Message = Message {
    kind: Kind::Send,
    size: 0,
    is_signaled: true,
    is_fenced: false,
};

impl Setup {
    /// The path MTU.
    pub(super) fn mtu(&self) -> Mtu {
        Mtu::from_bytes(self.mtu).unwrap_or(Mtu::Mtu1024)
    }

    fn draw(random: &mut Random, devices: usize) -> Setup {
        let mtu = one_of(random, &[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096]).bytes();
        let mut psn = || {
            one_of(
                random,
                &[0, 0xff_ffff, 0xff_fff0, 0x80_0000, 0x7f_fff8, 0x12_3456],
            )
        };
        let psn = [psn(), psn()];
        let mut setup = Setup {
            ends: [
                random.below(devices as u64) as usize,
                random.below(devices as u64) as usize,
            ],
            mtu,
            timeout: 8 + random.below(5) as u8,
            retry_cnt: one_of(random, &[7, 7, 7, 3, 1]),
            rnr_retry: one_of(random, &[7, 7, 6, 2]),
            min_rnr_timer: 1 + random.below(16) as u8,
            rd_atomic: 1 + random.below(8) as u8,
            psn,
            messages: Vec::new(),
            longest: 0,
            depth: 0,
            late_receives: 0,
        };
        let count = 10 + random.below(60) as usize;
        setup.longest = one_of(random, &[64, 2 * mtu, 10 * mtu + 3, 60_000]);
        setup.depth = 1 + random.below(32) as usize;
        setup.late_receives = sometimes(random, 900) as u32;
        // Their kinds and sizes are drawn later.
        setup.messages = vec![PLAIN; count];
        setup
    }

    /// So many messages of all kinds, up to the longest.
    pub fn with_messages(mut self, count: usize, random: &mut Random) -> Setup {
        self.messages = vec![PLAIN; count];
        self.draw_messages(random);
        self
    }

    fn draw_messages(&mut self, random: &mut Random) {
        let kinds = [
            Kind::Send,
            Kind::Write,
            Kind::WriteWithImmediate,
            Kind::Read,
            Kind::FetchAdd,
        ];
        let count = self.messages.len();
        for (n, message) in self.messages.iter_mut().enumerate() {
            *message = Message {
                kind: kinds[random.below(5) as usize],
                size: random.below(self.longest as u64 + 1) as usize,
                // The last one speaks, so that the end is seen; so does the last that fits the queue.
                is_signaled: n + 1 == count || (n + 1) % self.depth == 0 || random.chance(600),
                is_fenced: random.chance(100),
            };
        }
    }
}

impl Stream {
    /// The path MTU.
    pub(super) fn mtu(&self) -> Mtu {
        Mtu::from_bytes(self.mtu).unwrap_or(Mtu::Mtu1024)
    }

    /// The longest message that the service carries here.
    pub fn longest(&self) -> usize {
        match self.service {
            Unreliable::Uc => 1 << 16,
            // A datagram is one packet of the port's MTU.
            Unreliable::Ud => 4096,
        }
    }

    fn draw(random: &mut Random, devices: usize) -> Stream {
        let service = one_of(random, &[Unreliable::Uc, Unreliable::Ud]);
        let mtu = one_of(random, &[256, 1024, 4096]);
        let longest = match service {
            Unreliable::Uc => one_of(random, &[64, 2 * mtu, 10 * mtu + 3]),
            Unreliable::Ud => one_of(random, &[64, 4096]),
        };
        Stream {
            service,
            ends: [
                random.below(devices as u64) as usize,
                random.below(devices as u64) as usize,
            ],
            mtu,
            psn: one_of(random, &[0, 0xff_fff0, 0x80_0000, 0x12_3456]),
            sizes: (0..10 + random.below(60))
                .map(|_| random.below(longest as u64 + 1) as usize)
                .collect(),
            depth: 1 + random.below(32) as usize,
            late_receives: sometimes(random, 900) as u32,
        }
    }
}
