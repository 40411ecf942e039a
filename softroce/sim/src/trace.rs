//! What was sent: kept for captures and checks, and hashed.

use std::collections::VecDeque;
use std::sync::Arc;

use roce_wire::{ICRC_LEN, Operation};
use softroce_engine::{Path, Time};

/// Bytes of packets kept; older ones go.
const KEPT_BYTES: usize = 64 << 20;

/// A packet that was sent.
#[derive(Clone, Debug)]
pub struct Sent {
    /// When.
    pub at: Time,
    /// Index of the sending device.
    pub from: usize,
    /// Index of the device that it was sent to.
    pub to: usize,
    /// Addresses and IP header fields.
    pub path: Path,
    /// How often its PSN had been sent by then (see [`Transit::transmission`](crate::Transit::transmission)).
    pub transmission: u32,
    /// Whether it was lost on the way, by rule or by chance.
    pub lost: bool,
    /// Whether it was forged: no device sent it.
    pub forged: bool,
    /// BTH to ICRC, as sent.
    pub bytes: Arc<[u8]>,
}

/// The packets sent so far, the newest ones in full.
#[derive(Debug)]
pub(crate) struct Trace {
    packets: VecDeque<Sent>,
    kept_bytes: usize,
    /// How many are no longer kept.
    gone: u64,
    hash: u64,
}

impl Default for Trace {
    fn default() -> Self {
        Trace {
            packets: VecDeque::new(),
            kept_bytes: 0,
            gone: 0,
            hash: 0xcbf2_9ce4_8422_2325,
        }
    }
}

impl Trace {
    /// Forged packets are no part of the hash: it tells what the devices did.
    pub(crate) fn push(&mut self, sent: Sent) {
        if !sent.forged {
            self.absorb(&sent);
        }
        self.kept_bytes += sent.bytes.len();
        self.packets.push_back(sent);
        while self.kept_bytes > KEPT_BYTES {
            let Some(oldest) = self.packets.pop_front() else {
                break;
            };
            self.kept_bytes -= oldest.bytes.len();
            self.gone += 1;
        }
    }

    pub(crate) fn packets(&self) -> impl Iterator<Item = &Sent> {
        self.packets.iter()
    }

    /// Those that devices sent from number `first` on, as far as they are kept, and the number behind the last one.
    pub(crate) fn since(&self, first: u64) -> (Vec<Sent>, u64) {
        let skip = first.saturating_sub(self.gone) as usize;
        (
            self.packets
                .iter()
                .skip(skip)
                .filter(|sent| !sent.forged)
                .cloned()
                .collect(),
            self.gone + self.packets.len() as u64,
        )
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }

    /// Remote addresses are left out: the host's allocator chooses them, not the seed. So is the ICRC, which covers
    /// them.
    fn absorb(&mut self, sent: &Sent) {
        let masked = address_offset(&sent.bytes).map_or(0..0, |at| at..at + 8);
        let covered = sent.bytes.len().saturating_sub(ICRC_LEN);
        let mut eat =
            |byte: u8| self.hash = (self.hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        sent.at.as_nanos().to_le_bytes().into_iter().for_each(&mut eat);
        [sent.from as u8, sent.to as u8, u8::from(sent.lost)]
            .into_iter()
            .for_each(&mut eat);
        for (at, byte) in sent.bytes[..covered].iter().enumerate() {
            eat(if masked.contains(&at) { 0 } else { *byte });
        }
    }
}

/// Where the remote address of a request stands, if it has one.
fn address_offset(bytes: &[u8]) -> Option<usize> {
    let packet = roce_wire::parse(bytes).ok()?;
    let info = packet.headers.bth.opcode.info()?;
    let has_address = info.headers.reth || info.headers.atomic_eth;
    let behind_bth = if info.headers.xrceth { 4 } else { 0 };
    (has_address && info.operation != Operation::Acknowledge).then_some(roce_wire::BTH_LEN + behind_bth)
}
