//! The device under test: any provider, driven by [`Call`]s.

use std::collections::HashMap;

use verbs_api::{
    Access, AddressVector, BindInfo, Buffer, CompletionQueue, Context, CqInit, Error, EventSource, Gid,
    GidEntry, MemoryRegion, MemoryWindow, Mtu, MwType, Object, ProtectionDomain, Provider, QpAttr, QpCap,
    QpInit, QpState, QpType, QueuePair, RKey, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge,
    SharedReceiveQueue, SqSigType, SrqInit, Wc,
};

use crate::call::{Call, Change, Completion, Event, Operation, Part, QpPlan, Reply, SendPlan, Service};
use crate::names;

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
        let bytes = names::pattern(OUTBOX_SEED, OUTBOX_LEN as usize);
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

    /// A scatter/gather entry. It may reach beyond its region: scripts try that too.
    fn sge(&self, part: &Part) -> Result<Sge, Error> {
        let region = self.region(&part.region)?;
        let length = part.to.checked_sub(part.from).and_then(|l| u32::try_from(l).ok());
        let length = length.ok_or_else(|| Error::invalid("a part of a region ends before it begins"))?;
        Ok(Sge {
            addr: region.mr.addr().wrapping_add(part.from),
            length,
            lkey: region.mr.lkey(),
        })
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

    fn create_qp(&mut self, name: &str, plan: &QpPlan) -> Result<Reply, Error> {
        let srq = match &plan.srq {
            None => None,
            Some(name) => Some(self.srqs.get(name).ok_or_else(|| {
                Error::invalid(format!("no shared receive queue {name} is there (any more)"))
            })?),
        };
        let qp = self.pd.create_qp(&QpInit {
            qp_type: match plan.service {
                Service::Rc => QpType::Rc,
                Service::Uc => QpType::Uc,
                Service::Ud => QpType::Ud,
            },
            send_cq: Some(&self.cq),
            recv_cq: Some(&self.cq),
            srq,
            xrc_domain: None,
            cap: QpCap {
                max_send_wr: plan.max_send_wr,
                max_recv_wr: if srq.is_some() { 0 } else { plan.max_recv_wr },
                max_send_sge: 4,
                max_recv_sge: if srq.is_some() { 0 } else { 4 },
                max_inline_data: 64,
            },
            sq_sig: SqSigType::OnRequest,
        })?;
        let ah = match plan.service {
            Service::Ud => Some(self.pd.create_ah(&self.vector(plan))?),
            Service::Rc | Service::Uc => None,
        };
        let reply = Reply::Qp {
            qpn: qp.qpn(),
            gid: self.gid.gid.0,
        };
        let plan = plan.clone();
        self.qps.insert(name.to_owned(), Qp { qp, plan, ah });
        Ok(reply)
    }

    fn vector(&self, plan: &QpPlan) -> AddressVector {
        AddressVector {
            dgid: Some(Gid(plan.dgid)),
            sgid_index: self.gid.index as u8,
            hop_limit: plan.hop_limit,
            traffic_class: plan.traffic_class,
            port: self.gid.port,
            ..AddressVector::default()
        }
    }

    fn modify(&mut self, name: &str, change: &Change) -> Result<Reply, Error> {
        let state = match change.state {
            None => None,
            Some(code) => {
                Some(QpState::from_code(code).ok_or_else(|| Error::invalid(format!("no state {code}")))?)
            }
        };
        let qp = self.qp(name)?;
        let mut attr = match state {
            Some(state) => self.transition(&qp.plan, state)?,
            None => QpAttr::default(),
        };
        attr.timeout = change.timeout.or(attr.timeout);
        attr.retry_cnt = change.retry_cnt.or(attr.retry_cnt);
        attr.rnr_retry = change.rnr_retry.or(attr.rnr_retry);
        attr.min_rnr_timer = change.min_rnr_timer.or(attr.min_rnr_timer);
        attr.sq_psn = change.sq_psn.or(attr.sq_psn);
        attr.rq_psn = change.rq_psn.or(attr.rq_psn);
        attr.access = change.access.map(Access::from_bits_truncate).or(attr.access);
        qp.qp.modify(&attr)?;
        Ok(Reply::Done)
    }

    /// The attributes of the plan that a transition to `state` takes.
    fn transition(&self, plan: &QpPlan, state: QpState) -> Result<QpAttr, Error> {
        let (connected, reliable) = (plan.service != Service::Ud, plan.service == Service::Rc);
        let attr = QpAttr {
            state: Some(state),
            ..QpAttr::default()
        };
        Ok(match state {
            QpState::Init => QpAttr {
                pkey_index: Some(0),
                port: Some(self.gid.port),
                access: connected.then(|| Access::from_bits_truncate(plan.access)),
                qkey: (!connected).then_some(plan.qkey),
                ..attr
            },
            QpState::Rtr if connected => QpAttr {
                av: Some(self.vector(plan)),
                path_mtu: Some(
                    Mtu::from_bytes(plan.mtu as usize)
                        .ok_or_else(|| Error::invalid(format!("{} is no path MTU", plan.mtu)))?,
                ),
                dest_qpn: Some(plan.dest_qpn),
                rq_psn: Some(plan.rq_psn),
                max_dest_rd_atomic: reliable.then_some(plan.max_dest_rd_atomic),
                min_rnr_timer: reliable.then_some(plan.min_rnr_timer),
                ..attr
            },
            QpState::Rts => QpAttr {
                timeout: reliable.then_some(plan.timeout),
                retry_cnt: reliable.then_some(plan.retry_cnt),
                rnr_retry: reliable.then_some(plan.rnr_retry),
                sq_psn: Some(plan.sq_psn),
                max_rd_atomic: reliable.then_some(plan.max_rd_atomic),
                ..attr
            },
            _ => attr,
        })
    }

    fn send(&mut self, name: &str, plan: &SendPlan) -> Result<Reply, Error> {
        let qp = self.qp(name)?;
        let sges = plan
            .parts
            .iter()
            .map(|part| self.sge(part))
            .collect::<Result<Vec<_>, _>>()?;
        let op = self.operation(qp, &plan.operation)?;
        let request = match &plan.inline {
            Some(bytes) => SendWr::inline(plan.id, op, bytes),
            None => SendWr::new(plan.id, op, &sges),
        };
        let mut flags = SendFlags::empty();
        flags.set(SendFlags::SIGNALED, plan.signaled);
        flags.set(SendFlags::FENCE, plan.fence);
        flags.set(SendFlags::SOLICITED, plan.solicited);
        let posted = qp.qp.post_send(&[request.with_flags(flags)]);
        posted.map(|()| Reply::Done).map_err(|refused| refused.error)
    }

    fn operation<'a>(&'a self, qp: &'a Qp<P>, operation: &Operation) -> Result<SendOp<'a, P>, Error> {
        let remote = |addr: &u64, rkey: &u32| RemoteAddr {
            addr: *addr,
            rkey: RKey(*rkey),
        };
        Ok(match operation {
            Operation::Send { imm } => SendOp::Send { imm: *imm },
            Operation::SendWithInvalidate { rkey } => SendOp::SendWithInvalidate { rkey: RKey(*rkey) },
            Operation::SendTo { qpn, qkey, imm } => SendOp::SendTo {
                ah: qp
                    .ah
                    .as_ref()
                    .ok_or_else(|| Error::invalid("no datagram queue pair"))?,
                remote_qpn: *qpn,
                remote_qkey: *qkey,
                imm: *imm,
            },
            Operation::Write { addr, rkey, imm } => SendOp::Write {
                remote: remote(addr, rkey),
                imm: *imm,
            },
            Operation::Read { addr, rkey } => SendOp::Read {
                remote: remote(addr, rkey),
            },
            Operation::CompareSwap {
                addr,
                rkey,
                compare,
                swap,
            } => SendOp::CompareSwap {
                remote: remote(addr, rkey),
                compare: *compare,
                swap: *swap,
            },
            Operation::FetchAdd { addr, rkey, add } => SendOp::FetchAdd {
                remote: remote(addr, rkey),
                add: *add,
            },
            Operation::AtomicWrite { addr, rkey } => SendOp::AtomicWrite {
                remote: remote(addr, rkey),
            },
            Operation::LocalInvalidate { rkey } => SendOp::LocalInvalidate { rkey: RKey(*rkey) },
            Operation::BindMw {
                window,
                rkey,
                part,
                access,
            } => {
                let region = self.region(&part.region)?;
                SendOp::BindMw {
                    mw: self
                        .windows
                        .get(window)
                        .ok_or_else(|| Error::invalid(format!("no window {window} is there (any more)")))?,
                    rkey: RKey(*rkey),
                    bind: BindInfo {
                        mr: &region.mr,
                        addr: region.mr.addr().wrapping_add(part.from),
                        length: part.to.saturating_sub(part.from),
                        access: Access::from_bits_truncate(*access),
                    },
                }
            }
        })
    }

    fn receive(&mut self, queue: &str, id: u64, parts: &[Part]) -> Result<Reply, Error> {
        let sges = parts
            .iter()
            .map(|part| self.sge(part))
            .collect::<Result<Vec<_>, _>>()?;
        let request = [RecvWr {
            wr_id: id,
            sges: &sges,
        }];
        let posted = match self.srqs.get(queue) {
            Some(srq) => srq.post_recv(&request),
            None => self.qp(queue)?.qp.post_recv(&request),
        };
        posted.map(|()| Reply::Done).map_err(|refused| refused.error)
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
