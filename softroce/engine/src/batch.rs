//! Packets on their way between the engine and a fabric.

use std::net::IpAddr;

/// Where the BTH has its AckReq bit.
const ACK_REQUEST_AT: usize = 8;
const ACK_REQUEST: u8 = 0x80;

/// What a fabric must know to send a packet: one flow, one set of IP header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Path {
    /// Own address.
    pub src: IpAddr,
    /// Peer's address.
    pub dst: IpAddr,
    /// UDP source port that the engine suggests (flow entropy); a fabric may use another.
    pub source_port: u16,
    /// IPv4 TOS or IPv6 traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit.
    pub hop_limit: u8,
}

/// One packet in a [`TxBatch`].
#[derive(Clone, Copy, Debug)]
pub struct TxPacket {
    /// First byte within the batch.
    pub start: u32,
    /// UDP payload bytes: BTH to ICRC inclusive.
    pub len: u32,
    /// Where it goes.
    pub path: Path,
}

/// Packets ready to go, back to back in one buffer, so that a run of equal sizes can leave in one system call.
///
/// A packet is everything between UDP header and end; its last 4 bytes are room for the ICRC. The **fabric** seals
/// them (`roce_wire::icrc::seal`), since only it knows the IP identification that the packet will carry.
/// Bounded, and reused: after creation it does not allocate.
#[derive(Debug)]
pub struct TxBatch {
    bytes: Box<[u8]>,
    used: usize,
    packets: Vec<TxPacket>,
    max_packets: usize,
}

impl TxBatch {
    /// Room for `max_bytes` in `max_packets`.
    pub fn new(max_bytes: usize, max_packets: usize) -> Self {
        TxBatch {
            bytes: vec![0; max_bytes].into_boxed_slice(),
            used: 0,
            packets: Vec::with_capacity(max_packets),
            max_packets,
        }
    }

    /// Forget all packets.
    pub fn clear(&mut self) {
        self.used = 0;
        self.packets.clear();
    }

    /// Whether there is no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// The packets, in the order in which they must leave.
    pub fn packets(&self) -> &[TxPacket] {
        &self.packets
    }

    /// Whether a packet of `len` bytes still fits.
    pub fn has_room(&self, len: usize) -> bool {
        self.packets.len() < self.max_packets && self.bytes.len() - self.used >= len
    }

    /// Append a packet of `len` bytes (ICRC included) and fill it in. `None` when it does not fit.
    pub fn push(&mut self, path: Path, len: usize) -> Option<&mut [u8]> {
        if !self.has_room(len) {
            return None;
        }
        let start = self.used;
        self.used += len;
        self.packets.push(TxPacket {
            start: start as u32,
            len: len as u32,
            path,
        });
        Some(&mut self.bytes[start..start + len])
    }

    /// Take the last packet back (its payload could not be read).
    pub fn pop(&mut self) {
        if let Some(packet) = self.packets.pop() {
            self.used = packet.start as usize;
        }
    }

    /// Have the last packet, a request, ask for an acknowledgement.
    pub(crate) fn ask_with_last(&mut self) {
        if let Some(packet) = self.packets.last() {
            self.bytes[packet.start as usize + ACK_REQUEST_AT] |= ACK_REQUEST;
        }
    }

    /// The bytes of a packet.
    pub fn bytes(&self, packet: &TxPacket) -> &[u8] {
        &self.bytes[packet.start as usize..(packet.start + packet.len) as usize]
    }

    /// All bytes of consecutive packets, for sealing and for one send.
    pub fn run_mut(&mut self, first: usize, count: usize) -> &mut [u8] {
        let start = self.packets[first].start as usize;
        let last = self.packets[first + count - 1];
        &mut self.bytes[start..(last.start + last.len) as usize]
    }
}

/// What a fabric knows of a datagram that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxMeta {
    /// Sender's address.
    pub src: IpAddr,
    /// The address that it was sent to: an own one, or a multicast group.
    pub dst: IpAddr,
    /// Sender's UDP port.
    pub source_port: u16,
    /// Position in the train that it arrived in; the sender's kernel may have numbered its IPv4 IDs so.
    pub segment: u16,
    /// TOS or traffic class, where known.
    pub traffic_class: u8,
    /// TTL or hop limit, where known.
    pub hop_limit: u8,
}

/// What [`Engine::poll_transmit`](crate::Engine::poll_transmit) does with acknowledgements that may still wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acks {
    /// Behind data of the same queue pair those that their peer may be waiting for, and overdue ones: the driver comes
    /// back for the others at once.
    Hold,
    /// Only those that can travel with data to the same peer, and overdue ones: the program is about to post an answer.
    Defer,
    /// Those that can travel with data to the same peer, and those that their peer may be waiting for.
    Ripe,
    /// All of them now.
    Flush,
}
