//! Work requests of a script.

use verbs_api::{
    Access, BindInfo, Error, MemoryRegion, Provider, QueuePair, RKey, RecvWr, RemoteAddr, SendFlags, SendOp,
    SendWr, Sge, SharedReceiveQueue,
};

use super::{LocalDut, Qp};
use crate::call::{Operation, Part, Reply, SendPlan};

impl<P: Provider> LocalDut<P> {
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

    pub(super) fn send(&mut self, name: &str, plan: &SendPlan) -> Result<Reply, Error> {
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

    pub(super) fn receive(&mut self, queue: &str, id: u64, parts: &[Part]) -> Result<Reply, Error> {
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
}
