//! Sending batches: runs are found, sealed and handed to the kernel.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use roce_wire::ROCE_V2_PORT;
use softroce_engine::{Path, TxBatch};

use super::super::FabricCounters;
use super::super::seal::{PACKET_BYTES_MIN, Sealer};
use super::super::sys::{Message, SendArena, UdpSocket};
use super::super::train::{self, Run};

/// Messages collected before they are handed to the kernel.
const MESSAGES_MAX: usize = 32;
/// The system's hop limit for packets to one host. For groups it is 1.
const HOP_LIMIT_DEFAULT: u8 = 64;
/// In a path: "you choose".
const HOP_LIMIT_ANY: u8 = 0;

/// Sends for one socket.
#[derive(Debug)]
pub(super) struct Transmitter {
    own: SocketAddr,
    sealer: Sealer,
    segments_max: usize,
    messages: Vec<Message>,
    arena: SendArena,
}

impl Transmitter {
    pub(super) fn new(own: SocketAddr, segments_max: usize) -> Self {
        Transmitter {
            own,
            sealer: Sealer::new(own.ip()),
            segments_max,
            messages: Vec::with_capacity(MESSAGES_MAX),
            arena: SendArena::new(),
        }
    }

    pub(super) fn segments_max(&self) -> usize {
        self.segments_max
    }

    /// Send a whole batch.
    pub(super) fn send(&mut self, socket: &UdpSocket, batch: &mut TxBatch, counters: &mut FabricCounters) {
        if batch.packets().len() == 1 {
            return self.send_single(socket, batch, counters);
        }
        let mut next = 0;
        while next < batch.packets().len() {
            if self.messages.len() == MESSAGES_MAX {
                self.flush(socket, batch, counters);
            }
            let run = train::run_from(batch, next, self.segments_max);
            next += run.count;
            match self.seal(batch, run) {
                Some(message) => self.messages.push(message),
                None => counters.send_refused += run.count as u64,
            }
        }
        self.flush(socket, batch, counters);
    }

    /// A batch of one packet: what a program waits for that sends one message at a time.
    fn send_single(&mut self, socket: &UdpSocket, batch: &mut TxBatch, counters: &mut FabricCounters) {
        let Some(message) = self.seal(batch, Run { first: 0, count: 1 }) else {
            counters.send_refused += 1;
            return;
        };
        let buffer = &*batch.run_mut(0, 1);
        loop {
            match socket.send(&mut self.arena, buffer, &[message]) {
                Ok(_) => count_sent(&message, counters),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => counters.send_refused += 1,
            }
            return;
        }
    }

    /// Send control packets to the own address; they lie back to back in `bytes`.
    pub(super) fn send_to_self(&mut self, socket: &UdpSocket, bytes: &[u8], packet_bytes: usize) {
        let to = self.own;
        let mut starts = (0..bytes.len()).step_by(packet_bytes).peekable();
        while starts.peek().is_some() {
            self.messages.clear();
            self.messages
                .extend(starts.by_ref().take(MESSAGES_MAX).map(|start| Message {
                    start: start as u32,
                    len: packet_bytes as u32,
                    packets: 1,
                    segment_bytes: 0,
                    to,
                    traffic_class: None,
                    hop_limit: None,
                }));
            // One that is lost is missed by its sender, who tries again later.
            let _ = socket.send(&mut self.arena, bytes, &self.messages);
        }
        self.messages.clear();
    }

    /// Send one control packet to another socket of this machine.
    pub(super) fn send_control(&mut self, socket: &UdpSocket, to: SocketAddr, packet: &[u8]) {
        let message = Message {
            start: 0,
            len: packet.len() as u32,
            packets: 1,
            segment_bytes: 0,
            to,
            traffic_class: None,
            hop_limit: None,
        };
        // Whoever misses it goes on without.
        let _ = socket.send(&mut self.arena, packet, &[message]);
    }

    /// Send one datagram alone with the bytes as they are.
    pub(super) fn send_as_it_is(
        &mut self,
        socket: &UdpSocket,
        path: &Path,
        datagram: &[u8],
        counters: &mut FabricCounters,
    ) {
        let is_datagram = datagram.len() <= usize::from(u16::MAX) - 28;
        let Some(to) = destination(&self.own, path).filter(|_| is_datagram) else {
            counters.send_refused += 1;
            return;
        };
        let message = Message {
            start: 0,
            len: datagram.len() as u32,
            packets: 1,
            segment_bytes: 0,
            to,
            traffic_class: (path.traffic_class != 0).then_some(path.traffic_class),
            hop_limit: told_hop_limit(path),
        };
        match socket.send(&mut self.arena, datagram, &[message]) {
            Ok(_) => count_sent(&message, counters),
            Err(_) => counters.send_refused += 1,
        }
    }

