//! Marks behind what nobody acknowledges: how far receivers on this machine have come.

use std::net::IpAddr;

use softroce_engine::{TxBatch, TxPacket, packet_cost};

use super::super::super::control;
use super::super::super::slice::{Destination, destination};
use super::super::super::sys::{Datagram, UdpSocket};
use super::super::transmit::Transmitter;
use super::Member;
use crate::clock::monotonic_ns;

impl Member {
    /// Whether it is for `take_mark`: marks go from port to port within the machine.
    pub(super) fn is_mark(&self, datagram: &Datagram<'_>, packet: &[u8]) -> bool {
        control::is_mark(packet)
            && self.is_on_this_machine(datagram.from.ip())
            && datagram.from.port() == self.own.port()
    }

    pub(super) fn is_on_this_machine(&self, address: IpAddr) -> bool {
        address.is_loopback() || address == self.own.ip()
    }

    /// Take in a mark, which wants an answer, or the answer to one.
    pub(super) fn take_mark(&mut self, sender: IpAddr, packet: &[u8]) -> Option<control::Packet> {
        let own = self.links.own();
        match control::Packet::parse(packet)? {
            control::Packet::Mark { from, to, number } if to == own => Some(control::Packet::Read {
                from: own,
                to: from,
                number,
            }),
            control::Packet::Read { from, to, number } if to == own => {
                self.unread.note_read(monotonic_ns(), (sender, from), number);
                None
            }
            _ => None,
        }
    }

    /// Bytes that lie unread at one peer, at most.
    pub(in crate::fabric::udp) fn unread_bytes(&mut self) -> u64 {
        self.unread.most(monotonic_ns)
    }

    /// A batch has left: put marks behind what nobody acknowledges.
    pub(in crate::fabric::udp) fn mark(
        &mut self,
        socket: &UdpSocket,
        transmitter: &mut Transmitter,
        batch: &TxBatch,
    ) {
        let mut before: Option<TxPacket> = None;
        for packet in batch.packets() {
            let bytes = batch.bytes(packet);
            let in_train =
                before.is_some_and(|before| before.len == packet.len && before.path == packet.path);
            before = Some(*packet);
            if !is_unacknowledged(bytes[0]) || !self.is_on_this_machine(packet.path.dst) {
                continue;
            }
            let Destination::QueuePair(slice) = destination(bytes) else {
                continue;
            };
            let cost = packet_cost(packet.len as usize, in_train);
            let process = (packet.path.dst, slice);
            if let Some(number) = self.unread.note_sent(monotonic_ns(), process, cost.into()) {
                let from = self.links.own();
                let mark = control::Packet::Mark {
                    from,
                    to: slice,
                    number,
                };
                let mut to = self.own;
                to.set_ip(packet.path.dst);
                transmitter.send_control(socket, to, &mark.to_bytes());
            }
        }
    }
}

/// Whether a packet with this opcode is of UC or UD: the upper three bits name the service.
fn is_unacknowledged(opcode: u8) -> bool {
    matches!(opcode >> 5, 1 | 3)
}
