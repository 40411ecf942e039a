//! A queue pair for datagrams on one device, with its slots.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use verbs_api::{
    Access, AddressVector, Buffer, CompletionChannel, CompletionQueue, Context, CqInit, MemoryRegion, Notify,
    ProtectionDomain, Provider, QpAttr, QpCap, QpInit, QpState, QpType, QueuePair, RecvWr, Result, SendOp,
    SendWr, Sge, SqSigType, Wc, WcStatus,
};

use crate::errors::{Errno, error};
use crate::message::datagram::{GRH_BYTES, HEADER_BYTES, header, sender};
use crate::options::Options;

/// The Q_Key of RDMA CM.
pub(super) const QKEY: u32 = 0x0123_4567;
const PORT: u8 = 1;
const SLOTS_MIN: usize = 4;
const SLOTS_MAX: usize = 4096;
/// The numbers of sends; receives are numbered by their slots.
const SEND_ID: u64 = 1 << 32;
const BATCH: usize = 32;

/// Where to send to.
pub(super) struct Destination<P: Provider> {
    pub(super) ah: P::Ah,
    pub(super) qpn: u32,
    pub(super) qkey: u32,
}

/// A datagram that waits to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrived {
    pub(super) from: SocketAddr,
    slot: usize,
    bytes: usize,
    wc: Wc,
}

/// See the module's documentation.
pub(super) struct Station<P: Provider> {
    // Queues and regions first, their parents last.
    qp: P::Qp,
    send_region: P::Mr,
    receive_region: P::Mr,
    cq: P::Cq,
    channel: P::Channel,
    domain: P::Pd,
    pub(super) device: String,
    /// Its address.
    pub(super) ip: IpAddr,
    is_armed: bool,
    send_memory: Buffer,
    receive_memory: Buffer,
    /// Bytes of a datagram with our header.
    mtu: usize,
    free: Vec<usize>,
    send_slots: usize,
    arrived: VecDeque<Arrived>,
    /// Why the queue pair is of no use any more.
    failure: Option<WcStatus>,
}

impl<P: Provider> fmt::Debug for Station<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

fn slots(bytes: u32, queue: u16, slot: usize) -> usize {
    (bytes as usize / slot)
        .max(queue.into())
        .clamp(SLOTS_MIN, SLOTS_MAX)
}

