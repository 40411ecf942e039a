//! Views: headers as the wire has them, every bit kept.
//!
//! Each is plain bytes in the layout of the specification (`#[repr(C)]`, big-endian, alignment 1). A view
//! judges nothing; any bytes of the right length are one. Reserved bits have fields too, so that a malformed
//! packet can be shown, and emitted again, in full.

use std::fmt;

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A big-endian 24-bit integer.
#[derive(Clone, Copy, PartialEq, Eq, Default, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(transparent)]
pub struct U24([u8; 3]);

impl U24 {
    /// Takes the low 24 bits.
    pub const fn new(value: u32) -> Self {
        let [_, a, b, c] = value.to_be_bytes();
        Self([a, b, c])
    }

    /// 0 to 0xff_ffff.
    pub const fn get(self) -> u32 {
        u32::from_be_bytes([0, self.0[0], self.0[1], self.0[2]])
    }
}

impl fmt::Debug for U24 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#08x}", self.get())
    }
}

/// Prints a field as hexadecimal in its full width.
trait HexField {
    fn hex(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;
}

macro_rules! hex_field {
    ($($type:ty: |$field:ident| $value:expr, $format:literal;)*) => {$(
        impl HexField for $type {
            fn hex(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let $field = self;
                write!(f, $format, $value)
            }
        }
    )*};
}

hex_field! {
    u8: |field| field, "{:#04x}";
    U16: |field| field.get(), "{:#06x}";
    U24: |field| field.get(), "{:#08x}";
    U32: |field| field.get(), "{:#010x}";
    U64: |field| field.get(), "{:#018x}";
}

struct Hex<'a>(&'a dyn HexField);

impl fmt::Debug for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hex(f)
    }
}

/// Declares a header once: the struct, its length, reading, writing and Debug; and lists it for the tests that
/// every header has to pass (`raw/tests.rs`).
macro_rules! headers {
    ($(
        $(#[$doc:meta])*
        $name:ident[$len:literal] { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, Default)]
            #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
            #[repr(C)]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }

            impl $name {
                /// Bytes on the wire.
                pub const LEN: usize = $len;

                /// The header at the start of `bytes` and the rest; `None` when they are too few.
                pub fn split_from(bytes: &[u8]) -> Option<(&Self, &[u8])> {
                    Self::ref_from_prefix(bytes).ok()
                }
            }

            const _: () = assert!(size_of::<$name>() == $len);

            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    f.debug_struct(stringify!($name))$(.field(stringify!($field), &Hex(&self.$field)))*.finish()
                }
            }
        )*

        /// For each header its view of `bytes` (long enough for any), printed, and the view's own bytes.
        #[cfg(test)]
        fn views_of(bytes: &[u8]) -> Vec<(String, Vec<u8>)> {
            vec![$({
                let (view, _) = $name::split_from(bytes).expect("the caller gives enough bytes");
                (format!("{view:?}"), view.as_bytes().to_vec())
            }),*]
        }
    };
}

headers! {
    /// Base transport header.
    Bth[12] {
        /// Opcode.
        opcode: u8,
        /// Solicited event, migration request, pad count (2 bits), transport version (4 bits).
        flags: u8,
        /// Partition key.
        pkey: U16,
        /// FECN, BECN, six reserved bits. The ICRC does not cover this byte.
        congestion: u8,
        /// Destination queue pair.
        dest_qp: U24,
        /// Acknowledge request, seven reserved bits.
        ack: u8,
        /// Packet sequence number.
        psn: U24,
    }
    /// FLUSH extended transport header.
    Feth[4] {
        /// 26 reserved bits, selectivity (2 bits), placement (4 bits).
        bits: U32,
    }
    /// RDMA extended transport header.
    Reth[16] {
        /// Virtual address.
        va: U64,
        /// Remote key.
        rkey: U32,
        /// Length of the whole message in bytes.
        dma_length: U32,
    }
    /// ACK extended transport header.
    Aeth[4] {
        /// Syndrome.
        syndrome: u8,
        /// Message sequence number.
        msn: U24,
    }
    /// Atomic extended transport header.
    AtomicEth[28] {
        /// Virtual address.
        va: U64,
        /// Remote key.
        rkey: U32,
        /// The value to swap in, or the one to add.
        swap_or_add: U64,
        /// The value to compare with; ignored for FETCH_ADD.
        compare: U64,
    }
    /// Atomic acknowledge extended transport header.
    AtomicAckEth[8] {
        /// What the memory held before.
        original: U64,
    }
    /// Immediate data.
    ImmDt[4] {
        /// Opaque to the transport.
        data: U32,
    }
    /// Invalidate extended transport header.
    Ieth[4] {
        /// The key to invalidate.
        rkey: U32,
    }
    /// Datagram extended transport header.
    Deth[8] {
        /// Queue key.
        qkey: U32,
        /// Reserved.
        reserved: u8,
        /// Source queue pair.
        source_qp: U24,
    }
    /// XRC extended transport header.
    XrcEth[4] {
        /// Reserved.
        reserved: u8,
        /// Shared receive queue.
        srq: U24,
    }
}

#[cfg(test)]
mod tests;
