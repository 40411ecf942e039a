//! One end: a device, a registered buffer, a completion queue to sleep on, and reliable connected queue pairs.

use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use verbs_api::{
    Access, AddressVector, Buffer, CompletionChannel, CompletionQueue, Connection, Context, CqInit, Gid,
    MemoryRegion, Mtu, Notify, Object, ProtectionDomain, Provider, QpAttr, QpCap, QpInit, QpState, QpType,
    QueuePair, RKey, RecvWr, RemoteAddr, SendOp, SendWr, Sge, Wc, WcStatus,
};

use crate::peer::line::Line;

/// How much of everything an end has.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Queue pairs.
    pub qps: usize,
    /// Requests outstanding in each direction of a queue pair.
    pub depth: u32,
    /// Bytes of the registered buffer.
    pub length: usize,
}

/// How queue pairs are connected.
#[derive(Debug, Clone, Copy)]
pub struct Path {
    /// ACK timeout exponent: 4.096 µs times two to this.
    pub timeout: u8,
    /// Attempts after the first.
    pub retry_cnt: u8,
    /// READs and atomics in flight, each way.
    pub rd_atomic: u8,
}

impl Path {
    /// The ACK timeout.
    pub fn ack_timeout(self) -> Duration {
        Duration::from_nanos(4096 << self.timeout)
    }
}

/// A connected peer's memory.
#[derive(Debug, Clone, Copy)]
struct Remote {
    va: u64,
    rkey: RKey,
}

/// One end of some connections to one peer.
#[derive(Debug)]
pub struct End<P: Provider> {
    /// The registered memory.
    pub buffer: Buffer,
    qps: Vec<P::Qp>,
    cq: P::Cq,
    channel: P::Channel,
    mr: P::Mr,
    gid: Gid,
    remote: Option<Remote>,
    pd: P::Pd,
    context: P::Context,
}

/// What the peer may do.
const REMOTE_ALL: Access = Access::REMOTE_WRITE
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC);
/// So many fit into the line's buffers, so that both ends may speak before they listen.
const GREETINGS_AT_ONCE: usize = 128;
/// Of the first queue pair; it wraps soon.
const PSN: u32 = 0xff_fff0;

impl<P: Provider> End<P> {
    /// Makes everything on the provider's first device, up to queue pairs in INIT.
    pub fn open(provider: &P, shape: Shape) -> Result<Self> {
        let cqes = 2 * shape.depth * u32::try_from(shape.qps)?;
        let mut end = Self::without_qps(provider, cqes, shape.length)?;
        end.add_qps(shape.qps, shape.depth)?;
        Ok(end)
    }

    /// Makes everything but the queue pairs: a completion queue of this size, a buffer of this length.
    pub fn without_qps(provider: &P, cqes: u32, length: usize) -> Result<Self> {
        let device = provider
            .devices()?
            .into_iter()
            .next()
            .context("the provider has no device")?;
        let context = provider.open(&device.name)?;
        let gid = context.query_gid(1, 0)?.gid;
        let (pd, channel) = (context.alloc_pd()?, context.create_channel()?);
        let buffer = Buffer::new(length);
        let mr = pd.reg_mr(&buffer, Access::LOCAL_WRITE | REMOTE_ALL)?;
        let init = CqInit {
            channel: Some(&channel),
            ..CqInit::new(cqes)
        };
        let cq = context.create_cq(&init)?;
        Ok(End {
            buffer,
            qps: Vec::new(),
            cq,
            channel,
            mr,
            gid,
            remote: None,
            pd,
            context,
        })
    }

    /// Makes this many queue pairs more, in INIT.
    pub fn add_qps(&mut self, count: usize, depth: u32) -> Result<()> {
        let cap = QpCap {
            max_send_wr: depth,
            max_recv_wr: depth,
            ..QpInit::<P>::rc(&self.cq).cap
        };
        let init = QpInit {
            cap,
            ..QpInit::rc(&self.cq)
        };
        for _ in 0..count {
            let qp = self.pd.create_qp(&init)?;
            qp.modify(&QpAttr {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(REMOTE_ALL),
                ..QpAttr::default()
            })?;
            self.qps.push(qp);
        }
        Ok(())
    }

    /// Destroys the queue pairs from number `first` on.
    pub fn destroy_qps(&mut self, first: usize) -> Result<()> {
        for qp in self.qps.drain(first..) {
            qp.destroy().map_err(|refused| refused.error)?;
        }
        Ok(())
    }

    /// Exchanges addresses with the peer, one greeting for each queue pair, and brings all of them to RTS.
    pub fn connect(&mut self, line: &mut Line, path: Path) -> Result<()> {
        self.connect_from(0, line, path)
    }

    /// The same for the queue pairs from number `first` on.
    pub fn connect_from(&mut self, first: usize, line: &mut Line, path: Path) -> Result<()> {
        let own_mtu = self.context.query_port(1)?.active_mtu;
        for some in self.qps[first..].chunks(GREETINGS_AT_ONCE) {
            for qp in some {
                line.tell_with("hello", self.hello(qp.qpn()))?;
            }
            for qp in some {
                let hello = line.hear("hello")?;
                self.connect_one(qp, &hello, path, own_mtu)?;
                let rkey = RKey(u32::try_from(number(&hello, "rkey")?)?);
                self.remote = Some(Remote {
                    va: number(&hello, "va")?,
                    rkey,
                });
            }
        }
        // Nobody sends before the peer can receive.
        line.tell("ready")?;
        line.hear("ready")?;
        Ok(())
    }