impl<P: Provider> Station<P> {
    /// A queue pair that is ready.
    pub(super) fn new(context: &P::Context, device: String, ip: IpAddr, options: &Options) -> Result<Self> {
        let mtu = context.query_port(PORT)?.active_mtu.bytes();
        let receives = slots(options.receive_bytes, options.receive_queue, GRH_BYTES + mtu);
        let sends = (options.send_bytes as usize / mtu).clamp(SLOTS_MIN, options.send_queue.max(4).into());
        let domain = context.alloc_pd()?;
        let channel = context.create_channel()?;
        let cq = context.create_cq(&CqInit {
            channel: Some(&channel),
            ..CqInit::new((receives + sends) as u32)
        })?;
        let qp = domain.create_qp(&QpInit {
            qp_type: QpType::Ud,
            send_cq: Some(&cq),
            recv_cq: Some(&cq),
            srq: None,
            xrc_domain: None,
            cap: QpCap {
                max_send_wr: sends as u32,
                max_recv_wr: receives as u32,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig: SqSigType::OnRequest,
        })?;
        let send_memory = Buffer::new(sends * mtu);
        let receive_memory = Buffer::new(receives * (GRH_BYTES + mtu));
        let station = Station {
            qp,
            send_region: domain.reg_mr(&send_memory, Access::empty())?,
            receive_region: domain.reg_mr(&receive_memory, Access::LOCAL_WRITE)?,
            cq,
            channel,
            domain,
            device,
            ip,
            is_armed: false,
            send_memory,
            receive_memory,
            mtu,
            free: (0..sends).collect(),
            send_slots: sends,
            arrived: VecDeque::with_capacity(receives),
            failure: None,
        };
        station.bring_up()?;
        (0..receives).try_for_each(|slot| station.post_receive(slot))?;
        Ok(station)
    }

    fn bring_up(&self) -> Result<()> {
        let to = |state| QpAttr {
            state: Some(state),
            ..QpAttr::default()
        };
        self.qp.modify(&QpAttr {
            pkey_index: Some(0),
            port: Some(PORT),
            qkey: Some(QKEY),
            ..to(QpState::Init)
        })?;
        self.qp.modify(&to(QpState::Rtr))?;
        self.qp.modify(&QpAttr {
            sq_psn: Some(0),
            ..to(QpState::Rts)
        })
    }

    fn post_receive(&self, slot: usize) -> Result<()> {
        let bytes = GRH_BYTES + self.mtu;
        let sges = [Sge {
            addr: self.receive_region.addr() + (slot * bytes) as u64,
            length: bytes as u32,
            lkey: self.receive_region.lkey(),
        }];
        let request = RecvWr {
            wr_id: slot as u64,
            sges: &sges,
        };
        self.qp.post_recv(&[request]).map_err(|refused| refused.error)
    }

    pub(super) fn qpn(&self) -> u32 {
        self.qp.qpn()
    }

    pub(super) fn channel(&self) -> P::Channel {
        self.channel.clone()
    }

    /// Bytes that a datagram may have.
    pub(super) fn datagram_bytes_max(&self) -> usize {
        self.mtu - HEADER_BYTES
    }

    pub(super) fn can_send(&self) -> bool {
        !self.free.is_empty()
    }

    pub(super) fn has_sent_all(&self) -> bool {
        self.free.len() == self.send_slots
    }

    pub(super) fn arm(&mut self) -> Result<()> {
        if !self.is_armed {
            self.cq.req_notify(Notify::Any)?;
            self.is_armed = true;
        }
        Ok(())
    }

    /// Take in what has completed. True when there was something, be it only an event. ENETDOWN, from then on always: the
    /// queue pair has failed.
    pub(super) fn poll(&mut self) -> Result<bool> {
        let mut found = false;
        if self.is_armed {
            while self.channel.wait(Some(Duration::ZERO))?.is_some() {
                self.is_armed = false;
                found = true;
            }
        }
        let mut batch = [Wc::default(); BATCH];
        // No more can wait than have slots.
        for _ in 0..=(SLOTS_MAX / BATCH) {
            let count = self.cq.poll(&mut batch)?;
            found |= count > 0;
            for wc in &batch[..count] {
                if wc.status != WcStatus::Success {
                    self.failure.get_or_insert(wc.status);
                }
                match wc.wr_id.checked_sub(SEND_ID) {
                    Some(slot) => self.free.push(slot as usize),
                    None => self.receive(wc)?,
                }
            }
            if count < BATCH {
                break;
            }
        }
        match self.failure {
            Some(status) => Err(error(
                Errno::ENETDOWN,
                format!("the queue pair of the socket has failed: {status}"),
            )),
            None => Ok(found),
        }
    }

    fn receive(&mut self, wc: &Wc) -> Result<()> {
        match self.parse(wc) {
            Some(arrived) => self.arrived.push_back(arrived),
            // Not of our protocol.
            None if wc.status == WcStatus::Success => self.post_receive(wc.wr_id as usize)?,
            None => {}
        }
        Ok(())
    }

    fn parse(&self, wc: &Wc) -> Option<Arrived> {
        let slot = wc.wr_id as usize;
        let bytes = (wc.byte_len as usize).checked_sub(GRH_BYTES + HEADER_BYTES)?;
        if wc.status != WcStatus::Success || bytes > self.datagram_bytes_max() {
            return None;
        }
        let mut head = [0; GRH_BYTES + HEADER_BYTES];
        self.receive_memory.read(self.place(slot), &mut head);
        let from = sender(&head)?;
        Some(Arrived {
            from,
            slot,
            bytes,
            wc: *wc,
        })
    }

    fn place(&self, slot: usize) -> usize {
        slot * (GRH_BYTES + self.mtu)
    }

    /// The oldest datagram that waits.
    pub(super) fn first(&self) -> Option<&Arrived> {
        self.arrived.front()
    }

    /// Copy out what fits of it.
    pub(super) fn copy(&self, arrived: &Arrived, out: &mut [u8]) -> usize {
        let count = out.len().min(arrived.bytes);
        let start = self.place(arrived.slot) + GRH_BYTES + HEADER_BYTES;
        self.receive_memory.read(start, &mut out[..count]);
        count
    }

    /// The oldest has been read.
    pub(super) fn discard(&mut self) -> Result<()> {
        match self.arrived.pop_front() {
            Some(arrived) => self.post_receive(arrived.slot),
            None => Ok(()),
        }
    }

    /// The way back to the sender of a datagram.
    pub(super) fn way_back(&self, arrived: &Arrived) -> Result<Destination<P>> {
        let mut grh = [0; GRH_BYTES];
        self.receive_memory.read(self.place(arrived.slot), &mut grh);
        Ok(Destination {
            ah: self.domain.create_ah_from_wc(&arrived.wc, &grh, PORT)?,
            qpn: arrived.wc.src_qp,
            qkey: QKEY,
        })
    }

    /// Whose way back this would be.
    pub(super) fn is_way_back(destination: &Destination<P>, arrived: &Arrived) -> bool {
        destination.qpn == arrived.wc.src_qp
    }

    pub(super) fn destination(&self, av: &AddressVector, qpn: u32, qkey: u32) -> Result<Destination<P>> {
        Ok(Destination {
            ah: self.domain.create_ah(av)?,
            qpn,
            qkey,
        })
    }

    /// Send a datagram from our port `from`. False: there is no room now. EMSGSIZE.
    pub(super) fn send(&mut self, from: u16, to: &Destination<P>, bytes: &[u8]) -> Result<bool> {
        let most = self.datagram_bytes_max();
        if bytes.len() > most {
            return Err(error(
                Errno::EMSGSIZE,
                format!("a datagram has at most {most} bytes here, not {}", bytes.len()),
            ));
        }
        let Some(slot) = self.free.pop() else {
            return Ok(false);
        };
        let place = slot * self.mtu;
        self.send_memory.write(place, &header(from));
        self.send_memory.write(place + HEADER_BYTES, bytes);
        let sges = [Sge {
            addr: self.send_region.addr() + place as u64,
            length: (HEADER_BYTES + bytes.len()) as u32,
            lkey: self.send_region.lkey(),
        }];
        let op = SendOp::SendTo {
            ah: &to.ah,
            remote_qpn: to.qpn,
            remote_qkey: to.qkey,
            imm: None,
        };
        let posted = self
            .qp
            .post_send(&[SendWr::new(SEND_ID + slot as u64, op, &sges)]);
        posted.map(|()| true).map_err(|refused| {
            self.free.push(slot);
            refused.error
        })
    }
}
