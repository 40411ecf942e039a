//! Protocol numbers as types of their own, so that a PSN is never taken for a QPN.

use std::fmt;
use std::ops::{Add, AddAssign, Sub, SubAssign};

const MASK_24: u32 = 0x00ff_ffff;

macro_rules! serial_24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        ///
        /// 24 bits, wrapping. Deliberately not `Ord`: two serial numbers have a distance, not an order.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(u32);

        impl $name {
            /// Takes the low 24 bits of `value`.
            pub const fn new(value: u32) -> Self {
                Self(value & MASK_24)
            }

            /// The number, 0 to 0xff_ffff.
            pub const fn value(self) -> u32 {
                self.0
            }

            /// `self - other` as a signed 24-bit number, -0x80_0000 to 0x7f_ffff: positive when `self` is ahead.
            pub const fn distance_from(self, other: Self) -> i32 {
                ((self.0.wrapping_sub(other.0) << 8) as i32) >> 8
            }

            /// The successor.
            #[must_use]
            pub const fn next(self) -> Self {
                Self::new(self.0 + 1)
            }
        }

        impl Add<u32> for $name {
            type Output = Self;
            fn add(self, count: u32) -> Self {
                Self::new(self.0.wrapping_add(count))
            }
        }

        impl Sub<u32> for $name {
            type Output = Self;
            fn sub(self, count: u32) -> Self {
                Self::new(self.0.wrapping_sub(count))
            }
        }

        impl AddAssign<u32> for $name {
            fn add_assign(&mut self, count: u32) {
                *self = *self + count;
            }
        }

        impl SubAssign<u32> for $name {
            fn sub_assign(&mut self, count: u32) {
                *self = *self - count;
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#08x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#08x}", self.0)
            }
        }
    };
}

serial_24! {
    /// Packet sequence number.
    Psn
}
serial_24! {
    /// Message sequence number, as an AETH carries it.
    Msn
}

macro_rules! name_24 {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(u32);

        impl $name {
            /// `None` when `value` does not fit in 24 bits.
            pub const fn new(value: u32) -> Option<Self> {
                if value <= MASK_24 { Some(Self(value)) } else { None }
            }

            /// The number, 0 to 0xff_ffff.
            pub const fn value(self) -> u32 {
                self.0
            }

            /// From a 24-bit header field.
            pub(crate) const fn from_field(value: u32) -> Self {
                Self(value & MASK_24)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({:#x})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:#x}", self.0)
            }
        }
    };
}

name_24! {
    /// Queue pair number, 24 bits.
    Qpn
}
name_24! {
    /// Number of a shared receive queue, 24 bits, as an XRCETH carries it.
    Srqn
}

impl Qpn {
    /// QP 1, the general service interface: connection management speaks through it.
    pub const GSI: Self = Self(1);
    /// The destination of a packet to a multicast group.
    pub const MULTICAST: Self = Self(MASK_24);
}

macro_rules! opaque {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $format:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $name(pub $inner);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $format, ")"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $format, self.0)
            }
        }
    };
}

opaque! {
    /// Remote key: names a memory region or window to its peer.
    RKey, u32, "{:#x}"
}
opaque! {
    /// Queue key: what a datagram must show to enter a UD queue pair.
    QKey, u32, "{:#x}"
}
opaque! {
    /// Partition key. Bit 15 is full membership, the low 15 bits name the partition.
    PKey, u16, "{:#06x}"
}

impl PKey {
    /// Full membership of the default partition: the only entry of a RoCE P_Key table.
    pub const DEFAULT: Self = Self(0xffff);

    /// Whether packets pass between the two: the same partition, not the invalid one, and at least one side a
    /// full member (IBA C9-41 to C9-43).
    pub const fn matches(self, other: Self) -> bool {
        let same_partition = (self.0 ^ other.0) & 0x7fff == 0;
        let is_valid = self.0 & 0x7fff != 0;
        let has_full_member = (self.0 | other.0) & 0x8000 != 0;
        same_partition && is_valid && has_full_member
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_psn_wraps_at_24_bits() {
        assert_eq!(Psn::new(0xff_ffff) + 1, Psn::new(0));
        assert_eq!(Psn::new(0) - 1, Psn::new(0xff_ffff));
        assert_eq!(Psn::new(0xff00_0001), Psn::new(1));
        assert_eq!(Psn::new(5) + u32::MAX, Psn::new(4));
    }

    #[test]
    fn a_psn_distance_is_signed_across_the_wrap() {
        assert_eq!(Psn::new(2).distance_from(Psn::new(0xff_fffe)), 4);
        assert_eq!(Psn::new(0xff_fffe).distance_from(Psn::new(2)), -4);
        assert_eq!(Psn::new(0x80_0000).distance_from(Psn::new(0)), -0x80_0000);
        assert_eq!(Psn::new(0x7f_ffff).distance_from(Psn::new(0)), 0x7f_ffff);
        assert_eq!(Psn::new(7).distance_from(Psn::new(7)), 0);
    }

    #[test]
    fn a_qpn_of_25_bits_is_refused() {
        assert_eq!(Qpn::new(0x100_0000), None);
        assert_eq!(Qpn::new(0xff_ffff), Some(Qpn::MULTICAST));
    }

    #[test]
    fn p_keys_match_when_the_partition_is_one_and_a_side_is_a_full_member() {
        assert!(PKey(0xffff).matches(PKey(0xffff)));
        assert!(PKey(0xffff).matches(PKey(0x7fff)));
        assert!(!PKey(0x7fff).matches(PKey(0x7fff)));
        assert!(!PKey(0x8001).matches(PKey(0x8002)));
        assert!(!PKey(0x8000).matches(PKey(0x8000)));
    }
}
