//! One end of a measurement: a device, a completion queue, a buffer and connected RC queue pairs.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};
use verbs_api::{
    Access, AddressVector, Buffer, CompletionChannel, CompletionQueue, Context, CqInit, Gid, MemoryRegion,
    Mtu, Notify, Payload, ProtectionDomain, Provider, QpAttr, QpCap, QpInit, QpState, QpType, QueuePair,
    RKey, RecvWr, RemoteAddr, SendFlags, SendOp, SendWr, Sge, SqSigType, Wc, WcStatus,
};

use crate::control::Control;

/// Sizes of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Queue pairs.
    pub qps: usize,
    /// Bytes of the registered buffer.
    pub buffer_bytes: usize,
    /// Sends and receives outstanding a queue pair.
    pub depth: u32,
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
    qps: Vec<u32>,
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
    pub qps: Vec<P::Qp>,
    pub cq: P::Cq,
    mr: P::Mr,
    channel: Option<P::Channel>,
    remote: Option<Identity>,
    gid: Gid,
    psn: u32,
    mtu: Mtu,
    events_seen: bool,
    _context: P::Context,
}

/// Attempts after the first, and the time between them: a vanished peer is noticed within about two seconds.
const TIMEOUT_CODE: u8 = 14;
const RETRY_COUNT: u8 = 7;

