//! One end of a measurement: a device, a completion queue, a buffer and queue pairs that lead to the peer's.

mod attributes;
mod open;
mod service;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use verbs_api::{
    Buffer, CompletionChannel, CompletionQueue, Connection, Gid, MemoryRegion, Mtu, Notify, Payload,
    ProtectionDomain, Provider, QueuePair, RKey, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge,
    SharedReceiveQueue, Wc, WcStatus,
};

use crate::control::Control;
use attributes::{QKEY, address_vector, connection};
pub use service::{Kind, Service, Transport, check_told, check_told_mtu, check_told_switch, check_transport};

/// Sizes of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Queue pairs.
    pub qps: usize,
    /// Bytes of the registered buffer.
    pub buffer_bytes: usize,
    /// Bytes of the longest message.
    pub message_bytes: usize,
    /// Sends outstanding a queue pair.
    pub depth: u32,
    /// Receives outstanding a queue pair.
    pub recv_depth: u32,
}

/// How an endpoint waits for completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Waiting {
    /// Spin on the completion queue.
    Polling,
    /// Sleep on the completion channel.
    Events,
}

/// What the peer must know of an endpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Identity {
    /// Queue pairs that send.
    qps: Vec<u32>,
    /// Queue pairs that receive, in the same order; of all services but XRC they are the same.
    targets: Vec<u32>,
    /// Number of the shared receive queue (XRC).
    srqn: Option<u32>,
    psn: u32,
    gid: [u8; 16],
    mtu: usize,
    addr: u64,
    rkey: u32,
    length: u64,
}

/// One end.
pub struct Endpoint<P: Provider> {
    pub buffer: Buffer,
    /// Those that send, and receive too unless there are `targets`.
    pub qps: Vec<P::Qp>,
    pub cq: P::Cq,
    service: Service,
    /// XRC: those that receive.
    targets: Vec<P::Qp>,
    srq: Option<P::Srq>,
    /// Datagrams: the way to the peer.
    ah: Option<P::Ah>,
    /// Datagrams: where headers go that the card puts in front of messages.
    headroom: Option<(Buffer, P::Mr)>,
    mr: P::Mr,
    channel: Option<P::Channel>,
    remote: Option<Identity>,
    gid: Gid,
    psn: u32,
    mtu: Mtu,
    events_seen: bool,
    pd: P::Pd,
    _xrc_domain: Option<P::XrcDomain>,
    _context: P::Context,
}

impl<P: Provider> Endpoint<P> {
    /// Exchange addresses with the peer and bring all queue pairs to RTS.
    pub fn connect(&mut self, control: &mut Control) -> Result<()> {
        let numbers = |qps: &[P::Qp]| qps.iter().map(|qp| qp.qpn()).collect::<Vec<_>>();
        let receivers = if self.targets.is_empty() {
            &self.qps
        } else {
            &self.targets
        };
        control.send(&Identity {
            qps: numbers(&self.qps),
            targets: numbers(receivers),
            srqn: self.srq.as_ref().map(|srq| srq.srqn()),
            psn: self.psn,
            gid: self.gid.0,
            mtu: self.mtu.bytes(),
            addr: self.mr.addr(),
            rkey: self.mr.rkey().0,
            length: self.mr.length(),
        })?;
        let remote: Identity = control.receive()?;
        if remote.qps.len() != self.qps.len() || remote.targets.len() != self.qps.len() {
            bail!(
                "the peer has {} queue pairs, this end {}",
                remote.qps.len(),
                self.qps.len()
            );
        }
        let path_mtu =
            Mtu::from_bytes(remote.mtu.min(self.mtu.bytes())).context("the peer names an unknown MTU")?;
        let senders = self.qps.iter().zip(&remote.targets);
        for (qp, &qpn) in senders.chain(self.targets.iter().zip(&remote.qps)) {
            let connection = Connection {
                path_mtu,
                sq_psn: self.psn,
                rq_psn: remote.psn,
                ..connection(qp.qp_type(), Gid(remote.gid), qpn)
            };
            qp.modify(&connection.to_rtr())?;
            qp.modify(&connection.to_rts())?;
        }
        if self.service.transport == Transport::Ud {
            self.ah = Some(self.pd.create_ah(&address_vector(Gid(remote.gid)))?);
        }
        self.remote = Some(remote);
        // Nobody sends before both ends can receive.
        control.send(&"ready")?;
        let _: String = control.receive()?;
        Ok(())
    }

    fn peer(&self) -> &Identity {
        self.remote.as_ref().expect("connected before use")
    }

    /// The entry for a part of the own buffer.
    pub fn sge(&self, offset: usize, length: usize) -> Sge {
        Sge {
            addr: self.buffer.addr() + offset as u64,
            length: length as u32,
            lkey: self.mr.lkey(),
        }
    }

