//! The send queue: a ring of work requests.
#![forbid(unsafe_code)]

use roce_wire::{Qpn, Srqn};
use verbs_api::{Payload, QpCap, SendFlags, Sge, WcStatus};

use super::operation::Operation;
use super::send_store::{SendPools, SendShape};
use crate::mutants::{Mutant, is_on};
use crate::pool::Ring;
use crate::psn::Seq;
use crate::{Path, SendOperation, SendRequest};

/// Where a request's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// In this many entries of the queue's room for them.
    Sges(u16),
    /// In the queue's inline room.
    Inline,
}

/// A request in the queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendWqe {
    pub(crate) wr_id: u64,
    pub(crate) op: Operation,
    pub(crate) flags: SendFlags,
    /// Whether its success is reported.
    pub(crate) is_signaled: bool,
    /// Bytes of the whole message.
    pub(crate) length: u32,
    /// XRC: the shared receive queue that it is for.
    pub(crate) srq: Option<Srqn>,
    pub(super) source: Source,
    /// First and last PSN; valid once the request has begun.
    pub(crate) first: Seq,
    pub(crate) last: Seq,
    /// READ only: it was asked for again, so answers to the old question may still arrive.
    pub(crate) is_asked_again: bool,
}

/// Where a datagram goes, and the key that opens the receiver.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Destination {
    /// `None` only where no request stands.
    pub(crate) path: Option<Path>,
    pub(crate) qpn: Qpn,
    /// As it was posted.
    pub(crate) qkey: u32,
}

/// The queue. Requests are named by a number that only grows; they lie in the engine's [`SendPools`].
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Ring,
}

/// Why a request does not fit the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Full {
        depth: u32,
    },
    TooManySges {
        given: usize,
        limit: usize,
    },
    TooMuchInline {
        given: usize,
        limit: usize,
    },
    /// The payload of an ATOMIC WRITE is not one word.
    NoWord {
        bytes: u64,
    },
    TooLong {
        bytes: u64,
    },
}

/// The longest message of any kind, bytes (IBA C9-94).
pub(crate) const MAX_MESSAGE_BYTES: u64 = 1 << 31;

impl SendQueue {
    /// Reserve what the queue may hold. ENOMEM when there is no memory for that.
    pub(crate) fn new(pools: &mut SendPools, cap: &QpCap, has_destinations: bool) -> verbs_api::Result<Self> {
        let shape = SendShape {
            max_sge: cap.max_send_sge as usize,
            max_inline: cap.max_inline_data as usize,
            has_destinations,
        };
        let share = pools.join(shape, cap.max_send_wr)?;
        Ok(SendQueue {
            ring: Ring::new(share, cap.max_send_wr),
        })
    }

    /// Forget everything, and what was reserved: the queue is gone.
    pub(crate) fn release(&mut self, pools: &mut SendPools) {
        self.clear(pools);
        pools.leave(self.ring.share());
    }

    #[inline]
    pub(crate) fn head(&self) -> u64 {
        self.ring.head()
    }

