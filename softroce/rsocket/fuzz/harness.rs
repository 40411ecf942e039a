//! A socket whose peer says whatever the bytes say: greetings, data, control messages, entries of the table of mappings,
//! headers of datagrams. Nothing panics; what is read lies in the socket's ring, what is sent goes where the peer has said
//! that it has room, and the accounts never exceed what was agreed on. Run by the fuzz target, and by the package's tests
//! with its corpus and with random bytes.

use softroce_rsocket::conversation::Conversation;
use softroce_rsocket::mapping::{ENTRY_BYTES, Table};
use softroce_rsocket::message::datagram::{GRH_BYTES, HEADER_BYTES, sender};
use softroce_rsocket::message::{CONTROL_BYTES, Control, Credit, HELLO_BYTES, Hello, Violation};
use verbs_api::{RKey, RemoteAddr};

#[path = "../../../tests/fuzz/bytes.rs"]
mod bytes;

use bytes::Bytes;

const RING_BYTES: u32 = 100;
const MESSAGES: u16 = 4;
const ENTRIES: u16 = 3;

/// A socket, and what it has really sent and received.
struct Run<'a> {
    bytes: Bytes<'a>,
    conversation: Conversation,
    hello: Option<Hello>,
    table: Table,
    arrived: Credit,
    taken: u64,
    sent: Credit,
}

/// See the module's documentation.
pub fn run(bytes: &[u8]) {
    let mut run = Run {
        bytes: Bytes::new(bytes),
        conversation: Conversation::new(RING_BYTES, MESSAGES),
        hello: None,
        table: Table::new(ENTRIES),
        arrived: Credit::default(),
        taken: 0,
        sent: Credit::default(),
    };
    while !run.bytes.is_empty() {
        let before = run.conversation.peer_has_ended();
        // A peer that does not keep to the protocol is heard no more.
        if run.step().is_err() {
            return;
        }
        assert!(!before || run.conversation.peer_has_ended(), "an end is for good");
        run.check();
    }
}

