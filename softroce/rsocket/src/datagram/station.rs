//! A queue pair for datagrams on one device, with its slots.

use std::collections::VecDeque;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use verbs_api::{
    Access, AddressVector, Buffer, CompletionChannel, CompletionQueue, Context, CqInit, MemoryRegion, Notify,
    ProtectionDomain, Provider, QpAttr, QpCap, QpInit, QpState, QpType, QueuePair, RecvWr, Result, SendOp,
    SendWr, Sge, SqSigType, Wc, WcStatus,
};

use crate::errors::{Errno, error};
use crate::message::part;
use crate::options::Options;

/// In front of what a datagram brings: the GRH area.
const GRH_BYTES: usize = 40;
/// Our own header: `SD`, version 1, zero, the sender's port, two zeroes.
const HEADER_BYTES: usize = 8;
const MAGIC: [u8; 4] = [b'S', b'D', 1, 0];
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

    /// Take in what has completed. True when there was something, be it only an event.
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
                match wc.wr_id.checked_sub(SEND_ID) {
                    Some(slot) => self.free.push(slot as usize),
                    None => self.receive(wc)?,
                }
            }
            if count < BATCH {
                break;
            }
        }
        Ok(found)
    }

    fn receive(&mut self, wc: &Wc) -> Result<()> {
        let slot = wc.wr_id as usize;
        match self.parse(wc) {
            Some(arrived) => {
                self.arrived.push_back(arrived);
                Ok(())
            }
            // Not of our protocol. In a queue pair that is gone, no receive can be posted either.
            None if wc.status == WcStatus::Success => self.post_receive(slot),
            None => Err(error(
                Errno::ENETDOWN,
                format!("a datagram was not received: {}", wc.status),
            )),
        }
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
        self.send_memory.write(place, &MAGIC);
        self.send_memory.write(place + 4, &from.to_be_bytes());
        self.send_memory.write(place + 6, &[0; 2]);
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

/// Who sent a datagram that begins with this GRH area and header. The address is the one that the card saw; the port is
/// what the sender says.
fn sender(head: &[u8; GRH_BYTES + HEADER_BYTES]) -> Option<SocketAddr> {
    if head[GRH_BYTES..GRH_BYTES + 4] != MAGIC {
        return None;
    }
    // The first four bits tell the version where it is IPv6; an IPv4 header stands in the last 20 bytes (RoCEv2 annex).
    let ip = match head[0] >> 4 {
        6 => match Ipv6Addr::from(part::<16>(head, 8)) {
            ip if ip.to_ipv4_mapped().is_some() => IpAddr::V4(ip.to_ipv4_mapped()?),
            ip => IpAddr::V6(ip),
        },
        _ if head[20] >> 4 == 4 => IpAddr::V4(Ipv4Addr::from(part::<4>(head, 32))),
        _ => return None,
    };
    let port = u16::from_be_bytes(part(head, GRH_BYTES + 4));
    (port != 0).then_some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> [u8; 48] {
        let mut head = [0; 48];
        head[40..46].copy_from_slice(&[b'S', b'D', 1, 0, 0x1d, 0x2f]);
        head
    }

    #[test]
    fn the_sender_is_the_address_of_the_packet_and_the_port_of_the_header() {
        let mut four = head();
        four[20] = 0x45;
        four[32..36].copy_from_slice(&[10, 1, 2, 3]);
        assert_eq!(sender(&four), Some("10.1.2.3:7471".parse().unwrap()));
        let mut six = head();
        six[0] = 0x60;
        six[8..24].copy_from_slice(&Ipv6Addr::LOCALHOST.octets());
        assert_eq!(sender(&six), Some("[::1]:7471".parse().unwrap()));
    }

    #[test]
    fn what_is_not_ours_has_no_sender() {
        let mut head = head();
        assert_eq!(sender(&head), None);
        head[20] = 0x45;
        head[44..46].copy_from_slice(&[0, 0]);
        assert_eq!(sender(&head), None);
        head[44] = 1;
        assert!(sender(&head).is_some());
        head[42] = 2;
        assert_eq!(sender(&head), None);
    }
}