impl<P: Provider> Endpoint<P> {
    /// Open the provider's first device and create everything. `mtu` 0 takes the port's.
    pub fn open(provider: &P, sizes: Sizes, mtu: usize, waiting: Waiting) -> Result<Self> {
        let device = provider
            .devices()?
            .into_iter()
            .next()
            .context("the provider has no device")?;
        let context = provider.open(&device.name)?;
        let active = context.query_port(1)?.active_mtu;
        let mtu = match (mtu, Mtu::from_bytes(mtu)) {
            (0, _) => active,
            (_, Some(mtu)) if mtu <= active => mtu,
            (_, Some(_)) => bail!(
                "an MTU of {mtu} is above the {} bytes that the interface of {} carries; choose a smaller --mtu",
                active.bytes(),
                device.name
            ),
            (_, None) => bail!("{mtu} is no path MTU; choose one of 256, 512, 1024, 2048, 4096"),
        };
        let gid = context.query_gid(1, 0)?.gid;
        let pd = context.alloc_pd()?;
        let buffer = Buffer::new(sizes.buffer_bytes.max(8));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(&buffer, access)?;
        let channel = match waiting {
            Waiting::Polling => None,
            Waiting::Events => Some(context.create_channel()?),
        };
        let cqe = (2 * sizes.depth * sizes.qps as u32).max(16);
        let cq = context.create_cq(&CqInit {
            channel: channel.as_ref(),
            ..CqInit::new(cqe)
        })?;
        let cap = QpCap {
            max_send_wr: sizes.depth,
            max_recv_wr: sizes.depth,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let init = QpInit {
            qp_type: QpType::Rc,
            send_cq: Some(&cq),
            recv_cq: Some(&cq),
            srq: None,
            xrc_domain: None,
            cap,
            sq_sig: SqSigType::OnRequest,
        };
        let qps: Vec<P::Qp> = (0..sizes.qps)
            .map(|_| pd.create_qp(&init))
            .collect::<verbs_api::Result<_>>()?;
        for qp in &qps {
            qp.modify(&QpAttr {
                state: Some(QpState::Init),
                pkey_index: Some(0),
                port: Some(1),
                access: Some(access),
                ..Default::default()
            })?;
        }
        let psn = rand_psn();
        let endpoint = Endpoint::<P> {
            buffer,
            qps,
            cq,
            mr,
            channel,
            remote: None,
            gid,
            psn,
            mtu,
            events_seen: false,
            _context: context,
        };
        if waiting == Waiting::Events {
            endpoint.cq.req_notify(Notify::Any)?;
        }
        Ok(endpoint)
    }

    /// Exchange addresses with the peer and bring all queue pairs to RTS.
    pub fn connect(&mut self, control: &mut Control) -> Result<()> {
        control.send(&Identity {
            qps: self.qps.iter().map(|qp| qp.qpn()).collect(),
            psn: self.psn,
            gid: self.gid.0,
            mtu: self.mtu.bytes(),
            addr: self.mr.addr(),
            rkey: self.mr.rkey().0,
            length: self.mr.length(),
        })?;
        let remote: Identity = control.receive()?;
        if remote.qps.len() != self.qps.len() {
            bail!(
                "the peer has {} queue pairs, this end {}",
                remote.qps.len(),
                self.qps.len()
            );
        }
        let path_mtu =
            Mtu::from_bytes(remote.mtu.min(self.mtu.bytes())).context("the peer names an unknown MTU")?;
        for (qp, &dest_qpn) in self.qps.iter().zip(&remote.qps) {
            qp.modify(&QpAttr {
                state: Some(QpState::Rtr),
                av: Some(AddressVector {
                    dgid: Some(Gid(remote.gid)),
                    port: 1,
                    ..Default::default()
                }),
                path_mtu: Some(path_mtu),
                dest_qpn: Some(dest_qpn),
                rq_psn: Some(remote.psn),
                max_dest_rd_atomic: Some(16),
                min_rnr_timer: Some(12),
                ..Default::default()
            })?;
            qp.modify(&QpAttr {
                state: Some(QpState::Rts),
                timeout: Some(TIMEOUT_CODE),
                retry_cnt: Some(RETRY_COUNT),
                rnr_retry: Some(7),
                sq_psn: Some(self.psn),
                max_rd_atomic: Some(16),
                ..Default::default()
            })?;
        }
        self.remote = Some(remote);
        // Nobody sends before both ends can receive.
        control.send(&"ready")?;
        let _: String = control.receive()?;
        Ok(())
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
        let remote = self.remote.as_ref().expect("connected before use");
        RemoteAddr {
            addr: remote.addr + offset as u64,
            rkey: RKey(remote.rkey),
        }
    }

    /// Post one send on queue pair `qp`.
    pub fn post(&self, qp: usize, wr_id: u64, op: SendOp<'_, P>, sge: Sge, signaled: bool) -> Result<()> {
        let flags = if signaled {
            SendFlags::SIGNALED
        } else {
            SendFlags::empty()
        };
        let request = SendWr {
            wr_id,
            op,
            payload: Payload::Sges(&[sge]),
            flags,
            xrc_srqn: None,
        };
        Ok(self.qps[qp].post_send(&[request])?)
    }

    /// Post one receive on queue pair `qp`.
    pub fn post_recv(&self, qp: usize, wr_id: u64, sge: Sge) -> Result<()> {
        Ok(self.qps[qp].post_recv(&[RecvWr { wr_id, sges: &[sge] }])?)
    }

    /// Take completions that are there. An unsuccessful one is an error.
    pub fn poll(&self, out: &mut [Wc]) -> Result<usize> {
        let count = self.cq.poll(out)?;
        out[..count].iter().try_for_each(check)?;
        Ok(count)
    }

    /// Wait for completions; at least one. An unsuccessful one is an error, and so is a peer that vanishes.
    pub fn wait(&mut self, control: &mut Control, out: &mut [Wc]) -> Result<usize> {
        let mut empty_polls = 0u32;
        loop {
            let count = self.poll(out)?;
            if count > 0 {
                return Ok(count);
            }
            match &self.channel {
                None => {
                    empty_polls += 1;
                    if empty_polls.is_multiple_of(1024) {
                        control.check_peer()?;
                    }
                }
                Some(channel) if self.events_seen => {
                    self.cq.req_notify(Notify::Any)?;
                    self.events_seen = false;
                    let _ = channel;
                }
                Some(channel) => match channel.wait(Some(Duration::from_millis(100)))? {
                    Some(_) => self.events_seen = true,
                    None => control.check_peer()?,
                },
            }
        }
    }
}

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

fn rand_psn() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish() as u32
        & 0xff_ffff
}
