//! Packet sequence numbers inside a queue pair: 64 bits wide, so that they compare like any number.

use std::ops::{Add, Sub};

use roce_wire::Psn;

use crate::mutants::{Mutant, is_on, wrong};

/// A PSN that does not wrap. Its low 24 bits are the PSN on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Seq(u64);

impl Seq {
    /// Of what has no number yet.
    pub(crate) const ZERO: Seq = Seq(0);

    /// The first number of a connection. It starts one round up, so that numbers a little older exist too.
    pub(crate) fn start(psn: u32) -> Seq {
        Seq((1 << 24) | u64::from(psn & 0xff_ffff))
    }

    /// As it stands on the wire.
    pub(crate) fn psn(self) -> Psn {
        Psn::new((self.0 & 0xff_ffff) as u32)
    }

    /// The number nearest to this one that stands on the wire as `psn`: half a round ahead or behind.
    pub(crate) fn nearest(self, psn: Psn) -> Seq {
        if is_on(Mutant::PsnWindowDoesNotWrap) {
            return Seq(wrong::unwrapped(self.0, psn));
        }
        Seq(self
            .0
            .wrapping_add_signed(i64::from(psn.distance_from(self.psn()))))
    }
}

impl Add<u32> for Seq {
    type Output = Seq;
    fn add(self, count: u32) -> Seq {
        Seq(self.0 + u64::from(count))
    }
}

impl Sub<Seq> for Seq {
    type Output = u32;
    /// How far this one is ahead; 0 when it is not. Saturates.
    fn sub(self, earlier: Seq) -> u32 {
        u32::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(u32::MAX)
    }
}

impl Seq {
    /// The number before.
    pub(crate) fn before(self) -> Seq {
        Seq(self.0 - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_number_is_found_across_the_wrap() {
        let seq = Seq::start(0xff_fffe);
        assert_eq!(seq.nearest(Psn::new(1)), seq + 3);
        assert_eq!((seq + 3).nearest(Psn::new(0xff_fffe)), seq);
        assert_eq!((seq + 3).psn(), Psn::new(1));
        let zero = Seq::start(0);
        assert_eq!(zero.nearest(Psn::new(0xff_ffff)), zero.before());
    }
}