    fn hello(&self, qpn: u32) -> Value {
        json!({
            "qpn": qpn, "psn": PSN, "gid": eight_groups(self.gid), "va": self.mr.addr(), "rkey": self.mr.rkey().0,
            "length": self.buffer.len(),
        })
    }

    fn connect_one(&self, qp: &P::Qp, hello: &Value, path: Path, mtu: Mtu) -> Result<()> {
        let gid: Ipv6Addr = hello["gid"]
            .as_str()
            .context("the greeting has no gid")?
            .parse()?;
        let to_peer = AddressVector {
            dgid: Some(Gid(gid.octets())),
            port: 1,
            hop_limit: 64,
            ..AddressVector::default()
        };
        let connection = Connection {
            path_mtu: mtu.min(Mtu::Mtu1024),
            sq_psn: PSN,
            rq_psn: u32::try_from(number(hello, "psn")?)?,
            timeout: path.timeout,
            retry_cnt: path.retry_cnt,
            max_rd_atomic: path.rd_atomic,
            max_dest_rd_atomic: path.rd_atomic,
            ..Connection::new(QpType::Rc, to_peer, u32::try_from(number(hello, "qpn")?)?)
        };
        qp.modify(&connection.to_rtr())?;
        qp.modify(&connection.to_rts())?;
        Ok(())
    }

    /// The number of queue pair `index`.
    pub fn qpn(&self, index: usize) -> u32 {
        self.qps[index].qpn()
    }

    /// Completions that are there, at once: for who would rather spin than sleep.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize> {
        Ok(self.cq.poll(out)?)
    }

    /// The peer's memory at `offset`.
    pub fn remote(&self, offset: usize) -> Result<RemoteAddr> {
        let remote = self.remote.context("not connected")?;
        Ok(RemoteAddr {
            addr: remote.va + offset as u64,
            rkey: remote.rkey,
        })
    }

    fn sge(&self, offset: usize, length: usize) -> Result<Sge> {
        let length = u32::try_from(length)?;
        Ok(Sge {
            addr: self.buffer.addr() + offset as u64,
            length,
            lkey: self.mr.lkey(),
        })
    }

    /// Posts a request on queue pair `qp` that moves `length` bytes from or to `offset` of the own buffer.
    pub fn post(&self, qp: usize, id: u64, op: SendOp<'_, P>, offset: usize, length: usize) -> Result<()> {
        let sges = [self.sge(offset, length)?];
        Ok(self.qps[qp].post_send(&[SendWr::new(id, op, &sges)])?)
    }

    /// Posts a receive on queue pair `qp` for `length` bytes at `offset` of the own buffer.
    pub fn post_recv(&self, qp: usize, id: u64, offset: usize, length: usize) -> Result<()> {
        let sges = [self.sge(offset, length)?];
        Ok(self.qps[qp].post_recv(&[RecvWr {
            wr_id: id,
            sges: &sges,
        }])?)
    }

    /// Sleeps until at least one completion is there, at most `limit`; returns none when that is over.
    pub fn next(&self, out: &mut [Wc], limit: Duration) -> Result<usize> {
        let deadline = Instant::now() + limit;
        loop {
            let count = self.cq.poll(out)?;
            if count > 0 {
                return Ok(count);
            }
            // A completion that came before the arming raises no event.
            self.cq.req_notify(Notify::Any)?;
            let count = self.cq.poll(out)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if count > 0 || left.is_zero() {
                return Ok(count);
            }
            self.channel.wait(Some(left))?;
        }
    }

    /// Waits for this many completions, all successful.
    pub fn successes(&self, count: usize, limit: Duration) -> Result<Vec<Wc>> {
        let mut done = Vec::with_capacity(count);
        let mut batch = [Wc::default(); 32];
        while done.len() < count {
            let wanted = (count - done.len()).min(batch.len());
            let got = self.next(&mut batch[..wanted], limit)?;
            ensure!(
                got > 0,
                "{} of {count} completions are missing after {limit:?}",
                count - done.len()
            );
            for wc in &batch[..got] {
                if wc.status != WcStatus::Success {
                    bail!(
                        "work {} of queue pair {:#x} ended with {:?}",
                        wc.wr_id,
                        wc.qp_num,
                        wc.status
                    );
                }
                done.push(*wc);
            }
        }
        Ok(done)
    }
}

/// A field of a greeting that is a number.
pub(crate) fn number(object: &Value, name: &str) -> Result<u64> {
    object[name]
        .as_u64()
        .with_context(|| format!("no number `{name}` in {object}"))
}

/// A GID as eight groups of four digits, which every parser reads.
pub(crate) fn eight_groups(gid: Gid) -> String {
    let groups = Ipv6Addr::from(gid.0)
        .segments()
        .map(|group| format!("{group:04x}"));
    groups.join(":")
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::time::Duration;

    use verbs_api::Gid;

    use super::{Path, eight_groups};

    #[test]
    fn a_gid_is_written_in_full() {
        let gid = Gid::from(Ipv4Addr::new(192, 0, 2, 1));
        assert_eq!(eight_groups(gid), "0000:0000:0000:0000:0000:ffff:c000:0201");
    }

    #[test]
    fn the_ack_timeout_of_exponent_14_is_67_milliseconds() {
        let path = Path {
            timeout: 14,
            retry_cnt: 7,
            rd_atomic: 1,
        };
        assert_eq!(path.ack_timeout(), Duration::from_nanos(67_108_864));
    }
}