    /// Seal a run and describe it to the kernel; `None` when it cannot be sent from here.
    fn seal(&mut self, batch: &mut TxBatch, run: Run) -> Option<Message> {
        let first = batch.packets()[run.first];
        let to = destination(&self.own, &first.path)?;
        let base = batch.packets()[0].start;
        let bytes = batch.run_mut(run.first, run.count);
        let is_packet = |len: usize| (PACKET_BYTES_MIN..=usize::from(u16::MAX) - 28).contains(&len);
        let last_len = bytes.len() - (run.count - 1) * first.len as usize;
        if !is_packet(first.len as usize) || !is_packet(last_len) {
            return None;
        }
        self.sealer.seal_run(to.ip(), bytes, first.len as usize);
        Some(Message {
            start: first.start - base,
            len: bytes.len() as u32,
            packets: run.count as u32,
            segment_bytes: first.len as u16,
            to,
            traffic_class: (first.path.traffic_class != 0).then_some(first.path.traffic_class),
            hop_limit: told_hop_limit(&first.path),
        })
    }

    /// Hand what is collected to the kernel.
    fn flush(&mut self, socket: &UdpSocket, batch: &mut TxBatch, counters: &mut FabricCounters) {
        let mut next = 0;
        while next < self.messages.len() {
            let count = batch.packets().len();
            let buffer = &*batch.run_mut(0, count);
            match socket.send(&mut self.arena, buffer, &self.messages[next..]) {
                Ok(sent) => {
                    for message in &self.messages[next..next + sent] {
                        count_sent(message, counters);
                    }
                    next += sent;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let message = self.messages[next];
                    if message.packets > 1 && is_about_trains(&error) {
                        self.send_singly(socket, batch, &message, counters);
                    } else {
                        counters.send_refused += u64::from(message.packets);
                    }
                    next += 1;
                }
            }
        }
        self.messages.clear();
    }

    /// The interface cannot do trains (no checksum offload): from now on every packet leaves by itself.
    fn send_singly(
        &mut self,
        socket: &UdpSocket,
        batch: &mut TxBatch,
        train: &Message,
        counters: &mut FabricCounters,
    ) {
        self.segments_max = 1;
        let count = batch.packets().len();
        let buffer = batch.run_mut(0, count);
        let end = train.start + train.len;
        for start in (train.start..end).step_by(train.segment_bytes.into()) {
            let len = u32::from(train.segment_bytes).min(end - start);
            let packet = &mut buffer[start as usize..(start + len) as usize];
            // Alone it carries another identification than within the train.
            self.sealer.seal_run(train.to.ip(), packet, len as usize);
            let single = Message {
                start,
                len,
                packets: 1,
                ..*train
            };
            match socket.send(&mut self.arena, buffer, &[single]) {
                Ok(_) => count_sent(&single, counters),
                Err(_) => counters.send_refused += 1,
            }
        }
    }
}

fn count_sent(message: &Message, counters: &mut FabricCounters) {
    counters.sent_datagrams += u64::from(message.packets);
    counters.sent_bytes += u64::from(message.len);
    counters.sent_trains += u64::from(message.packets > 1);
}

/// Errors that a train meets and its packets alone would not.
fn is_about_trains(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EIO | libc::EINVAL | libc::ENOPROTOOPT | libc::EOPNOTSUPP)
    )
}

/// The hop limit, where the kernel would not take it by itself.
fn told_hop_limit(path: &Path) -> Option<u8> {
    let is_default = path.hop_limit == HOP_LIMIT_DEFAULT && !path.dst.is_multicast();
    (path.hop_limit != HOP_LIMIT_ANY && !is_default).then_some(path.hop_limit)
}

/// Where a packet goes; `None` for an address of another family than the own one.
fn destination(own: &SocketAddr, path: &Path) -> Option<SocketAddr> {
    match (own, path.dst) {
        (SocketAddr::V4(_), IpAddr::V4(_)) => Some(SocketAddr::new(path.dst, ROCE_V2_PORT)),
        (SocketAddr::V6(own), IpAddr::V6(dst)) => {
            let scope_id = if dst.is_unicast_link_local() {
                own.scope_id()
            } else {
                0
            };
            Some(SocketAddr::V6(SocketAddrV6::new(dst, ROCE_V2_PORT, 0, scope_id)))
        }
        (SocketAddr::V4(_), IpAddr::V6(_)) | (SocketAddr::V6(_), IpAddr::V4(_)) => None,
    }
}
