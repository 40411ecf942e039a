//! A fabric that loses one chosen packet when told to: below the engine, above the socket.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use softroce::{Fabric, FabricCounters};
use softroce_engine::{PortConfig, RxMeta, TxBatch};

/// The way of a packet, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Sent.
    Out,
    /// Received.
    In,
}

/// Which reliable packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packets {
    /// Neither the first nor the last of a SEND.
    SendMiddle,
    /// A READ's request.
    ReadRequest,
    /// Neither the first nor the last of a READ's answer.
    ReadResponseMiddle,
    /// An acknowledgement without data.
    Acknowledge,
}

impl Packets {
    /// The first byte of the base transport header.
    fn opcode(self) -> u8 {
        match self {
            Packets::SendMiddle => 0x01,
            Packets::ReadRequest => 0x0c,
            Packets::ReadResponseMiddle => 0x0e,
            Packets::Acknowledge => 0x11,
        }
    }
}

/// What to lose: the next packet that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Which way.
    pub way: Way,
    /// Which packets.
    pub packets: Packets,
}

/// The switch of a [`Lossy`] fabric.
#[derive(Debug, Clone, Default)]
pub struct Loss {
    armed: Arc<Mutex<Option<Rule>>>,
}

impl Loss {
    /// Has the next packet that fits be lost.
    pub fn arm(&self, rule: Rule) {
        *self.rule() = Some(rule);
    }

    /// Whether the packet was lost meanwhile; if not, none will be.
    pub fn disarm(&self) -> bool {
        self.rule().take().is_none()
    }

    fn rule(&self) -> MutexGuard<'_, Option<Rule>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_armed(&self, way: Way) -> bool {
        self.rule().is_some_and(|rule| rule.way == way)
    }

    /// Whether this packet is the one; then it was the last.
    fn takes(&self, way: Way, packet: &[u8]) -> bool {
        let mut armed = self.rule();
        let fits = |rule: Rule| rule.way == way && packet.first() == Some(&rule.packets.opcode());
        if armed.is_some_and(fits) {
            *armed = None;
            return true;
        }
        false
    }
}

/// A fabric that loses what its [`Loss`] says.
#[derive(Debug)]
pub struct Lossy<F> {
    inner: F,
    loss: Loss,
}

impl<F: Fabric> Lossy<F> {
    /// Loses packets of `inner`.
    pub fn new(inner: F, loss: Loss) -> Self {
        Lossy { inner, loss }
    }
}

impl<F: Fabric> Fabric for Lossy<F> {
    fn send(&mut self, batch: &mut TxBatch) {
        if !self.loss.is_armed(Way::Out) {
            return self.inner.send(batch);
        }
        let bytes = batch.packets().iter().map(|packet| packet.len as usize).sum();
        let mut rest = TxBatch::new(bytes, batch.packets().len());
        for packet in batch.packets() {
            let bytes = batch.bytes(packet);
            if !self.loss.takes(Way::Out, bytes)
                && let Some(room) = rest.push(packet.path, bytes.len())
            {
                room.copy_from_slice(bytes);
            }
        }
        self.inner.send(&mut rest);
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let loss = &self.loss;
        self.inner.recv(&mut |meta, packet| {
            if !loss.takes(Way::In, packet) {
                sink(meta, packet);
            }
        })
    }

    fn fds(&self) -> Vec<RawFd> {
        self.inner.fds()
    }

    fn counters(&self) -> FabricCounters {
        self.inner.counters()
    }

    fn receive_pressure(&mut self) -> bool {
        self.inner.receive_pressure()
    }

    fn unread_bytes(&mut self) -> u64 {
        self.inner.unread_bytes()
    }

    fn receive_buffer_bytes(&self) -> u32 {
        self.inner.receive_buffer_bytes()
    }

    fn port(&mut self) -> PortConfig {
        self.inner.port()
    }

    fn port_changed(&mut self) -> bool {
        self.inner.port_changed()
    }

    fn qpn_slice(&self) -> Range<u32> {
        self.inner.qpn_slice()
    }

    fn join(&mut self, group: IpAddr) -> verbs_api::Result<()> {
        self.inner.join(group)
    }

    fn leave(&mut self, group: IpAddr) -> verbs_api::Result<()> {
        self.inner.leave(group)
    }

    fn has_multicast(&self) -> bool {
        self.inner.has_multicast()
    }

    fn report_header_fields(&mut self) {
        self.inner.report_header_fields();
    }

    fn close_in_child(&mut self) {
        self.inner.close_in_child();
    }
}

#[cfg(test)]
mod tests {
    use super::{Loss, Packets, Rule, Way};

    #[test]
    fn one_packet_that_fits_is_lost_and_the_next_is_not() {
        let loss = Loss::default();
        loss.arm(Rule {
            way: Way::In,
            packets: Packets::Acknowledge,
        });
        assert!(!loss.takes(Way::Out, &[0x11]));
        assert!(!loss.takes(Way::In, &[0x04]));
        assert!(loss.takes(Way::In, &[0x11]));
        assert!(!loss.takes(Way::In, &[0x11]));
        assert!(loss.disarm());
    }

    #[test]
    fn a_packet_that_never_came_is_told() {
        let loss = Loss::default();
        loss.arm(Rule {
            way: Way::Out,
            packets: Packets::ReadRequest,
        });
        assert!(!loss.disarm());
        assert!(!loss.takes(Way::Out, &[0x0c]));
    }
}
