//! The device under test: any provider, driven by [`Call`]s.

use std::collections::HashMap;

use verbs_api::{
    Access, Buffer, CompletionQueue, Context, CqInit, Error, EventSource, Gid, GidEntry, MemoryRegion,
    MemoryWindow, MwType, Object, ProtectionDomain, Provider, QueuePair, SrqInit, Wc, pattern,
};

use crate::call::{Call, Completion, Event, Part, QpPlan, Reply};

mod queue_pair;
mod request;

/// The region that sends without a part of a region take their bytes from.
pub const OUTBOX: &str = "";
/// Its bytes.
pub const OUTBOX_LEN: u64 = 1 << 16;
/// The seed of its pattern.
pub const OUTBOX_SEED: u64 = 1;

/// Objects that a script may have at a time.
const MOST_OBJECTS: usize = 256;
/// The largest region that a script may ask for.
const LARGEST_REGION: u64 = 1 << 26;

struct Qp<P: Provider> {
    qp: P::Qp,
    plan: QpPlan,
    ah: Option<P::Ah>,
}

struct Region<P: Provider> {
    mr: P::Mr,
    buffer: Buffer,
}

/// A device under test in this process.
pub struct LocalDut<P: Provider> {
    // Objects go before what they are made of.
    qps: HashMap<String, Qp<P>>,
    windows: HashMap<String, P::Mw>,
    regions: HashMap<String, Region<P>>,
    srqs: HashMap<String, P::Srq>,
    cq: P::Cq,
    pd: P::Pd,
    context: P::Context,
    gid: GidEntry,
}

impl<P: Provider> LocalDut<P> {
    /// The device, and which of its GIDs to use.
    pub fn new(context: P::Context, port: u8, gid_index: u32) -> Result<Self, Error> {
        let gid = context.query_gid(port, gid_index)?;
        let pd = context.alloc_pd()?;
        let cq = context.create_cq(&CqInit::new(1024))?;
        let mut dut = LocalDut {
            qps: HashMap::new(),
            windows: HashMap::new(),
            regions: HashMap::new(),
            srqs: HashMap::new(),
            cq,
            pd,
            context,
            gid,
        };
        dut.create_mr(OUTBOX, OUTBOX_LEN, Access::LOCAL_WRITE)?;
        let bytes = pattern(OUTBOX_SEED, OUTBOX_LEN as usize);
        dut.region(OUTBOX)?.buffer.write(0, &bytes);
        Ok(dut)
    }

    /// The GID in use.
    pub fn gid(&self) -> Gid {
        self.gid.gid
    }

    /// Does what is asked; a verb's refusal is an answer too.
    pub fn call(&mut self, call: &Call) -> Reply {
        self.try_call(call).unwrap_or_else(|error| Reply::Refused {
            errno: error.errno(),
            message: error.to_string(),
        })
    }

    fn try_call(&mut self, call: &Call) -> Result<Reply, Error> {
        let objects = self.qps.len() + self.windows.len() + self.regions.len() + self.srqs.len();
        let creates = matches!(
            call,
            Call::CreateQp { .. } | Call::CreateMr { .. } | Call::CreateMw { .. } | Call::CreateSrq { .. }
        );
        if creates && objects >= MOST_OBJECTS {
            return Err(Error::invalid(format!(
                "a script may have {MOST_OBJECTS} objects at a time"
            )));
        }
        match call {
            Call::CreateQp { name, plan } => self.create_qp(name, plan),
            Call::CreateMr { name, length, access } => {
                self.create_mr(name, *length, Access::from_bits_truncate(*access))
            }
            Call::CreateMw { name } => {
                let window = self.pd.alloc_mw(MwType::Type2)?;
                let rkey = window.rkey().0;
                self.windows.insert(name.clone(), window);
                Ok(Reply::Mw { rkey })
            }
            Call::CreateSrq { name, max_wr, limit } => {
                let srq = self.pd.create_srq(&SrqInit {
                    max_wr: *max_wr,
                    max_sge: 4,
                    limit: *limit,
                    cookie: self.srqs.len() as u64,
                    xrc: None,
                })?;
                self.srqs.insert(name.clone(), srq);
                Ok(Reply::Done)
            }
            Call::Send { qp, plan } => self.send(qp, plan),
            Call::Receive { queue, id, parts } => self.receive(queue, *id, parts),
            Call::Modify { qp, change } => self.modify(qp, change),
            Call::Destroy { name } => self.destroy(name),
            Call::State { qp } => Ok(Reply::State(self.qp(qp)?.qp.state()?.code())),
            Call::Poll => self.poll(),
            Call::Events => self.events(),
            Call::ReadMemory { part } => {
                let range = self.range(part)?;
                Ok(Reply::Bytes(self.region(&part.region)?.buffer.to_vec(range)))
            }
            Call::WriteMemory { region, from, bytes } => {
                let part = Part {
                    region: region.clone(),
                    from: *from,
                    to: from.saturating_add(bytes.len() as u64),
                };
                let range = self.range(&part)?;
                self.region(region)?.buffer.write(range.start, bytes);
                Ok(Reply::Done)
            }
        }
    }

