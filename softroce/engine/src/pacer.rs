//! How fast packets leave that nobody acknowledges.
//!
//! UC and UD have no window: nothing comes back that could say what the peer has taken in. On one machine a sender is
//! faster than a receiver that must first be woken, and the receiver's socket holds little. So what all unreliable
//! queue pairs send together is bounded as by the rate of a wire: a burst of about one train, then [`RATE_MAX`]. A peer
//! whose socket fills up all the same can say so (a congestion notification), which halves the rate for a while. Where the
//! driver knows what lies unread at a peer ([`Pacer::note_unread`]), no more than [`UNREAD_BYTES_MAX`] and a batch does.
//!
//! Bytes count as the receiving socket counts them, see [`crate::budget::packet_cost`].
#![forbid(unsafe_code)]

use crate::Time;

/// Bytes that may leave at once after a pause.
const BURST_BYTES: i64 = 64 << 10;
/// Bytes that must have gathered before sending goes on, so that they leave as one train.
const RESUME_BYTES: i64 = BURST_BYTES / 2;
/// The fastest, bytes a microsecond: a default socket then lasts for 120 µs of a receiver's absence.
const RATE_MAX: i64 = 1000;
/// The slowest.
const RATE_MIN: i64 = 50;
/// What a packet counts at least, bytes, so that two million leave in a second. A message needs a receive request as
/// well as room in a socket, and a program has some hundred posted.
const PACKET_BYTES_MIN: i64 = 500;
/// What may lie unread at a peer: half of a socket of the usual size, since it may have other peers.
const UNREAD_BYTES_MAX: u64 = 100 << 10;
/// When a sender looks again whether its peer has read, ns.
const UNREAD_LOOK_NS: u64 = 50_000;
/// Congestion notifications closer together than this are one, ns.
const ONE_CONGESTION_NS: u64 = 100_000;
/// After so long without congestion, ns, the rate grows by an eighth.
const GROWTH_NS: u64 = 1_000_000;
/// Who has had a turn comes so much later than those who have not, ns.
const LAST_IN_LINE_NS: u64 = 10_000;
/// So many come back at once at most, and as many with each [`RESUME_BYTES`] that gather later: fewer than these serve,
/// since a packet costs a kilobyte or so; and not all of a long line, most of whom would come in vain.
const LINE_GROUP: u64 = 32;

/// The wire's rate, as a bucket of bytes that fills with time.
#[derive(Debug)]
pub(crate) struct Pacer {
    /// Bytes that may leave now; negative while a debt is being paid.
    gathered: i64,
    counted_at: Time,
    rate_bytes_per_us: i64,
    changed_at: Time,
    /// What lies unread at a peer.
    unread: u64,
    /// When the last group of those who wait comes back, and how many are in it: each a nanosecond after the one before,
    /// so that they keep their order.
    group_due: Time,
    in_group: u64,
}

/// What a queue pair has sent in its turn so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    Nothing,
    Something,
}

impl Pacer {
    pub(crate) fn new() -> Self {
        Pacer {
            gathered: BURST_BYTES,
            counted_at: Time::ZERO,
            rate_bytes_per_us: RATE_MAX,
            changed_at: Time::ZERO,
            unread: 0,
            group_due: Time::ZERO,
            in_group: 0,
        }
    }

    /// Whether something may leave now; else when to come back. Who comes from a turn in which it has sent something
    /// comes back behind those that have not.
    pub(crate) fn admit(&mut self, now: Time, turn: Sent) -> Result<(), Time> {
        self.recover(now);
        let fresh = now.since(self.counted_at).min(1_000_000_000) as i64 * self.rate_bytes_per_us / 1000;
        if fresh > 0 {
            self.gathered = (self.gathered + fresh).min(BURST_BYTES);
            self.counted_at = now;
        }
        if self.unread >= UNREAD_BYTES_MAX {
            return Err(self.place_in_line(now + UNREAD_LOOK_NS));
        }
        if self.gathered > 0 {
            return Ok(());
        }
        let later = now + self.duration_ns(RESUME_BYTES - self.gathered);
        Err(match turn {
            Sent::Nothing => self.place_in_line(later),
            Sent::Something => later.max(self.group_due) + LAST_IN_LINE_NS,
        })
    }

    /// When one comes back who may not before `later`.
    fn place_in_line(&mut self, later: Time) -> Time {
        let apart = self.duration_ns(RESUME_BYTES);
        if later >= self.group_due + apart / 2 {
            (self.group_due, self.in_group) = (later, 0);
        } else if self.in_group == LINE_GROUP {
            (self.group_due, self.in_group) = (self.group_due + apart, 0);
        }
        self.in_group += 1;
        later.max(self.group_due) + self.in_group
    }

