//! The send queue: a ring of work requests, allocated once.

use roce_wire::{Qpn, Srqn};
use verbs_api::{Payload, QpCap, SendFlags, Sge, WcStatus};

use super::operation::{Operation, SendTail};
use crate::psn::Seq;
use crate::{Path, SendOperation, SendRequest};

/// Where a request's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// In this many entries of the ring's own array.
    Sges(u16),
    /// In the ring's inline room.
    Inline,
}

/// A request in the ring.
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
    source: Source,
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

/// The ring. Requests are named by a number that only grows.
#[derive(Debug)]
pub(crate) struct SendQueue {
    ring: Box<[SendWqe]>,
    sges: Box<[Sge]>,
    inline: Box<[u8]>,
    /// Where datagrams go, one a request; other services have none.
    destinations: Box<[Destination]>,
    depth: u32,
    max_sge: usize,
    max_inline: usize,
    /// Oldest request that is not complete.
    head: u64,
    /// The request of this number lies in the first place. An empty queue begins there again, so that one of many that
    /// are seldom used needs little of the processor's cache.
    base: u64,
    /// Next number to be posted.
    tail: u64,
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
    pub(crate) fn new(cap: &QpCap, has_destinations: bool) -> Self {
        let (depth, max_sge, max_inline) = (cap.max_send_wr, cap.max_send_sge, cap.max_inline_data);
        let slots = depth.max(1).next_power_of_two() as usize;
        let empty = SendWqe {
            wr_id: 0,
            op: Operation::Send {
                tail: SendTail::Plain,
            },
            flags: SendFlags::empty(),
            is_signaled: false,
            length: 0,
            srq: None,
            source: Source::Sges(0),
            first: Seq::default(),
            last: Seq::default(),
            is_asked_again: false,
        };
        SendQueue {
            ring: vec![empty; slots].into_boxed_slice(),
            sges: vec![Sge::default(); slots * max_sge as usize].into_boxed_slice(),
            inline: vec![0; slots * max_inline as usize].into_boxed_slice(),
            destinations: vec![Destination::default(); if has_destinations { slots } else { 0 }]
                .into_boxed_slice(),
            depth,
            max_sge: max_sge as usize,
            max_inline: max_inline as usize,
            head: 0,
            base: 0,
            tail: 0,
        }
    }

    fn slot(&self, number: u64) -> usize {
        ((number - self.base) & (self.ring.len() as u64 - 1)) as usize
    }

    pub(crate) fn head(&self) -> u64 {
        self.head
    }

    pub(crate) fn tail(&self) -> u64 {
        self.tail
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    pub(crate) fn get(&self, number: u64) -> &SendWqe {
        debug_assert!(self.head <= number && number < self.tail);
        &self.ring[self.slot(number)]
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> &mut SendWqe {
        debug_assert!(self.head <= number && number < self.tail);
        let slot = self.slot(number);
        &mut self.ring[slot]
    }

    /// Check a request and queue it, inline data included.
    pub(crate) fn push(
        &mut self,
        request: &SendRequest<'_>,
        mut op: Operation,
        is_signaled: bool,
    ) -> Result<(), Refusal> {
        if self.tail - self.head >= u64::from(self.depth) {
            return Err(Refusal::Full { depth: self.depth });
        }
        if self.head == self.tail {
            self.base = self.tail;
        }
        let slot = self.slot(self.tail);
        let payload = if op.has_payload() {
            request.payload
        } else {
            Payload::Sges(&[])
        };
        let (source, length) = match (payload, &mut op) {
            // It is as short as a key: it needs no room for inline data.
            (Payload::Inline(bytes), Operation::AtomicWrite { word, .. }) => {
                let given = bytes.len() as u64;
                *word = Some(bytes.try_into().map_err(|_| Refusal::NoWord { bytes: given })?);
                (Source::Sges(0), 8)
            }
            (Payload::Sges(sges), _) => {
                if sges.len() > self.max_sge {
                    return Err(Refusal::TooManySges {
                        given: sges.len(),
                        limit: self.max_sge,
                    });
                }
                let start = slot * self.max_sge;
                self.sges[start..start + sges.len()].copy_from_slice(sges);
                (
                    Source::Sges(sges.len() as u16),
                    sges.iter().map(|sge| u64::from(sge.length)).sum(),
                )
            }
            (Payload::Inline(bytes), _) => {
                if bytes.len() > self.max_inline {
                    return Err(Refusal::TooMuchInline {
                        given: bytes.len(),
                        limit: self.max_inline,
                    });
                }
                let start = slot * self.max_inline;
                self.inline[start..start + bytes.len()].copy_from_slice(bytes);
                (Source::Inline, bytes.len() as u64)
            }
        };
        if matches!(op, Operation::AtomicWrite { .. }) && length != 8 {
            return Err(Refusal::NoWord { bytes: length });
        }
        if length > MAX_MESSAGE_BYTES {
            return Err(Refusal::TooLong { bytes: length });
        }
        let wqe = &mut self.ring[slot];
        wqe.wr_id = request.wr_id;
        wqe.op = op;
        wqe.flags = request.flags;
        wqe.is_signaled = is_signaled;
        wqe.length = length as u32;
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
            self.destinations[slot] = Destination {
                path: Some(ah.path),
                qpn: Qpn::new(remote_qpn).unwrap_or_default(),
                qkey: remote_qkey,
            };
        }
        self.tail += 1;
        Ok(())
    }

    /// The oldest request is complete: free its place.
    pub(crate) fn pop(&mut self) -> SendWqe {
        let wqe = *self.get(self.head);
        self.head += 1;
        wqe
    }

    /// Forget the newest `count` requests, but none before number `begun_end`.
    pub(crate) fn withdraw(&mut self, count: u64, begun_end: u64) {
        let first = self.head.max(begun_end);
        self.tail -= count.min(self.tail.saturating_sub(first));
    }

    /// Forget everything.
    pub(crate) fn clear(&mut self) {
        self.head = self.tail;
    }

    /// Where a datagram goes.
    pub(crate) fn destination(&self, number: u64) -> &Destination {
        &self.destinations[self.slot(number)]
    }

    /// The inline bytes of a request, or its entries.
    pub(crate) fn data(&self, number: u64) -> Data<'_> {
        let slot = self.slot(number);
        let wqe = &self.ring[slot];
        match wqe.source {
            Source::Sges(count) => {
                let start = slot * self.max_sge;
                Data::Sges(&self.sges[start..start + usize::from(count)])
            }
            Source::Inline => {
                let start = slot * self.max_inline;
                Data::Inline(&self.inline[start..start + wqe.length as usize])
            }
        }
    }
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
