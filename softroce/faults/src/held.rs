//! Packets that are held back: until a time, or until others have passed.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::Parcel;

/// Packets held at most.
const PACKETS_MAX: usize = 8192;
/// Their bytes, at most.
const BYTES_MAX: usize = 16 << 20;

/// Flows within which packets overtake each other: from, to, queue pair.
type Lane = (IpAddr, IpAddr, u32);

#[derive(Debug)]
struct Waiting<T> {
    lane: Lane,
    /// So many have to pass.
    left: u32,
    due_ns: u64,
    number: u64,
    parcel: Parcel,
    tag: T,
}

/// Packets held back, each with what its keeper needs to know to send it on.
#[derive(Debug)]
pub struct Held<T> {
    delayed: BTreeMap<(u64, u64), (Parcel, T)>,
    overtaken: Vec<Waiting<T>>,
    bytes: usize,
    next_number: u64,
    /// Packets that found no room, and are lost.
    pub refused: u64,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Held {
            delayed: BTreeMap::new(),
            overtaken: Vec::new(),
            bytes: 0,
            next_number: 0,
            refused: 0,
        }
    }
}

impl<T> Held<T> {
    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.delayed.is_empty() && self.overtaken.is_empty()
    }

    /// Hold a parcel back as long as it says; `Some` when it need not wait at all. Without room it is lost.
    pub fn hold(&mut self, now_ns: u64, parcel: Parcel, tag: T) -> Option<(Parcel, T)> {
        if parcel.delay_ns == 0 && parcel.past == 0 {
            return Some((parcel, tag));
        }
        if self.delayed.len() + self.overtaken.len() >= PACKETS_MAX
            || self.bytes + parcel.bytes.len() > BYTES_MAX
        {
            self.refused += 1;
            return None;
        }
        self.bytes += parcel.bytes.len();
        let number = self.next_number;
        self.next_number += 1;
        let due_ns = now_ns.saturating_add(parcel.delay_ns);
        if parcel.past == 0 {
            self.delayed.insert((due_ns, number), (parcel, tag));
        } else {
            self.overtaken.push(Waiting {
                lane: lane(&parcel),
                left: parcel.past,
                due_ns: now_ns.saturating_add(parcel.overtaken_at_most_ns),
                number,
                parcel,
                tag,
            });
        }
        None
    }

    /// A packet has passed: those that it was the last to overtake are due now. Cheap while nothing waits for that.
    pub fn note_passed(&mut self, now_ns: u64, src: IpAddr, dst: IpAddr, bytes: &[u8]) {
        if self.overtaken.is_empty() {
            return;
        }
        let passed = (src, dst, qpn(bytes));
        for waiting in self.overtaken.iter_mut().filter(|waiting| waiting.lane == passed) {
            waiting.left -= 1;
        }
        self.release(now_ns, |waiting| waiting.left == 0);
    }

    /// When the next one is due, if nothing passes.
    pub fn deadline_ns(&self) -> Option<u64> {
        let delayed = self.delayed.first_key_value().map(|((due, _), _)| *due);
        let overtaken = self.overtaken.iter().map(|waiting| waiting.due_ns).min();
        delayed.into_iter().chain(overtaken).min()
    }

    /// The next one that is due by `now_ns`.
    pub fn pop_due(&mut self, now_ns: u64) -> Option<(Parcel, T)> {
        self.release(now_ns, |waiting| waiting.due_ns <= now_ns);
        let first = self
            .delayed
            .first_entry()
            .filter(|first| first.key().0 <= now_ns)?;
        let (parcel, tag) = first.remove();
        self.bytes -= parcel.bytes.len();
        Some((parcel, tag))
    }

    /// Nothing is overtaken any more that `is_done` names: it is due now, or later if it is delayed as well.
    fn release(&mut self, now_ns: u64, is_done: impl Fn(&Waiting<T>) -> bool) {
        let mut at = 0;
        while at < self.overtaken.len() {
            if !is_done(&self.overtaken[at]) {
                at += 1;
                continue;
            }
            // In order: those that wait longest go first.
            let done = self.overtaken.remove(at);
            let due_ns = now_ns.saturating_add(done.parcel.delay_ns);
            self.delayed
                .insert((due_ns, done.number), (done.parcel, done.tag));
        }
    }
}

fn lane(parcel: &Parcel) -> Lane {
    (parcel.way.src, parcel.way.dst, qpn(&parcel.bytes))
}

/// The destination's number, where a packet has it.
fn qpn(bytes: &[u8]) -> u32 {
    match bytes {
        [_, _, _, _, _, a, b, c, ..] => u32::from_be_bytes([0, *a, *b, *c]),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Way;

    fn parcel(mark: u8, delay_ns: u64, past: u32) -> Parcel {
        let address = IpAddr::from([127, 0, 0, 1]);
        Parcel {
            way: Way::between(address, address),
            bytes: vec![mark; 20],
            delay_ns,
            past,
            overtaken_at_most_ns: 1_000,
        }
    }

    fn pass(held: &mut Held<()>, now_ns: u64, mark: u8) {
        let address = IpAddr::from([127, 0, 0, 1]);
        held.note_passed(now_ns, address, address, &[mark; 20]);
    }

    fn due(held: &mut Held<()>, now_ns: u64) -> Vec<u8> {
        std::iter::from_fn(|| held.pop_due(now_ns))
            .map(|(parcel, ())| parcel.bytes[0])
            .collect()
    }

    #[test]
    fn delayed_parcels_come_in_the_order_of_their_times() {
        let mut held = Held::default();
        assert!(held.hold(0, parcel(1, 0, 0), ()).is_some());
        for (mark, delay) in [(1, 30), (2, 10), (3, 10)] {
            assert!(held.hold(5, parcel(mark, delay, 0), ()).is_none());
        }
        assert_eq!(held.deadline_ns(), Some(15));
        assert_eq!(due(&mut held, 14), []);
        assert_eq!(due(&mut held, 15), [2, 3]);
        assert_eq!(due(&mut held, 99), [1]);
        assert!(held.is_empty() && held.bytes == 0);
    }

    #[test]
    fn an_overtaken_parcel_waits_for_packets_of_its_own_flow_or_for_the_time() {
        let mut held = Held::default();
        held.hold(0, parcel(1, 0, 2), ());
        pass(&mut held, 1, 1);
        pass(&mut held, 2, 9);
        assert_eq!(due(&mut held, 2), []);
        pass(&mut held, 3, 1);
        assert_eq!(due(&mut held, 3), [1]);
        held.hold(10, parcel(2, 0, 5), ());
        assert_eq!(held.deadline_ns(), Some(1_010));
        assert_eq!(due(&mut held, 1_010), [2]);
    }

    #[test]
    fn what_finds_no_room_is_lost_and_counted() {
        let mut held = Held::default();
        for _ in 0..PACKETS_MAX + 3 {
            held.hold(0, parcel(1, 1, 0), ());
        }
        assert_eq!(held.refused, 3);
        assert_eq!(due(&mut held, 1).len(), PACKETS_MAX);
    }
}
