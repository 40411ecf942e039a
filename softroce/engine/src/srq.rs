//! Shared receive queues: receive requests that several queue pairs take their messages' from.
//!
//! A request leaves the queue when a message begins, and the queue pair that took it holds it until the message is
//! complete; others take the next ones meanwhile. Its memory is that of the queue's protection domain, whoever takes it.
#![forbid(unsafe_code)]

use verbs_api::{Error, ErrorKind, RecvWr, Result, Sge, SrqAttr};

use crate::qp::{ReceivePools, ReceiveQueue, ReceiveRefusal, RecvWqe};
use crate::slots::SlotTable;
use crate::{CqId, PdId, SrqId, XrcDomainId};

/// Shared receive queues that an engine may hold.
const MAX_SRQ: u32 = 1 << 16;

/// What XRC adds to a shared receive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct XrcPart {
    /// Targets of this domain alone take requests out of it.
    pub(crate) domain: XrcDomainId,
    /// Where its receives complete.
    pub(crate) cq: CqId,
}

/// Whether taking a request brought the queue below its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Level {
    Fine,
    /// For the first time since the limit was set: raise SRQ_LIMIT_REACHED.
    LimitReached,
}

/// A shared receive queue.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueue {
    pub(crate) pd: PdId,
    pub(crate) xrc: Option<XrcPart>,
    queue: ReceiveQueue,
    max_sge: u32,
    /// 0 is off.
    limit: u32,
    /// Queue pairs that were created with it.
    users: u32,
}

impl SharedReceiveQueue {
    /// ENOMEM when there is no memory for so many requests.
    pub(crate) fn new(
        pools: &mut ReceivePools,
        pd: PdId,
        attr: &SrqAttr,
        xrc: Option<XrcPart>,
    ) -> Result<Self> {
        Ok(SharedReceiveQueue {
            pd,
            xrc,
            queue: ReceiveQueue::new(pools, attr.max_wr, attr.max_sge)?,
            max_sge: attr.max_sge,
            limit: attr.limit,
            users: 0,
        })
    }

    pub(crate) fn attr(&self) -> SrqAttr {
        SrqAttr {
            max_wr: self.queue.depth(),
            max_sge: self.max_sge,
            limit: self.limit,
        }
    }

    pub(crate) fn post(
        &mut self,
        pools: &mut ReceivePools,
        request: &RecvWr<'_>,
    ) -> Result<(), ReceiveRefusal> {
        self.queue.push(pools, request)
    }

    /// It is gone: give back what was reserved for it.
    pub(crate) fn release(&mut self, pools: &mut ReceivePools) {
        self.queue.release(pools);
    }

    /// How many requests it holds.
    pub(crate) fn queued(&self) -> u32 {
        self.queue.len()
    }

    /// The oldest request, which stays.
    pub(crate) fn front<'p>(&self, pools: &'p ReceivePools) -> Option<(RecvWqe, &'p [Sge])> {
        self.queue.front(pools)
    }

    /// Drop the oldest request: whoever looked at it has it now.
    pub(crate) fn advance(&mut self, pools: &mut ReceivePools) -> Level {
        self.queue.pop(pools);
        if self.queue.len() < self.limit {
            self.limit = 0;
            return Level::LimitReached;
        }
        Level::Fine
    }

    /// Change size and limit. EINVAL, and nothing changed, when what is queued does not fit or the limit is above the
    /// size; ENOMEM likewise when there is no memory for that.
    pub(crate) fn modify(
        &mut self,
        pools: &mut ReceivePools,
        max_wr: Option<u32>,
        limit: Option<u32>,
    ) -> Result<()> {
        let depth = max_wr.unwrap_or(self.queue.depth());
        let queued = self.queue.len();
        if depth < queued {
            return Err(Error::invalid(format!(
                "{queued} requests are queued; they do not fit a queue of {depth}"
            )));
        }
        // A limit that is on already is part of the queue's set-up too.
        let armed = limit.unwrap_or(self.limit);
        if armed > depth {
            return Err(Error::invalid(format!(
                "the limit of {armed} is above the queue's size of {depth}"
            )));
        }
        if depth != self.queue.depth() {
            self.queue.resize(pools, depth)?;
        }
        self.limit = armed;
        Ok(())
    }
}

/// The shared receive queues of an engine.
///
/// A queue's *number* goes over the wire (XRC). Like queue pair numbers they come from the engine's slice, so that
/// engines on one address have different ones; it is the slice's base and the queue's place in the table.
#[derive(Debug)]
pub(crate) struct SharedReceiveQueues {
    queues: SlotTable<SharedReceiveQueue, 16, 32>,
    /// The number of the queue in place 0. Number 0 is nobody's.
    first_number: u32,
}

impl SharedReceiveQueues {
    /// Numbers are drawn from `base .. base + count`.
    pub(crate) fn new(base: u32, count: u32) -> Self {
        let first_number = base.max(1);
        let end = base.saturating_add(count).min(1 << 24);
        let limit = end.saturating_sub(first_number).min(MAX_SRQ);
        SharedReceiveQueues {
            queues: SlotTable::new(limit as usize),
            first_number,
        }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.queues.len()
    }

