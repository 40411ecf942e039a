//! Between the steward and the sockets: what it wants done, and what it should know.

use super::super::super::FabricCounters;
use super::super::super::control::{self, LinkMessage, MESSAGE_BYTES_MAX, PACKET_BYTES};
use super::super::super::slice::Slice;
use super::super::super::steward::{Action, Steward};
use super::super::super::sys::{Datagram, UdpSocket};
use super::super::transmit::Transmitter;
use super::Member;
use crate::clock::monotonic_ns;

impl Member {
    /// Do what the steward wants, and set the timer for what it wants later.
    pub(super) fn act(
        &mut self,
        socket: &UdpSocket,
        transmitter: &mut Transmitter,
        counters: &mut FabricCounters,
    ) {
        while let Some(action) = self.steward.poll_action() {
            let (from, nonce) = (self.links.own(), self.nonce);
            match action {
                Action::SendEcho { round } => {
                    let echo = control::Packet::Echo { from, nonce, round };
                    transmitter.send_to_self(socket, &echo.to_bytes(), PACKET_BYTES);
                }
                Action::SendProbes { round, positions } => {
                    for (position, place) in
                        (0..positions).zip(self.probe_buffer.chunks_exact_mut(PACKET_BYTES))
                    {
                        let probe = control::Packet::Probe {
                            from,
                            nonce,
                            round,
                            position,
                        };
                        place.copy_from_slice(&probe.to_bytes());
                    }
                    let bytes = &self.probe_buffer[..usize::from(positions) * PACKET_BYTES];
                    transmitter.send_to_self(socket, bytes, PACKET_BYTES);
                }
                Action::AttachTable => {
                    let program = self.steward.table().write_program(&mut self.program);
                    // Refused only where the kernel lacks it; then every packet may have to be passed on.
                    if socket.attach_steering(program).is_ok() {
                        counters.steering_repairs += 1;
                        let table = control::encode_table(self.steward.table());
                        self.links.send_to_all(&LinkMessage::Table(&table));
                    }
                }
            }
        }
        let (steward, roll_call) = (self.steward.next_timeout_ns(), self.roll_call.next_timeout_ns());
        self.links.set_timer(steward.into_iter().chain(roll_call).min());
    }

    /// Whether it is for `take_control`: control packets only come from the own address and port.
    pub(super) fn is_control(&self, datagram: &Datagram<'_>, packet: &[u8]) -> bool {
        packet[0] == control::OPCODE
            && datagram.from.ip() == self.own.ip()
            && datagram.from.port() == self.own.port()
    }

    pub(super) fn take_control(&mut self, packet: &[u8]) {
        let now_ns = monotonic_ns();
        let own = self.links.own();
        let mut out = [0; MESSAGE_BYTES_MAX];
        match control::Packet::parse(packet) {
            Some(control::Packet::Echo { from, nonce, round }) if from == own && nonce == self.nonce => {
                self.steward.echo_returned(now_ns, round);
            }
            Some(control::Packet::Echo { from, round, .. }) if from != own => {
                // It finds out by itself if this does not reach it.
                let _ = self
                    .links
                    .send(from, LinkMessage::Missed { round }.write(&mut out), &[]);
            }
            Some(control::Packet::Probe {
                from,
                nonce,
                round,
                position,
            }) if from == own && nonce == self.nonce => {
                self.steward.probe_answered(now_ns, round, position, own);
            }
            Some(control::Packet::Probe {
                from,
                round,
                position,
                ..
            }) => {
                let answer = LinkMessage::Answer { round, position };
                let _ = self.links.send(from, answer.write(&mut out), &[]);
            }
            // With another nonce it was made by somebody else.
            Some(_) | None => {}
        }
    }
}

/// A member says something to the steward.
pub(super) fn hear(steward: &mut Steward, from: Slice, message: &LinkMessage<'_>) {
    let now_ns = monotonic_ns();
    steward.heard(now_ns, from);
    match message {
        LinkMessage::Answer { round, position } => steward.probe_answered(now_ns, *round, *position, from),
        LinkMessage::Missed { round } => steward.echo_missed(now_ns, *round),
        LinkMessage::Table(table) => steward.table_announced(now_ns, &control::decode_table(table)),
        LinkMessage::Hello { .. }
        | LinkMessage::Adopt(_)
        | LinkMessage::Question
        | LinkMessage::SignOfLife => {}
    }
}