    /// How long it takes until so many bytes may leave.
    fn duration_ns(&self, bytes: i64) -> u64 {
        (bytes * 1000 / self.rate_bytes_per_us) as u64
    }

    /// A packet of this cost leaves.
    pub(crate) fn charge(&mut self, cost: u32) {
        self.gathered -= i64::from(cost).max(PACKET_BYTES_MIN);
    }

    /// What lies unread at a peer now; 0 where nobody knows.
    pub(crate) fn note_unread(&mut self, bytes: u64) {
        self.unread = bytes;
    }

    /// A peer is congested.
    pub(crate) fn note_congestion(&mut self, now: Time) {
        if now.since(self.changed_at) >= ONE_CONGESTION_NS {
            self.changed_at = now;
            self.rate_bytes_per_us = (self.rate_bytes_per_us / 2).max(RATE_MIN);
        }
    }

    fn recover(&mut self, now: Time) {
        if self.rate_bytes_per_us < RATE_MAX && now.since(self.changed_at) >= GROWTH_NS {
            self.changed_at = now;
            self.rate_bytes_per_us = (self.rate_bytes_per_us * 9 / 8 + 1).min(RATE_MAX);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Send packets of 1,000 bytes whenever they may leave, until `end`; how many left.
    fn send_until(pacer: &mut Pacer, start: Time, end: Time) -> i64 {
        let (mut now, mut packets) = (start, 0);
        while now < end {
            match pacer.admit(now, Sent::Nothing) {
                Ok(()) => {
                    pacer.charge(1000);
                    packets += 1;
                }
                Err(later) => {
                    assert!(later > now, "waiting until {later:?} at {now:?}");
                    now = later;
                }
            }
        }
        packets
    }

    fn us(us: u64) -> Time {
        Time::ZERO + us * 1000
    }

    #[test]
    fn nothing_leaves_while_too_much_lies_unread_at_a_peer() {
        let mut pacer = Pacer::new();
        pacer.note_unread(UNREAD_BYTES_MAX);
        let later = pacer.admit(us(1), Sent::Nothing).unwrap_err();
        assert!(later >= us(1) + UNREAD_LOOK_NS && later < us(2) + UNREAD_LOOK_NS);
        pacer.note_unread(UNREAD_BYTES_MAX - 1);
        assert_eq!(pacer.admit(later, Sent::Nothing), Ok(()));
    }

    #[test]
    fn after_a_burst_packets_leave_at_the_rate_of_the_wire() {
        let mut pacer = Pacer::new();
        let packets = send_until(&mut pacer, us(0), us(10_000));
        let expected = (BURST_BYTES + 10_000 * RATE_MAX) / 1000;
        assert!(
            (packets - expected).abs() <= BURST_BYTES / 1000,
            "{packets} packets, {expected} expected"
        );
    }

    #[test]
    fn a_pause_saves_up_no_more_than_a_burst() {
        let mut pacer = Pacer::new();
        send_until(&mut pacer, us(0), us(1000));
        pacer.admit(us(5_000_000), Sent::Nothing).unwrap();
        assert_eq!(pacer.gathered, BURST_BYTES);
    }

    #[test]
    fn those_who_wait_come_back_in_groups_and_who_had_a_turn_behind_all_of_them() {
        let mut pacer = Pacer::new();
        pacer.charge(BURST_BYTES as u32 + 8_000);
        let line: Vec<Time> = (0..100)
            .map(|_| pacer.admit(us(1), Sent::Nothing).unwrap_err())
            .collect();
        assert_eq!(
            line[0],
            us(1) + 1000 * (RESUME_BYTES + 7_000) as u64 / RATE_MAX as u64 + 1
        );
        assert!(line.is_sorted());
        for group in 0..3 {
            let (first, next) = (line[group * 32], line[group * 32 + 32]);
            assert_eq!(line[group * 32 + 31].since(first), 31);
            assert_eq!(next.since(first), 1000 * RESUME_BYTES as u64 / RATE_MAX as u64);
        }
        assert!(pacer.admit(us(1), Sent::Something).unwrap_err() > line[99]);
    }

    #[test]
    fn congestion_halves_the_rate_once_and_it_recovers() {
        let mut pacer = Pacer::new();
        pacer.note_congestion(us(200));
        pacer.note_congestion(us(250));
        assert_eq!(pacer.rate_bytes_per_us, RATE_MAX / 2);
        send_until(&mut pacer, us(250), us(20_000));
        assert_eq!(pacer.rate_bytes_per_us, RATE_MAX);
        for at in 0..40 {
            pacer.note_congestion(us(20_000 + at * 100));
        }
        assert_eq!(pacer.rate_bytes_per_us, RATE_MIN);
    }
}