    #[inline]
    pub(crate) fn tail(&self) -> u64 {
        self.ring.tail()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    #[inline]
    pub(crate) fn get<'p>(&self, pools: &'p SendPools, number: u64) -> &'p SendWqe {
        let slot = self.ring.slot(number);
        &pools.get(self.ring.share()).store().wqes[slot]
    }

    #[inline]
    pub(crate) fn get_mut<'p>(&self, pools: &'p mut SendPools, number: u64) -> &'p mut SendWqe {
        let slot = self.ring.slot(number);
        &mut pools.get_mut(self.ring.share()).store_mut().wqes[slot]
    }

    /// Check a request and queue it, inline data included.
    pub(crate) fn push(
        &mut self,
        pools: &mut SendPools,
        request: &SendRequest<'_>,
        mut op: Operation,
        is_signaled: bool,
    ) -> Result<(), Refusal> {
        if self.ring.is_full() {
            return Err(Refusal::Full {
                depth: self.ring.depth(),
            });
        }
        let pool = pools.get_mut(self.ring.share());
        let payload = if op.has_payload() {
            request.payload
        } else {
            Payload::Sges(&[])
        };
        let (source, length) = check_payload(&pool.store().shape, payload, &mut op)?;
        let slot = self.ring.push(pool);
        let store = pool.store_mut();
        match (source, payload) {
            (Source::Inline, Payload::Inline(bytes)) => {
                store.inline_mut(slot)[..bytes.len()].copy_from_slice(bytes)
            }
            (Source::Sges(_), Payload::Sges(sges)) => {
                store.sges_mut(slot)[..sges.len()].copy_from_slice(sges)
            }
            // The word of an ATOMIC WRITE stands in the operation.
            (Source::Sges(_), Payload::Inline(_)) | (Source::Inline, Payload::Sges(_)) => {}
        }
        let wqe = &mut store.wqes[slot];
        wqe.wr_id = request.wr_id;
        wqe.op = op;
        wqe.flags = request.flags;
        wqe.is_signaled = is_signaled;
        wqe.length = length;
        wqe.srq = request.xrc_srqn.and_then(Srqn::new);
        wqe.source = source;
        wqe.is_asked_again = false;
        if let SendOperation::SendTo {
            ah,
            remote_qpn,
            remote_qkey,
            ..
        } = request.op
        {
            store.destinations[slot] = Destination {
                path: Some(ah.path),
                qpn: Qpn::new(remote_qpn).unwrap_or_default(),
                qkey: remote_qkey,
            };
        }
        Ok(())
    }

    /// The oldest request is complete: free its place.
    pub(crate) fn pop(&mut self, pools: &mut SendPools) -> SendWqe {
        let wqe = *self.get(pools, self.ring.head());
        self.ring.pop(pools.get_mut(self.ring.share()));
        wqe
    }

    /// Forget the newest `count` requests, but none before number `begun_end`.
    pub(crate) fn withdraw(&mut self, pools: &mut SendPools, count: u64, begun_end: u64) {
        let first = self.head().max(begun_end);
        for _ in 0..count.min(self.tail().saturating_sub(first)) {
            self.ring.unpush(pools.get_mut(self.ring.share()));
        }
    }

    /// Forget everything.
    pub(crate) fn clear(&mut self, pools: &mut SendPools) {
        self.ring.clear(pools.get_mut(self.ring.share()));
    }

    /// Where a datagram goes.
    pub(crate) fn destination<'p>(&self, pools: &'p SendPools, number: u64) -> &'p Destination {
        &pools.get(self.ring.share()).store().destinations[self.ring.slot(number)]
    }

    /// The inline bytes of a request, or its entries.
    pub(crate) fn data<'p>(&self, pools: &'p SendPools, number: u64) -> Data<'p> {
        let slot = self.ring.slot(number);
        let store = pools.get(self.ring.share()).store();
        let wqe = &store.wqes[slot];
        match wqe.source {
            Source::Sges(count) => Data::Sges(&store.sges(slot)[..usize::from(count)]),
            Source::Inline => Data::Inline(&store.inline(slot)[..wqe.length as usize]),
        }
    }
}

/// Where a request's bytes will be, and how many they are, if queues of this shape have room for it.
fn check_payload(
    shape: &SendShape,
    payload: Payload<'_>,
    op: &mut Operation,
) -> Result<(Source, u32), Refusal> {
    let (source, length) = match (payload, &mut *op) {
        // It is as short as a key: it needs no room for inline data.
        (Payload::Inline(bytes), Operation::AtomicWrite { word, .. }) => {
            let given = bytes.len() as u64;
            *word = Some(bytes.try_into().map_err(|_| Refusal::NoWord { bytes: given })?);
            (Source::Sges(0), 8)
        }
        (Payload::Sges(sges), _) => {
            let (given, limit) = (sges.len(), shape.max_sge);
            if given > limit && is_on(Mutant::EntriesAreNotCounted) {
                return Ok((Source::Inline, 0));
            }
            if given > limit {
                return Err(Refusal::TooManySges { given, limit });
            }
            let length = sges.iter().map(|sge| u64::from(sge.length)).sum();
            (Source::Sges(given as u16), length)
        }
        (Payload::Inline(bytes), _) => {
            let (given, limit) = (bytes.len(), shape.max_inline);
            if given > limit {
                return Err(Refusal::TooMuchInline { given, limit });
            }
            (Source::Inline, given as u64)
        }
    };
    if matches!(op, Operation::AtomicWrite { .. }) && length != 8 {
        return Err(Refusal::NoWord { bytes: length });
    }
    if length > MAX_MESSAGE_BYTES {
        return Err(Refusal::TooLong { bytes: length });
    }
    Ok((source, length as u32))
}

/// A request's bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Data<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
}

/// A request that cannot go on. It fails once all requests before it are complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LocalFault {
    pub(crate) number: u64,
    pub(crate) status: WcStatus,
}

/// Packets that a message of `length` bytes takes: one even when it is empty.
pub(crate) fn packets_of(length: u32, mtu: u32) -> u32 {
    length.div_ceil(mtu).max(1)
}
