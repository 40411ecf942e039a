//! What a run is made of.

use softroce_sim::{Link, Random};
use verbs_api::Mtu;

use crate::MILLISECOND;

/// Everything that is drawn before a run begins.
#[derive(Debug)]
pub struct Plan {
    pub devices: usize,
    pub conversations: Vec<Setup>,
    pub link: Link,
    pub inbox_bytes: Option<u64>,
    /// When the faults stop.
    pub faults_ns: u64,
    /// In the order of their time.
    pub outages: Vec<Outage>,
}

/// A link goes down or comes up.
#[derive(Debug)]
pub struct Outage {
    pub at_ns: u64,
    pub from: usize,
    pub to: usize,
    pub up: bool,
}

/// One pair of queue pairs.
#[derive(Debug)]
pub struct Setup {
    /// Devices of requester and responder; they may be one.
    pub ends: [usize; 2],
    pub mtu: Mtu,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub rd_atomic: u8,
    pub psn: [u32; 2],
    pub messages: usize,
    pub longest: usize,
    /// Requests outstanding at most.
    pub depth: usize,
    /// Per mille of the chances in which receives are posted late.
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
    pub fn draw(random: &mut Random) -> Plan {
        let devices = 2 + random.below(3) as usize;
        let count = 1 + random.below(6);
        let conversations = (0..count).map(|_| Setup::draw(random, devices)).collect();
        let link = Link {
            latency_ns: 500 + random.below(50_000),
            jitter_ns: sometimes(random, 20_000),
            rate_bps: one_of(random, &[None, None, Some(200_000_000), Some(10_000_000_000)]),
            queue_bytes: 20_000 + random.below(500_000),
            loss_per_mille: sometimes(random, 120) as u32,
            duplication_per_mille: sometimes(random, 100) as u32,
            reordering_per_mille: sometimes(random, 150) as u32,
            hold_ns: 1_000 + random.below(3 * MILLISECOND),
            corruption_per_mille: sometimes(random, 60) as u32,
            up: true,
        };
        let faults_ns = (20 + random.below(400)) * MILLISECOND;
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
        let inbox_bytes = one_of(random, &[None, None, Some(30_000), Some(200_000)]);
        Plan {
            devices,
            conversations,
            link,
            inbox_bytes,
            faults_ns,
            outages,
        }
    }
}

impl Setup {
    fn draw(random: &mut Random, devices: usize) -> Setup {
        let mtu = one_of(random, &[Mtu::Mtu256, Mtu::Mtu1024, Mtu::Mtu4096]);
        let mut psn = || {
            one_of(
                random,
                &[0, 0xff_ffff, 0xff_fff0, 0x80_0000, 0x7f_fff8, 0x12_3456],
            )
        };
        let psn = [psn(), psn()];
        Setup {
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
            messages: 10 + random.below(60) as usize,
            longest: one_of(random, &[64, 2 * mtu.bytes(), 10 * mtu.bytes() + 3, 60_000]),
            depth: 1 + random.below(32) as usize,
            late_receives: sometimes(random, 900) as u32,
        }
    }
}
