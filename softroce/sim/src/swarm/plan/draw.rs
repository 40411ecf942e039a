//! How plans are drawn: the same seed always gives the same plan.

use verbs_api::Mtu;

use super::{Kind, Message, Outage, Plan, Setup, Stream, Unreliable, Weather};
use crate::Random;

const MILLISECOND: u64 = 1_000_000;

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
