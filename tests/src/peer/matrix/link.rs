//! One queue pair with a completion queue to sleep on.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use verbs_api::{
    Access, AddressVector, CompletionChannel, CompletionQueue, Connection, Context, CqInit, Gid,
    MemoryRegion, Notify, ProtectionDomain, Provider, QpCap, QpInit, QpType, QueuePair, RecvWr, SendOp,
    SendWr, Sge, Wc, WcStatus,
};

use super::bench::Bench;
use crate::peer::end::number;

/// Requests outstanding each way.
pub const DEPTH: u32 = 64;
/// READs and atomics outstanding each way.
const RD_ATOMIC: u8 = 4;
/// Longer than some ACK timeouts.
const LIMIT: Duration = Duration::from_secs(60);
/// Of UD queue pairs.
pub const QKEY: u32 = 0x1122_3344;

/// How a queue pair is connected.
#[derive(Debug, Clone, Copy)]
pub struct Terms {
    /// The number of the first packet that the listener sends; the caller begins 100 later.
    pub psn: u32,
    /// What the queue pairs permit.
    pub access: Access,
    /// Code of the time that a requester waits after an RNR NAK.
    pub min_rnr_timer: u8,
    /// RNR NAKs that a requester puts up with; 7 is any number.
    pub rnr_retry: u8,
}

impl Default for Terms {
    fn default() -> Self {
        Terms {
            psn: 0x12_3456,
            access: Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC,
            min_rnr_timer: 12,
            rnr_retry: 7,
        }
    }
}

/// A queue pair that can send and receive.
pub struct Link<P: Provider> {
    pub qp: P::Qp,
    /// The peer's number, of UD too.
    pub peer_qpn: u32,
    cq: P::Cq,
    channel: P::Channel,
}

impl<P: Provider> Link<P> {
    /// A queue pair, connected to one that the peer makes at the same time; of UD one that knows the peer's.
    pub fn connect(bench: &mut Bench<'_, P>, service: QpType, terms: Terms) -> Result<Self> {
        let channel = bench.context.create_channel()?;
        let cq = bench.context.create_cq(&CqInit {
            channel: Some(&channel),
            ..CqInit::new(2 * DEPTH)
        })?;
        let cap = QpCap {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            ..QpInit::<P>::rc(&cq).cap
        };
        let qp = bench.pd.create_qp(&QpInit {
            cap,
            qp_type: service,
            ..QpInit::rc(&cq)
        })?;
        qp.modify(&connection(bench, service, terms, 0).to_init())?;
        let psn = terms.psn
            + if bench.role == crate::peer::Role::Caller {
                100
            } else {
                0
            };
        let psn = psn & 0xff_ffff;
        let theirs = bench
            .talk
            .meet_with("qp", json!({ "qpn": qp.qpn(), "psn": psn }))?;
        let peer_qpn = u32::try_from(number(&theirs, "qpn")?)?;
        let peer_psn = u32::try_from(number(&theirs, "psn")?)?;
        let connection = Connection {
            sq_psn: psn,
            rq_psn: peer_psn,
            ..connection(bench, service, terms, peer_qpn)
        };
        qp.modify(&connection.to_rtr())?;
        qp.modify(&connection.to_rts())?;
        // Nobody sends before the peer can receive.
        bench.talk.meet("ready")?;
        Ok(Link {
            qp,
            peer_qpn,
            cq,
            channel,
        })
    }

    /// Posts a request that moves `length` bytes from or to `offset` of the own memory.
    pub fn post(
        &self,
        bench: &Bench<'_, P>,
        id: u64,
        op: SendOp<'_, P>,
        (offset, length): (usize, usize),
    ) -> Result<()> {
        let sges = [sge(bench, offset, length)?];
        Ok(self.qp.post_send(&[SendWr::new(id, op, &sges)])?)
    }

    /// Posts a receive for `length` bytes at `offset` of the own memory.
    pub fn post_recv(&self, bench: &Bench<'_, P>, id: u64, offset: usize, length: usize) -> Result<()> {
        let sges = [sge(bench, offset, length)?];
        Ok(self.qp.post_recv(&[RecvWr {
            wr_id: id,
            sges: &sges,
        }])?)
    }

    /// Sleeps until a completion is there.
    pub fn completion(&self) -> Result<Wc> {
        let deadline = Instant::now() + LIMIT;
        let mut one = [Wc::default()];
        loop {
            if self.cq.poll(&mut one)? == 1 {
                return Ok(one[0]);
            }
            // A completion that came before the arming raises no event.
            self.cq.req_notify(Notify::Any)?;
            if self.cq.poll(&mut one)? == 1 {
                return Ok(one[0]);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "no completion for {LIMIT:?}");
            self.channel.wait(Some(left))?;
        }
    }

    /// Waits for this many completions, all successful.
    pub fn successes(&self, count: usize) -> Result<Vec<Wc>> {
        let mut done = Vec::with_capacity(count);
        while done.len() < count {
            let wc = self
                .completion()
                .with_context(|| format!("{} of {count} are missing", count - done.len()))?;
            if wc.status != WcStatus::Success {
                bail!("work {} ended with {:?}", wc.wr_id, wc.status);
            }
            done.push(wc);
        }
        Ok(done)
    }
}

fn sge<P: Provider>(bench: &Bench<'_, P>, offset: usize, length: usize) -> Result<Sge> {
    Ok(Sge {
        addr: bench.buffer.addr() + offset as u64,
        length: u32::try_from(length)?,
        lkey: bench.mr.lkey(),
    })
}

/// The way from the own address to this one.
pub fn way_to<P: Provider>(bench: &Bench<'_, P>, gid: Gid) -> AddressVector {
    AddressVector {
        dgid: Some(gid),
        sgid_index: bench.gid_index,
        hop_limit: 64,
        port: 1,
        ..AddressVector::default()
    }
}

/// The connection of a queue pair to the peer's.
fn connection<P: Provider>(bench: &Bench<'_, P>, service: QpType, terms: Terms, dest_qpn: u32) -> Connection {
    Connection {
        access: match service {
            // Unreliable services know neither READ nor atomics.
            QpType::Uc => terms.access & Access::REMOTE_WRITE,
            _ => terms.access,
        },
        qkey: QKEY,
        path_mtu: bench.mtu,
        timeout: bench.timeout,
        rnr_retry: terms.rnr_retry,
        min_rnr_timer: terms.min_rnr_timer,
        max_rd_atomic: RD_ATOMIC,
        max_dest_rd_atomic: RD_ATOMIC,
        ..Connection::new(service, way_to(bench, bench.peer_gid), dest_qpn)
    }
}
