//! The two fields of a FLUSH (annex A19).

use std::fmt;

/// What a FLUSH makes sure of: bits, of which several may be set. Four bits, two of them reserved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlushPlacement(u8);

impl FlushPlacement {
    /// Everyone who looks at the memory sees the bytes.
    pub const GLOBAL: Self = Self(1);
    /// The bytes outlast a loss of power.
    pub const PERSISTENT: Self = Self(2);

    /// Takes the low four bits.
    pub const fn new(value: u8) -> Self {
        Self(value & 0xf)
    }

    /// The four bits.
    pub const fn value(self) -> u8 {
        self.0
    }

    /// Whether all bits of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Asks for something, and for nothing that has no meaning.
    pub const fn is_valid(self) -> bool {
        self.0 != 0 && self.0 & !(Self::GLOBAL.0 | Self::PERSISTENT.0) == 0
    }
}

impl fmt::Display for FlushPlacement {
    /// As in "global+persistent".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("global"),
            2 => f.write_str("persistent"),
            3 => f.write_str("global+persistent"),
            other => write!(f, "placement {other:#x}"),
        }
    }
}

/// Which bytes a FLUSH is about. Two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FlushSelectivity(u8);

impl FlushSelectivity {
    /// Those that the RETH names.
    pub const RANGE: Self = Self(0);
    /// All of the region of the RETH's key; address and length mean nothing.
    pub const REGION: Self = Self(1);

    /// Takes the low two bits.
    pub const fn new(value: u8) -> Self {
        Self(value & 3)
    }

    /// The two bits.
    pub const fn value(self) -> u8 {
        self.0
    }
}

impl fmt::Display for FlushSelectivity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::RANGE => f.write_str("range"),
            Self::REGION => f.write_str("region"),
            Self(other) => write!(f, "selectivity {other}"),
        }
    }
}
