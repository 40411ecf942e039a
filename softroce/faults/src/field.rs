//! Fields of headers by their names, and how they are changed in place.

use roce_wire::{HeaderSet, Headers};

use crate::Change;

macro_rules! fields {
    ($($field:ident = $name:literal in $layer:ident at $bit:literal for $bits:literal,)*) => {
        /// A header field.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs)] // The names are those of the specification.
        pub enum Field { $($field,)* }

        impl Field {
            /// All of them.
            pub const ALL: &[Field] = &[$(Field::$field,)*];

            /// Its word.
            pub const fn name(self) -> &'static str {
                match self { $(Field::$field => $name,)* }
            }

            /// The header that has it, its first bit there, and its width.
            const fn place(self) -> (Layer, usize, usize) {
                match self { $(Field::$field => (Layer::$layer, $bit, $bits),)* }
            }
        }
    };
}

fields! {
    Opcode = "opcode" in Bth at 0 for 8,
    Solicited = "solicited" in Bth at 8 for 1,
    Migration = "migration" in Bth at 9 for 1,
    Pad = "pad" in Bth at 10 for 2,
    Version = "version" in Bth at 12 for 4,
    PKey = "pkey" in Bth at 16 for 16,
    Fecn = "fecn" in Bth at 32 for 1,
    Becn = "becn" in Bth at 33 for 1,
    DestQp = "dest_qp" in Bth at 40 for 24,
    AckRequest = "ack_request" in Bth at 64 for 1,
    Psn = "psn" in Bth at 72 for 24,
    Srq = "srq" in Xrc at 8 for 24,
    QKey = "qkey" in Deth at 0 for 32,
    SourceQp = "source_qp" in Deth at 40 for 24,
    Va = "va" in Remote at 0 for 64,
    RKey = "rkey" in Remote at 64 for 32,
    DmaLength = "dma_length" in Reth at 96 for 32,
    SwapOrAdd = "swap_or_add" in Atomic at 96 for 64,
    Compare = "compare" in Atomic at 160 for 64,
    Syndrome = "syndrome" in Aeth at 0 for 8,
    Msn = "msn" in Aeth at 8 for 24,
    Original = "original" in AtomicAck at 0 for 64,
    Immediate = "immediate" in Immediate at 0 for 32,
    Invalidate = "invalidate_rkey" in Invalidate at 0 for 32,
}

#[derive(Clone, Copy)]
enum Layer {
    Bth,
    Xrc,
    Deth,
    Reth,
    Atomic,
    /// RETH or AtomicETH, which begin alike.
    Remote,
    Aeth,
    AtomicAck,
    Immediate,
    Invalidate,
}

impl Layer {
    /// Its first byte in a packet with these headers, whose order on the wire is fixed.
    fn start(self, set: HeaderSet) -> Option<usize> {
        let only =
            |present: bool, start: HeaderSet| present.then_some(roce_wire::BTH_LEN + start.len_bytes());
        let front = HeaderSet {
            xrceth: set.xrceth,
            deth: set.deth,
            feth: set.feth,
            ..HeaderSet::NONE
        };
        let acknowledged = HeaderSet {
            reth: set.reth,
            atomic_eth: set.atomic_eth,
            aeth: set.aeth,
            ..front
        };
        let answered = HeaderSet {
            atomic_ack: set.atomic_ack,
            ..acknowledged
        };
        match self {
            Layer::Bth => Some(0),
            Layer::Xrc => only(set.xrceth, HeaderSet::NONE),
            Layer::Deth => only(
                set.deth,
                HeaderSet {
                    xrceth: set.xrceth,
                    ..HeaderSet::NONE
                },
            ),
            Layer::Reth => only(set.reth, front),
            Layer::Atomic => only(set.atomic_eth, front),
            Layer::Remote => only(set.reth || set.atomic_eth, front),
            Layer::Aeth => only(set.aeth, front),
            Layer::AtomicAck => only(set.atomic_ack, acknowledged),
            Layer::Immediate => only(set.immediate, answered),
            Layer::Invalidate => only(set.invalidate, answered),
        }
    }
}

impl Field {
    /// By its word.
    pub fn named(name: &str) -> Option<Field> {
        Field::ALL.iter().copied().find(|field| field.name() == name)
    }

    /// The largest number that it holds.
    pub const fn max(self) -> u64 {
        let (_, _, bits) = self.place();
        u64::MAX >> (u64::BITS as usize - bits)
    }