    fn qp(&self, name: &str) -> Result<&Qp<P>, Error> {
        self.qps
            .get(name)
            .ok_or_else(|| Error::invalid(format!("no queue pair {name} is there (any more)")))
    }

    fn region(&self, name: &str) -> Result<&Region<P>, Error> {
        self.regions
            .get(name)
            .ok_or_else(|| Error::invalid(format!("no region {name} is there (any more)")))
    }

    /// The offsets of a part, which must lie within its region.
    fn range(&self, part: &Part) -> Result<std::ops::Range<usize>, Error> {
        let length = self.region(&part.region)?.buffer.len() as u64;
        if part.from > part.to || part.to > length {
            return Err(Error::invalid(format!(
                "{}[{}..{}] is no part of a region of {length} bytes",
                part.region, part.from, part.to
            )));
        }
        Ok(part.from as usize..part.to as usize)
    }

    fn create_mr(&mut self, name: &str, length: u64, access: Access) -> Result<Reply, Error> {
        if length > LARGEST_REGION {
            return Err(Error::invalid(format!(
                "a region of {length} bytes; a script's regions have at most {LARGEST_REGION}"
            )));
        }
        let buffer = Buffer::new(length as usize);
        let mr = self.pd.reg_mr(&buffer, access)?;
        let reply = Reply::Mr {
            addr: mr.addr(),
            lkey: mr.lkey().0,
            rkey: mr.rkey().0,
        };
        self.regions.insert(name.to_owned(), Region { mr, buffer });
        Ok(reply)
    }

    fn destroy(&mut self, name: &str) -> Result<Reply, Error> {
        /// Takes an object out and destroys it; a refused one goes back.
        fn remove<T, O: Object>(
            map: &mut HashMap<String, T>,
            name: &str,
            split: impl FnOnce(T) -> (O, Box<dyn FnOnce(O) -> T>),
        ) -> Option<Result<(), Error>>
        where
            T: 'static,
        {
            let (object, join) = split(map.remove(name)?);
            Some(object.destroy().map_err(|refused| {
                map.insert(name.to_owned(), join(refused.object));
                refused.error
            }))
        }
        let done = remove(&mut self.qps, name, |Qp { qp, plan, ah }| {
            (qp, Box::new(move |qp| Qp { qp, plan, ah }))
        })
        .or_else(|| {
            remove(&mut self.windows, name, |window| {
                (window, Box::new(|window| window))
            })
        })
        .or_else(|| {
            remove(&mut self.regions, name, |Region { mr, buffer }| {
                (mr, Box::new(move |mr| Region { mr, buffer }))
            })
        })
        .or_else(|| remove(&mut self.srqs, name, |srq| (srq, Box::new(|srq| srq))));
        match done {
            Some(done) => done.map(|()| Reply::Done),
            None => Err(Error::invalid(format!(
                "nothing called {name} is there (any more)"
            ))),
        }
    }

    fn poll(&mut self) -> Result<Reply, Error> {
        let mut out = [Wc::default(); 32];
        let count = self.cq.poll(&mut out)?;
        let completions = out[..count].iter().map(|wc| Completion {
            id: wc.wr_id,
            status: wc.status.code(),
            opcode: wc.opcode.code(),
            length: wc.byte_len,
            imm: wc.immediate(),
            inv: wc.invalidated_rkey().map(|key| key.0),
            qpn: wc.qp_num,
            src_qp: wc.src_qp,
        });
        Ok(Reply::Completions(completions.collect()))
    }

    fn events(&mut self) -> Result<Reply, Error> {
        let mut events = Vec::new();
        while let Some(guard) = self.context.async_event()? {
            let event = guard.event();
            events.push(Event {
                kind: event.kind.code(),
                qpn: match event.source {
                    EventSource::Qp(qpn) => Some(qpn),
                    _ => None,
                },
            });
        }
        Ok(Reply::Events(events))
    }
}