    /// How many there may be.
    pub(crate) fn limit(&self) -> u32 {
        self.queues.limit() as u32
    }

    /// Store a queue: its id and its number. ENOMEM at the device's limit.
    pub(crate) fn insert(&mut self, queue: SharedReceiveQueue) -> Result<(SrqId, u32)> {
        let limit = self.limit();
        let id = self.queues.insert(queue).map_err(|_| full(limit))?;
        Ok((SrqId(id), self.first_number + self.queues.place(id)))
    }

    /// ENOMEM at the device's limit.
    pub(crate) fn check_room(&self) -> Result<()> {
        if self.len() == self.queues.limit() {
            return Err(full(self.limit()));
        }
        Ok(())
    }

    /// Take a queue out. EBUSY while a queue pair uses it.
    pub(crate) fn remove(&mut self, srq: SrqId) -> Result<SharedReceiveQueue> {
        let users = self.known(srq)?.users;
        if users > 0 {
            return Err(Error::new(
                ErrorKind::Busy,
                format!("{users} queue pairs use this shared receive queue; destroy them first"),
            ));
        }
        self.queues.remove(srq.0).ok_or_else(|| unknown(srq))
    }

    pub(crate) fn get(&self, srq: SrqId) -> Option<&SharedReceiveQueue> {
        self.queues.get(srq.0)
    }

    pub(crate) fn get_mut(&mut self, srq: SrqId) -> Option<&mut SharedReceiveQueue> {
        self.queues.get_mut(srq.0)
    }

    /// As [`Self::get`]; EINVAL when there is none.
    pub(crate) fn known(&self, srq: SrqId) -> Result<&SharedReceiveQueue> {
        self.queues.get(srq.0).ok_or_else(|| unknown(srq))
    }

    /// As [`Self::get_mut`]; EINVAL when there is none.
    pub(crate) fn known_mut(&mut self, srq: SrqId) -> Result<&mut SharedReceiveQueue> {
        self.queues.get_mut(srq.0).ok_or_else(|| unknown(srq))
    }

    /// The queue that has this number on the wire.
    pub(crate) fn numbered(&self, number: u32) -> Option<(SrqId, &SharedReceiveQueue)> {
        let id = self.queues.id_at(number.checked_sub(self.first_number)?)?;
        Some((SrqId(id), self.queues.get(id)?))
    }

    /// Count one more queue pair that uses it. EINVAL when there is no such queue, or it is one of XRC.
    pub(crate) fn retain(&mut self, srq: SrqId) -> Result<()> {
        let queue = self.known_mut(srq)?;
        if queue.xrc.is_some() {
            return Err(Error::invalid(
                "an XRC shared receive queue serves XRC targets alone, which name it in their packets",
            ));
        }
        queue.users += 1;
        Ok(())
    }

    /// Count one less; every call pairs with a [`Self::retain`].
    pub(crate) fn release(&mut self, srq: SrqId) {
        let queue = self.queues.get_mut(srq.0).expect("a used queue exists");
        queue.users = queue.users.checked_sub(1).expect("a release pairs with a retain");
    }
}

fn full(limit: u32) -> Error {
    Error::new(
        ErrorKind::NoMemory,
        format!("all {limit} shared receive queues are in use"),
    )
}

fn unknown(srq: SrqId) -> Error {
    Error::invalid(format!(
        "there is no shared receive queue {:#x} (destroyed already, or of another device)",
        srq.0
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> SharedReceiveQueue {
        let attr = SrqAttr {
            max_wr: 4,
            max_sge: 1,
            limit: 0,
        };
        SharedReceiveQueue::new(&mut ReceivePools::new(), PdId(0), &attr, None).unwrap()
    }

    #[test]
    fn a_number_is_found_until_its_queue_is_gone_and_lies_in_the_slice() {
        let mut table = SharedReceiveQueues::new(0x100, 2);
        let (a, number_a) = table.insert(queue()).unwrap();
        let (b, number_b) = table.insert(queue()).unwrap();
        assert_eq!((number_a, number_b), (0x100, 0x101));
        assert_eq!(
            table.insert(queue()).map(|_| ()).unwrap_err().kind(),
            ErrorKind::NoMemory
        );
        assert_eq!(table.numbered(number_b).map(|(id, _)| id), Some(b));
        table.remove(a).unwrap();
        assert!(table.numbered(number_a).is_none());
        for foreign in [0, 0xff, 0x102, 0xff_ffff] {
            assert!(table.numbered(foreign).is_none(), "{foreign:#x}");
        }
    }

    #[test]
    fn numbers_are_never_0_and_fit_24_bits() {
        let (_, number) = SharedReceiveQueues::new(0, 8).insert(queue()).unwrap();
        assert_eq!(number, 1);
        assert_eq!(SharedReceiveQueues::new(0, 1).limit(), 0);
        assert_eq!(SharedReceiveQueues::new(0xff_fffe, 64).limit(), 2);
    }
}