    /// Its first bit in a packet with these headers, and its width; `None` when the packet has no such field.
    fn locate(self, headers: &Headers) -> Option<(usize, usize)> {
        let set = headers
            .bth
            .opcode
            .info()
            .map_or(HeaderSet::NONE, |info| info.headers);
        let (layer, bit, bits) = self.place();
        Some((layer.start(set)? * 8 + bit, bits))
    }

    /// Whether such a packet has it.
    pub fn is_in(self, headers: &Headers) -> bool {
        self.locate(headers).is_some()
    }

    /// Change it in the bytes of a packet with these headers. Nothing happens where it is not.
    pub(crate) fn change(self, headers: &Headers, bytes: &mut [u8], change: Change) {
        let Some((first, bits)) = self.locate(headers) else {
            return;
        };
        if bytes.len() * 8 < first + bits {
            return;
        }
        let before = (first..first + bits).fold(0u64, |value, at| {
            value << 1 | u64::from(bytes[at / 8] >> (7 - at % 8) & 1)
        });
        let after = match change {
            Change::Set(value) => value,
            Change::Flip(mask) => before ^ mask,
            Change::Add(number) => before.wrapping_add_signed(number),
        };
        for (step, at) in (first..first + bits).rev().enumerate() {
            let mask = 0x80 >> (at % 8);
            match after >> step & 1 {
                0 => bytes[at / 8] &= !mask,
                _ => bytes[at / 8] |= mask,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use roce_wire::{AtomicEth, Bth, Ieth, ImmDt, Opcode, Psn, Qpn, RKey, Reth, Srqn, XrcEth};

    use super::*;

    fn changed(headers: &Headers, field: Field, change: Change) -> Headers {
        let mut bytes = [0; 64];
        let len = headers.emit(&mut bytes).unwrap();
        field.change(headers, &mut bytes[..len], change);
        Headers::parse(&bytes[..len]).unwrap().0
    }

    fn of(opcode: Opcode) -> Headers {
        Headers::new(Bth::new(opcode, Qpn::new(0x11).unwrap(), Psn::new(0xff_ffff)))
    }

    #[test]
    fn fields_of_every_layer_are_where_the_headers_have_them() {
        let psn = changed(&of(Opcode::RC_SEND_ONLY), Field::Psn, Change::Add(2));
        assert_eq!(psn.bth.psn, Psn::new(1));
        assert_eq!(psn.bth.dest_qp.value(), 0x11);
        let mut headers = of(Opcode::XRC_WRITE_ONLY_WITH_IMMEDIATE);
        headers.xrceth = Some(XrcEth {
            srq: Srqn::new(5).unwrap(),
        });
        headers.reth = Some(Reth {
            va: 0x1000,
            rkey: RKey(9),
            dma_length: 12,
        });
        headers.immediate = Some(ImmDt([1, 2, 3, 4]));
        let srq = changed(&headers, Field::Srq, Change::Set(6));
        assert_eq!(srq.xrceth.unwrap().srq.value(), 6);
        let length = changed(&headers, Field::DmaLength, Change::Flip(1));
        assert_eq!(length.reth.unwrap().dma_length, 13);
        let immediate = changed(&headers, Field::Immediate, Change::Set(0x0a0b_0c0d));
        assert_eq!(immediate.immediate, Some(ImmDt([10, 11, 12, 13])));
        assert_eq!(immediate.reth, headers.reth);
    }

    #[test]
    fn atomics_and_invalidations_have_theirs_and_others_have_not() {
        let mut headers = of(Opcode::RC_COMPARE_SWAP);
        headers.atomic_eth = Some(AtomicEth {
            va: 8,
            rkey: RKey(1),
            swap_or_add: 2,
            compare: 3,
        });
        let compare = changed(&headers, Field::Compare, Change::Add(-1));
        assert_eq!(compare.atomic_eth.unwrap().compare, 2);
        let rkey = changed(&headers, Field::RKey, Change::Set(7));
        assert_eq!(rkey.atomic_eth.unwrap().rkey, RKey(7));
        let mut headers = of(Opcode::RC_SEND_ONLY_WITH_INVALIDATE);
        headers.invalidate = Some(Ieth(RKey(4)));
        let invalidate = changed(&headers, Field::Invalidate, Change::Set(5));
        assert_eq!(invalidate.invalidate, Some(Ieth(RKey(5))));
        assert!(!Field::Immediate.is_in(&headers) && !Field::Syndrome.is_in(&headers));
        assert_eq!(changed(&headers, Field::Va, Change::Set(1)), headers);
    }

    #[test]
    fn every_field_is_found_by_its_name() {
        for field in Field::ALL {
            assert_eq!(Field::named(field.name()), Some(*field));
        }
    }
}
