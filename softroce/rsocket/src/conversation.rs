//! What the two ends of a stream have told each other, and whether the peer keeps to the protocol. All that decides about
//! a peer's words is here, without I/O.

use std::ops::Range;

use verbs_api::RemoteAddr;

use crate::mapping::ENTRY_BYTES;
use crate::message::{Control, Credit, Hello, Violation};
use crate::window::{ReceiveWindow, SendWindow};

/// What the peer has said about itself, and how far it is used up.
#[derive(Clone, Copy, Debug)]
struct Peer {
    window: SendWindow,
    ring: RemoteAddr,
    table: RemoteAddr,
    table_entries: u16,
}

/// See the module's documentation.
#[derive(Clone, Copy, Debug)]
pub struct Conversation {
    received: ReceiveWindow,
    peer: Option<Peer>,
    peer_has_ended: bool,
}

impl Conversation {
    /// Before the greeting. Our ring has `ring_bytes` bytes (at least 1), and `messages` may be on their way to it (at least
    /// 1).
    pub fn new(ring_bytes: u32, messages: u16) -> Self {
        Conversation {
            received: ReceiveWindow::new(ring_bytes, messages),
            peer: None,
            peer_has_ended: false,
        }
    }

    /// The peer's greeting.
    pub fn meet(&mut self, hello: &Hello) {
        self.peer = Some(Peer {
            window: SendWindow::new(hello.ring_bytes, hello.messages),
            ring: hello.ring,
            table: hello.table,
            table_entries: hello.table_entries,
        });
    }

    /// Data has arrived in our ring: so many bytes, with this immediate.
    pub fn data(&mut self, bytes: u32, immediate: Option<u32>) -> Result<(), Violation> {
        if self.peer_has_ended {
            return Err(Violation::AfterEnd);
        }
        let immediate = immediate.ok_or(Violation::Data)?;
        self.received.arrive(bytes, immediate)
    }

    /// A control message has arrived.
    pub fn control(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let credit = match Control::parse(bytes)? {
            Control::Credit(credit) => credit,
            Control::End(_) if self.peer_has_ended => return Err(Violation::AfterEnd),
            Control::End(credit) => {
                self.peer_has_ended = true;
                credit
            }
        };
        let peer = self.peer.as_mut().ok_or(Violation::Control)?;
        peer.window.credit(credit)
    }

    /// Whether no data follows.
    pub fn peer_has_ended(&self) -> bool {
        self.peer_has_ended
    }

    /// Bytes that wait to be read.
    pub fn readable(&self) -> usize {
        self.received.readable()
    }

    /// Where in our ring the first `bytes` of them lie, at most [`readable`](Self::readable).
    pub fn places(&self, bytes: usize) -> [Range<usize>; 2] {
        self.received.places(bytes)
    }

    /// So many were read, at most [`readable`](Self::readable).
    pub fn take(&mut self, bytes: usize) {
        self.received.take(bytes);
    }

    /// The credit that the peer should be told of by now, if it should.
    pub fn credit_owed(&self) -> Option<Credit> {
        self.received.owes_credit().then(|| self.credit())
    }

    /// All that the peer may know.
    pub fn credit(&self) -> Credit {
        self.received.credit()
    }

    /// It is told of [`credit`](Self::credit) now.
    pub fn told(&mut self) {
        self.received.told();
    }

    /// How many bytes the next message to the peer may have; 0 is none at all.
    pub fn room(&self) -> usize {
        self.peer.as_ref().map_or(0, |peer| peer.window.room())
    }

    /// A message of `bytes` goes, at most [`room`](Self::room): where to. `None` before the greeting.
    pub fn send(&mut self, bytes: usize) -> Option<RemoteAddr> {
        let peer = self.peer.as_mut()?;
        Some(RemoteAddr {
            addr: peer.ring.addr + peer.window.send(bytes),
            rkey: peer.ring.rkey,
        })
    }

    /// The peer's ring, which a write of nothing may aim at. `None` before the greeting.
    pub fn peer_ring(&self) -> Option<RemoteAddr> {
        self.peer.map(|peer| peer.ring)
    }

    /// Entries of the peer's table.
    pub fn peer_mappings(&self) -> u16 {
        self.peer.map_or(0, |peer| peer.table_entries)
    }

    /// Where an entry of the peer's table lies, when there is one of this position.
    pub fn peer_entry(&self, position: u16) -> Option<RemoteAddr> {
        let peer = self.peer.filter(|peer| position < peer.table_entries)?;
        Some(RemoteAddr {
            addr: peer.table.addr + u64::from(position) * ENTRY_BYTES as u64,
            rkey: peer.table.rkey,
        })
    }
}