impl Run<'_> {
    fn step(&mut self) -> Result<(), Violation> {
        match self.bytes.next() % 8 {
            0 => self.greet(),
            1 => self.data(),
            2 => self.noise(),
            3 => self.control(),
            4 => {
                self.read();
                Ok(())
            }
            5 => {
                self.send();
                Ok(())
            }
            6 => {
                self.map();
                Ok(())
            }
            _ => {
                self.datagram();
                Ok(())
            }
        }
    }

    /// Any greeting is parsed; of a sound one, the first counts.
    fn greet(&mut self) -> Result<(), Violation> {
        let sound = Hello {
            messages: u16::from(self.bytes.next() % 8),
            ring: RemoteAddr {
                addr: self.bytes.number(),
                rkey: RKey(7),
            },
            ring_bytes: u32::from(self.bytes.next()),
            table: RemoteAddr {
                addr: self.bytes.number(),
                rkey: RKey(8),
            },
            table_entries: u16::from(self.bytes.next() % 5),
        };
        let mut greeting = sound.to_bytes();
        let spoilt = self.bytes.next();
        if let Some(byte) = greeting.get_mut(usize::from(spoilt)) {
            *byte = self.bytes.next();
        }
        let length = HELLO_BYTES - usize::from(spoilt == u8::MAX);
        let hello = Hello::parse(&greeting[..length])?;
        assert_eq!(Hello::parse(&hello.to_bytes()), Ok(hello));
        if self.hello.is_none() {
            self.hello = Some(hello);
            self.conversation.meet(&hello);
        }
        Ok(())
    }

    fn data(&mut self) -> Result<(), Violation> {
        let bytes = u32::from(self.bytes.next());
        let immediate = match self.bytes.next() {
            0 => None,
            1 => Some(self.bytes.number() as u32),
            _ => Some(bytes),
        };
        self.conversation.data(bytes, immediate)?;
        assert!(bytes > 0 && immediate == Some(bytes));
        self.arrived.bytes += u64::from(bytes);
        self.arrived.messages += 1;
        Ok(())
    }

    /// A control message of any bytes.
    fn noise(&mut self) -> Result<(), Violation> {
        let length = usize::from(self.bytes.next()) % (CONTROL_BYTES + 2);
        let noise: [u8; CONTROL_BYTES + 1] = self.bytes.many();
        self.conversation.control(&noise[..length])
    }

    /// One that is well-formed, near the truth.
    fn control(&mut self) -> Result<(), Violation> {
        let [kind, bytes, messages] = self.bytes.many();
        let credit = Credit {
            bytes: self.sent.bytes.wrapping_sub(u64::from(bytes % 16)),
            messages: self.sent.messages.wrapping_sub(u64::from(messages % 4)),
        };
        let control = match kind % 8 {
            0 => Control::End(credit),
            _ => Control::Credit(credit),
        };
        assert_eq!(Control::parse(&control.to_bytes()), Ok(control));
        self.conversation.control(&control.to_bytes())?;
        assert!(self.hello.is_some(), "a credit before the greeting");
        assert!(credit.bytes <= self.sent.bytes && credit.messages <= self.sent.messages);
        Ok(())
    }

    /// The program reads.
    fn read(&mut self) {
        let wanted = usize::from(self.bytes.next());
        let count = wanted.min(self.conversation.readable());
        let places = self.conversation.places(count);
        assert_eq!(places.iter().map(ExactSizeIterator::len).sum::<usize>(), count);
        assert!(places.iter().all(|place| place.end <= RING_BYTES as usize));
        self.conversation.take(count);
        self.taken += count as u64;
        if let Some(credit) = self.conversation.credit_owed() {
            assert_eq!(
                (credit.bytes, credit.messages),
                (self.taken, self.arrived.messages)
            );
            self.conversation.told();
            assert_eq!(self.conversation.credit_owed(), None);
        }
    }

    /// The program writes.
    fn send(&mut self) {
        let wanted = usize::from(self.bytes.next());
        let bytes = wanted.min(self.conversation.room());
        if bytes == 0 {
            return;
        }
        let hello = self.hello.expect("there is no room before the greeting");
        let to = self.conversation.send(bytes).expect("there was room");
        let end = to.addr + bytes as u64;
        assert!(to.rkey == hello.ring.rkey && to.addr >= hello.ring.addr);
        assert!(end <= hello.ring.addr + u64::from(hello.ring_bytes));
        self.sent.bytes += bytes as u64;
        self.sent.messages += 1;
    }

    /// The peer writes to the table, and the program looks for a buffer of the peer's in it.
    fn map(&mut self) {
        let at = usize::from(self.bytes.next()) % (usize::from(ENTRIES) * ENTRY_BYTES);
        let word: [u8; 8] = self.bytes.many();
        let fits = word.len().min(self.table.memory().len() - at);
        self.table.memory().write(at, &word[..fits]);
        let (offset, bytes) = match self.bytes.next() % 2 {
            0 => (self.bytes.number(), self.bytes.number()),
            _ => (self.bytes.next().into(), self.bytes.next().into()),
        };
        if let Some(target) = self.table.find(offset, bytes) {
            assert!(target.addr.checked_add(bytes.saturating_sub(1)).is_some());
        }
        let position = u16::from(self.bytes.next());
        let entries = self.hello.map_or(0, |hello| hello.table_entries);
        let entry = self.conversation.peer_entry(position);
        assert_eq!(
            entry.is_some(),
            position < entries,
            "entries are those of the peer's table"
        );
    }

    fn datagram(&mut self) {
        let mut head: [u8; GRH_BYTES + HEADER_BYTES] = self.bytes.many();
        if self.bytes.next().is_multiple_of(2) {
            head[GRH_BYTES..GRH_BYTES + 4].copy_from_slice(b"SD\x01\0");
        }
        if let Some(from) = sender(&head) {
            assert!(from.port() != 0);
            let is_mapped = |ip: std::net::Ipv6Addr| ip.to_ipv4_mapped().is_some();
            assert!(!matches!(from.ip(), std::net::IpAddr::V6(ip) if is_mapped(ip)));
        }
    }

    /// What holds at any time.
    fn check(&self) {
        assert_eq!(
            self.conversation.readable() as u64,
            self.arrived.bytes - self.taken
        );
        assert!(self.conversation.readable() <= RING_BYTES as usize);
        let ring_bytes = self.hello.map_or(0, |hello| hello.ring_bytes);
        assert!(self.conversation.room() <= ring_bytes as usize);
    }
}
