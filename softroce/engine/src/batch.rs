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
    /// Bytes after which only the train that was begun goes on; no train is longer either.
    train_bytes: usize,
    /// Number of the packet that began the last train.
    train_first: usize,
}

impl TxBatch {
    /// Room for `max_bytes` in `max_packets`.
    pub fn new(max_bytes: usize, max_packets: usize) -> Self {
        TxBatch {
            bytes: vec![0; max_bytes].into_boxed_slice(),
            used: 0,
            packets: Vec::with_capacity(max_packets),
            max_packets,
            train_bytes: max_bytes,
            train_first: 0,
        }
    }

    /// Room for about one train of `train_bytes` in `max_packets`: when there are as many bytes, the train that was
    /// begun is filled up before the batch is full. The first packet of a message is longer than those behind it and
    /// goes ahead with one of them; cut off at a fixed size, the others would leave in two pieces.
    pub fn of_whole_trains(train_bytes: usize, max_packets: usize) -> Self {
        TxBatch {
            train_bytes,
            ..TxBatch::new(2 * train_bytes, max_packets)
        }
    }

    /// Forget all packets.
    pub fn clear(&mut self) {
        self.used = 0;
        self.packets.clear();
        self.train_first = 0;
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
        self.packets.len() < self.max_packets
            && self.bytes.len() - self.used >= len
            && (self.used + len <= self.train_bytes || self.goes_on(len))
    }

    /// Whether a packet of `len` bytes can leave in the train that was begun, should it have the same way.
    fn goes_on(&self, len: usize) -> bool {
        let (Some(first), Some(last)) = (self.packets.get(self.train_first), self.packets.last()) else {
            return false;
        };
        let train_len = self.used - first.start as usize;
        last.len == first.len && len <= first.len as usize && train_len + len <= self.train_bytes
    }

    /// Append a packet of `len` bytes (ICRC included) and fill it in. `None` when it does not fit.
    pub fn push(&mut self, path: Path, len: usize) -> Option<&mut [u8]> {
        if !self.has_room(len) {
            return None;
        }
        if !self.goes_on(len) || self.packets.last().is_some_and(|last| last.path != path) {
            self.train_first = self.packets.len();
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
            self.train_first = self.train_first.min(self.packets.len().saturating_sub(1));
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn path(last: u8) -> Path {
        Path {
            src: Ipv4Addr::LOCALHOST.into(),
            dst: Ipv4Addr::new(127, 0, 0, last).into(),
            source_port: 4791,
            traffic_class: 0,
            hop_limit: 64,
        }
    }

    /// How many packets of these lengths a batch takes.
    fn taken(batch: &mut TxBatch, lengths: impl IntoIterator<Item = usize>) -> usize {
        lengths
            .into_iter()
            .take_while(|len| batch.push(path(1), *len).is_some())
            .count()
    }

    /// The packets of a WRITE of 64 KiB over an MTU of 4,096 bytes, without end.
    fn writes() -> impl Iterator<Item = usize> {
        std::iter::once(4128).chain(std::iter::repeat_n(4112, 15)).cycle()
    }

    #[test]
    fn a_train_that_was_begun_is_filled_before_the_batch_is_full() {
        let mut batch = TxBatch::of_whole_trains(65_493, 256);
        assert_eq!(taken(&mut batch, writes()), 16, "the whole message");
        batch.clear();
        assert_eq!(
            taken(&mut batch, std::iter::repeat(4112)),
            15,
            "no train is longer"
        );
        batch.clear();
        assert_eq!(
            taken(&mut TxBatch::new(65_493, 256), writes()),
            15,
            "a fixed size"
        );
    }

    #[test]
    fn a_full_batch_takes_nothing_that_needs_another_train() {
        let mut batch = TxBatch::of_whole_trains(1000, 256);
        assert_eq!(
            taken(&mut batch, [600, 300, 300]),
            2,
            "the shorter one ended the train"
        );
        batch.clear();
        assert_eq!(taken(&mut batch, [500, 300, 400]), 2);
        batch.clear();
        assert_eq!(taken(&mut batch, [600, 400, 20]), 2);
        batch.clear();
        batch.push(path(1), 600);
        batch.push(path(2), 300);
        batch
            .push(path(2), 300)
            .expect("the train to the second peer goes on");
        assert!(!batch.has_room(301));
    }

    #[test]
    fn a_packet_that_was_taken_back_leaves_the_batch_as_it_was() {
        let mut batch = TxBatch::of_whole_trains(1000, 256);
        batch.push(path(1), 400);
        batch.push(path(1), 500);
        batch.pop();
        assert_eq!(taken(&mut batch, [400, 400]), 1, "the two make a train");
    }
}