    /// An address in the peer's buffer.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        let remote = self.peer();
        RemoteAddr {
            addr: remote.addr + offset as u64,
            rkey: RKey(remote.rkey),
        }
    }

    /// A SEND on queue pair `qp`.
    pub fn send_op(&self, qp: usize, imm: Option<u32>) -> SendOp<'_, P> {
        match &self.ah {
            Some(ah) => SendOp::SendTo {
                ah,
                remote_qpn: self.peer().targets[qp],
                remote_qkey: QKEY,
                imm,
            },
            None => SendOp::Send { imm },
        }
    }

    /// A request with one entry.
    pub fn request<'a>(
        &self,
        wr_id: u64,
        op: SendOp<'a, P>,
        sges: &'a [Sge],
        signaled: bool,
    ) -> SendWr<'a, P> {
        SendWr {
            wr_id,
            op,
            payload: Payload::Sges(sges),
            flags: if signaled {
                SendFlags::SIGNALED
            } else {
                SendFlags::empty()
            },
            xrc_srqn: match self.service.transport {
                Transport::Xrc => self.peer().srqn,
                Transport::Rc | Transport::Uc | Transport::Ud => None,
            },
        }
    }

    /// Post one send on queue pair `qp`.
    pub fn post(&self, qp: usize, wr_id: u64, op: SendOp<'_, P>, sge: Sge, signaled: bool) -> Result<()> {
        Ok(self.qps[qp].post_send(&[self.request(wr_id, op, &[sge], signaled)])?)
    }

    /// Post `count` receives, each into `sge`, on queue pair `qp` or on the shared queue.
    pub fn post_recvs(&self, qp: usize, wr_id: u64, sge: Sge, count: usize) -> Result<()> {
        let headroom = self.headroom.as_ref().map(|(headers, mr)| Sge {
            addr: headers.addr(),
            length: headers.len() as u32,
            lkey: mr.lkey(),
        });
        let both = [headroom.unwrap_or(sge), sge];
        let sges = if headroom.is_some() { &both[..] } else { &both[1..] };
        let requests = [RecvWr { wr_id, sges }; RECEIVES_A_CALL];
        let mut left = count;
        while left > 0 {
            let list = &requests[..left.min(RECEIVES_A_CALL)];
            match &self.srq {
                Some(srq) => srq.post_recv(list)?,
                None => self.qps[qp].post_recv(list)?,
            }
            left -= list.len();
        }
        Ok(())
    }

    /// Bytes of a received message.
    pub fn message_bytes(&self, wc: &Wc) -> usize {
        (wc.byte_len as usize).saturating_sub(self.service.headroom_bytes())
    }

    /// Take completions that are there. An unsuccessful one is an error.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize> {
        let count = self.cq.poll(out)?;
        out[..count].iter().try_for_each(check)?;
        Ok(count)
    }

    /// Wait for completions; at least one. An unsuccessful one is an error, and so is a peer that vanishes.
    pub fn wait(&mut self, control: &mut Control, out: &mut [Wc]) -> Result<usize> {
        loop {
            let count = self.wait_until(control, out, None)?;
            if count > 0 {
                return Ok(count);
            }
        }
    }

    /// As [`Endpoint::wait`], but with a deadline, after which none have come (0).
    pub fn wait_until(
        &mut self,
        control: &mut Control,
        out: &mut [Wc],
        deadline: Option<Instant>,
    ) -> Result<usize> {
        let mut empty_polls = 0u32;
        loop {
            let count = self.poll(out)?;
            if count > 0 {
                return Ok(count);
            }
            match &self.channel {
                None => {
                    empty_polls += 1;
                    if !empty_polls.is_multiple_of(1024) {
                        continue;
                    }
                    control.check_peer()?;
                }
                Some(_) if self.events_seen => {
                    self.cq.req_notify(Notify::Any)?;
                    self.events_seen = false;
                    continue;
                }
                Some(channel) => {
                    let left = deadline.map_or(LOOK_AROUND, |at| {
                        at.saturating_duration_since(Instant::now()).min(LOOK_AROUND)
                    });
                    match channel.wait(Some(left))? {
                        Some(_) => {
                            self.events_seen = true;
                            continue;
                        }
                        None => control.check_peer()?,
                    }
                }
            }
            if deadline.is_some_and(|at| Instant::now() >= at) {
                return Ok(0);
            }
        }
    }
}

/// Receive requests posted with one call.
const RECEIVES_A_CALL: usize = 32;
/// How often a sleeping end looks whether its peer lives.
const LOOK_AROUND: Duration = Duration::from_millis(100);

fn check(wc: &Wc) -> Result<()> {
    match wc.status {
        WcStatus::Success => Ok(()),
        WcStatus::RetryExcErr => bail!(
            "the peer no longer answers (RETRY_EXC_ERR on queue pair {:#x})",
            wc.qp_num
        ),
        status => bail!(
            "request {} on queue pair {:#x} failed: {status:?}",
            wc.wr_id,
            wc.qp_num
        ),
    }
}
