//! Extension headers as values. Each converts from and to its view in [`crate::raw`].

use crate::{FlushPlacement, FlushSelectivity, Msn, QKey, Qpn, RKey, Srqn, Syndrome, raw};

/// FLUSH extended transport header: what FLUSH makes sure of, and for which bytes. A RETH follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feth {
    /// What must be true of the bytes.
    pub placement: FlushPlacement,
    /// Which bytes.
    pub selectivity: FlushSelectivity,
}

/// RDMA extended transport header: where a WRITE goes or a READ comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// The key of the memory there.
    pub rkey: RKey,
    /// Bytes of the whole message; at most 2^31 (IBA C9-94), which the responder checks.
    pub dma_length: u32,
}

/// ACK extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aeth {
    /// ACK, RNR NAK or NAK, with its parameter.
    pub syndrome: Syndrome,
    /// How many messages the responder has completed.
    pub msn: Msn,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicEth {
    /// Virtual address at the responder, a multiple of eight.
    pub va: u64,
    /// The key of the memory there.
    pub rkey: RKey,
    /// The value to swap in (COMPARE_SWAP) or to add (FETCH_ADD).
    pub swap_or_add: u64,
    /// The value to compare with; FETCH_ADD ignores it.
    pub compare: u64,
}

/// Atomic acknowledge extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AtomicAckEth {
    /// What the memory held before the operation.
    pub original: u64,
}

/// Immediate data: four bytes handed to the receiver as they are, in network order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImmDt(pub [u8; 4]);

/// Invalidate extended transport header: the key that the receiver's side shall invalidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ieth(pub RKey);

/// Datagram extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deth {
    /// Must equal the receiving queue pair's.
    pub qkey: QKey,
    /// The sender's queue pair.
    pub source_qp: Qpn,
}

/// XRC extended transport header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XrcEth {
    /// The shared receive queue that serves this request.
    pub srq: Srqn,
}

/// Conversions in both directions; in each, every reserved bit is 0 on the way out and ignored on the way in.
macro_rules! conversions {
    ($($name:ident: |$view:ident| $value:expr, |$own:ident| $raw:expr;)*) => {$(
        impl From<&raw::$name> for $name {
            fn from($view: &raw::$name) -> Self {
                $value
            }
        }

        impl From<&$name> for raw::$name {
            fn from($own: &$name) -> Self {
                $raw
            }
        }
    )*};
}

conversions! {
    Feth:
        |view| Feth {
            placement: FlushPlacement::new(view.bits.get() as u8),
            selectivity: FlushSelectivity::new((view.bits.get() >> 4) as u8),
        },
        |own| raw::Feth {
            bits: u32::from(own.selectivity.value() << 4 | own.placement.value()).into(),
        };
    Reth:
        |view| Reth { va: view.va.get(), rkey: RKey(view.rkey.get()), dma_length: view.dma_length.get() },
        |own| raw::Reth { va: own.va.into(), rkey: own.rkey.0.into(), dma_length: own.dma_length.into() };
    Aeth:
        |view| Aeth { syndrome: Syndrome::new(view.syndrome), msn: Msn::new(view.msn.get()) },
        |own| raw::Aeth { syndrome: own.syndrome.value(), msn: raw::U24::new(own.msn.value()) };
    AtomicEth:
        |view| AtomicEth {
            va: view.va.get(),
            rkey: RKey(view.rkey.get()),
            swap_or_add: view.swap_or_add.get(),
            compare: view.compare.get(),
        },
        |own| raw::AtomicEth {
            va: own.va.into(),
            rkey: own.rkey.0.into(),
            swap_or_add: own.swap_or_add.into(),
            compare: own.compare.into(),
        };
    AtomicAckEth:
        |view| AtomicAckEth { original: view.original.get() },
        |own| raw::AtomicAckEth { original: own.original.into() };
    ImmDt:
        |view| ImmDt(view.data.to_bytes()),
        |own| raw::ImmDt { data: zerocopy::byteorder::big_endian::U32::from_bytes(own.0) };
    Ieth:
        |view| Ieth(RKey(view.rkey.get())),
        |own| raw::Ieth { rkey: own.0.0.into() };
    Deth:
        |view| Deth { qkey: QKey(view.qkey.get()), source_qp: Qpn::from_field(view.source_qp.get()) },
        |own| raw::Deth {
            qkey: own.qkey.0.into(),
            reserved: 0,
            source_qp: raw::U24::new(own.source_qp.value()),
        };
    XrcEth:
        |view| XrcEth { srq: Srqn::from_field(view.srq.get()) },
        |own| raw::XrcEth { reserved: 0, srq: raw::U24::new(own.srq.value()) };
}
