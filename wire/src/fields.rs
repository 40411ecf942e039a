//! Fields that begin at any bit: how management datagrams are laid out, whose fields do not keep to bytes.

use crate::{Psn, Qpn};

/// A value that stands in so many bits. Taking it from bits is total: whatever is there is one.
pub(crate) trait Field: Copy {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

macro_rules! plain {
    ($($type:ty),*) => {$(
        impl Field for $type {
            fn from_bits(bits: u64) -> Self {
                bits as $type
            }
            fn to_bits(self) -> u64 {
                self.into()
            }
        }
    )*};
}

plain!(u8, u16, u32, u64);

impl Field for bool {
    fn from_bits(bits: u64) -> Self {
        bits != 0
    }
    fn to_bits(self) -> u64 {
        self.into()
    }
}

impl Field for Qpn {
    fn from_bits(bits: u64) -> Self {
        Qpn::from_field(bits as u32)
    }
    fn to_bits(self) -> u64 {
        self.value().into()
    }
}

impl Field for Psn {
    fn from_bits(bits: u64) -> Self {
        Psn::new(bits as u32)
    }
    fn to_bits(self) -> u64 {
        self.value().into()
    }
}

/// The `count` bits (at most 64) from bit `first` on; bit 0 is the highest of the first byte. The bytes are there: layouts
/// are constants, checked by tests.
pub(crate) fn read(bytes: &[u8], first: usize, count: usize) -> u64 {
    (first..first + count).fold(0, |value, bit| {
        value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1)
    })
}

/// The other way round; higher bits of `value` are left out.
pub(crate) fn write(bytes: &mut [u8], first: usize, count: usize, value: u64) {
    for step in 0..count {
        let bit = first + step;
        let mask = 0x80 >> (bit % 8);
        if value >> (count - 1 - step) & 1 == 1 {
            bytes[bit / 8] |= mask;
        } else {
            bytes[bit / 8] &= !mask;
        }
    }
}

/// Declares a part of a datagram once: the struct, its layout (`name: type = byte:bit, bits` and arrays at a byte),
/// reading and writing. Bits that no field claims are 0 on the way out and ignored on the way in.
macro_rules! layout {
    ($(
        $(#[$doc:meta])*
        $name:ident[$len:literal] {
            $($(#[$field_doc:meta])* $field:ident: $type:ty = $byte:literal : $bit:literal, $bits:literal;)*
            $(@bytes { $($(#[$array_doc:meta])* $array:ident: [$array_len:literal] = $array_at:literal;)* })?
            $(@parts { $($(#[$part_doc:meta])* $part:ident: $part_type:ty = $part_at:literal;)* })?
        }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            $($($(#[$array_doc])* pub $array: [u8; $array_len],)*)?
            $($($(#[$part_doc])* pub $part: $part_type,)*)?
        }

        impl $name {
            /// Bytes on the wire.
            pub const LEN: usize = $len;

            /// From its bytes; any bytes are one.
            pub fn read(bytes: &[u8; $len]) -> Self {
                Self {
                    $($field: $crate::fields::Field::from_bits(
                        $crate::fields::read(bytes, 8 * $byte + $bit, $bits),
                    ),)*
                    $($($array: *bytes[$array_at..].first_chunk().expect("layouts are constants"),)*)?
                    $($($part: <$part_type>::read(
                        bytes[$part_at..].first_chunk().expect("layouts are constants"),
                    ),)*)?
                }
            }

            /// Its bytes. Of a value that is wider than its field the low bits are written.
            pub fn write(&self, bytes: &mut [u8; $len]) {
                *bytes = [0; $len];
                $($crate::fields::write(
                    bytes, 8 * $byte + $bit, $bits, $crate::fields::Field::to_bits(self.$field),
                );)*
                $($(bytes[$array_at..$array_at + $array_len].copy_from_slice(&self.$array);)*)?
                $($(self.$part.write(
                    bytes[$part_at..].first_chunk_mut().expect("layouts are constants"),
                );)*)?
            }
        }

        impl Default for $name {
            /// All zero.
            fn default() -> Self {
                Self::read(&[0; $len])
            }
        }
    )*};
}
pub(crate) use layout;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_begin_and_end_at_any_bit() {
        let mut bytes = [0xff; 4];
        write(&mut bytes, 3, 7, 0);
        assert_eq!(bytes, [0xe0, 0x3f, 0xff, 0xff]);
        write(&mut bytes, 4, 20, 0x0_0001);
        assert_eq!(bytes, [0xe0, 0x00, 0x01, 0xff]);
        assert_eq!(read(&bytes, 4, 20), 1);
        assert_eq!(read(&bytes, 0, 32), 0xe000_01ff);
    }
}
