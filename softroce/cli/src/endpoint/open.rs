//! Opening an endpoint: everything that needs no peer.

use anyhow::{Context as _, Result, bail};
use verbs_api::{
    Access, Buffer, CompletionQueue, Connection, Context, CqInit, Gid, Mtu, Notify, ProtectionDomain,
    Provider, QpCap, QpInit, QpType, QueuePair, SqSigType, SrqInit,
};

use super::attributes::connection;
use super::{Endpoint, Service, Sizes, Transport, Waiting};

/// What all queue pairs of an endpoint are made from.
struct Parts<'a, P: Provider> {
    pd: &'a P::Pd,
    cq: &'a P::Cq,
    srq: Option<&'a P::Srq>,
    xrc_domain: Option<&'a P::XrcDomain>,
    cap: QpCap,
    access: Access,
}

impl<P: Provider> Parts<'_, P> {
    /// Queue pairs in INIT.
    fn queue_pairs(&self, qp_type: QpType, count: usize) -> Result<Vec<P::Qp>> {
        let is_target = qp_type == QpType::XrcTarget;
        let receives = qp_type != QpType::XrcInitiator && !is_target;
        let init = QpInit {
            qp_type,
            send_cq: Some(self.cq).filter(|_| !is_target),
            recv_cq: Some(self.cq).filter(|_| receives),
            srq: self.srq.filter(|_| receives),
            xrc_domain: self.xrc_domain.filter(|_| is_target),
            cap: self.cap,
            sq_sig: SqSigType::OnRequest,
        };
        let connection = Connection {
            access: match qp_type {
                // It has nothing but WRITE to permit.
                QpType::Uc => self.access & (Access::LOCAL_WRITE | Access::REMOTE_WRITE),
                _ => self.access,
            },
            ..connection(qp_type, Gid::default(), 0)
        };
        (0..count)
            .map(|_| {
                let qp = self.pd.create_qp(&init)?;
                qp.modify(&connection.to_init())?;
                Ok(qp)
            })
            .collect()
    }
}

impl<P: Provider> Endpoint<P> {
    /// Open the provider's first device and create everything. `mtu` 0 takes the port's.
    pub fn open(provider: &P, service: Service, sizes: Sizes, mtu: usize, waiting: Waiting) -> Result<Self> {
        let context = first_device(provider)?;
        let mtu = usable_mtu(mtu, context.query_port(1)?.active_mtu, context.name())?;
        check_size(service, sizes, mtu)?;
        let gid = context.query_gid(1, 0)?.gid;
        let pd = context.alloc_pd()?;
        let buffer = Buffer::new(sizes.buffer_bytes.max(8));
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        let mr = pd.reg_mr(&buffer, access)?;
        let headroom = headroom::<P>(&pd, service)?;
        let channel = match waiting {
            Waiting::Polling => None,
            Waiting::Events => Some(context.create_channel()?),
        };
        let cq = context.create_cq(&CqInit {
            channel: channel.as_ref(),
            ..CqInit::new(completions(sizes))
        })?;
        let recv_sges = 1 + u32::from(headroom.is_some());
        let xrc_domain = match service.transport {
            Transport::Xrc => Some(context.open_xrc_domain(None)?),
            Transport::Rc | Transport::Uc | Transport::Ud => None,
        };
        let srq = match service.has_shared_receives() {
            true => Some(pd.create_srq(&SrqInit {
                max_wr: sizes.recv_depth * sizes.qps as u32,
                max_sge: recv_sges,
                limit: 0,
                cookie: 0,
                xrc: xrc_domain.as_ref().map(|domain| (domain, &cq)),
            })?),
            false => None,
        };
        let parts = Parts::<P> {
            pd: &pd,
            cq: &cq,
            srq: srq.as_ref(),
            xrc_domain: xrc_domain.as_ref(),
            cap: capacity(sizes, recv_sges, srq.is_some()),
            access,
        };
        let qps = parts.queue_pairs(service.sender_type(), sizes.qps)?;
        let targets = match service.transport {
            Transport::Xrc => parts.queue_pairs(QpType::XrcTarget, sizes.qps)?,
            Transport::Rc | Transport::Uc | Transport::Ud => Vec::new(),
        };
        if waiting == Waiting::Events {
            cq.req_notify(Notify::Any)?;
        }
        Ok(Endpoint::<P> {
            buffer,
            qps,
            cq,
            service,
            targets,
            srq,
            ah: None,
            headroom,
            mr,
            channel,
            remote: None,
            gid,
            psn: rand_psn(),
            mtu,
            events_seen: false,
            pd,
            _xrc_domain: xrc_domain,
            _context: context,
        })
    }
}

fn first_device<P: Provider>(provider: &P) -> Result<P::Context> {
    let first = provider.devices()?.into_iter().next();
    Ok(provider.open(&first.context("the provider has no device")?.name)?)
}

/// As many may wait at once.
fn completions(sizes: Sizes) -> u32 {
    ((sizes.depth + sizes.recv_depth) * sizes.qps as u32).max(16)
}

/// What a queue pair holds; receives may be the shared queue's.
fn capacity(sizes: Sizes, recv_sges: u32, shares_receives: bool) -> QpCap {
    let own = |count| if shares_receives { 0 } else { count };
    QpCap {
        max_send_wr: sizes.depth,
        max_recv_wr: own(sizes.recv_depth),
        max_send_sge: 1,
        max_recv_sge: own(recv_sges),
        max_inline_data: 0,
    }
}

fn check_size(service: Service, sizes: Sizes, mtu: Mtu) -> Result<()> {
    if service.transport == Transport::Ud && sizes.message_bytes > mtu.bytes() {
        bail!(
            "a datagram is one packet: {} bytes do not fit the MTU of {}; choose a smaller --size",
            sizes.message_bytes,
            mtu.bytes()
        );
    }
    Ok(())
}

/// Where the header in front of each message goes, if the service has one.
fn headroom<P: Provider>(pd: &P::Pd, service: Service) -> Result<Option<(Buffer, P::Mr)>> {
    let bytes = service.headroom_bytes();
    if bytes == 0 {
        return Ok(None);
    }
    let headers = Buffer::new(bytes);
    let mr = pd.reg_mr(&headers, Access::LOCAL_WRITE)?;
    Ok(Some((headers, mr)))
}

fn usable_mtu(wanted_bytes: usize, active: Mtu, device: &str) -> Result<Mtu> {
    match (wanted_bytes, Mtu::from_bytes(wanted_bytes)) {
        (0, _) => Ok(active),
        (_, Some(mtu)) if mtu <= active => Ok(mtu),
        (_, Some(_)) => bail!(
            "an MTU of {wanted_bytes} is above the {} bytes that the interface of {device} carries; choose a smaller --mtu",
            active.bytes()
        ),
        (_, None) => bail!("{wanted_bytes} is no path MTU; choose one of 256, 512, 1024, 2048, 4096"),
    }
}

fn rand_psn() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new()
        .build_hasher()
        .finish() as u32
        & 0xff_ffff
}
