//! What two sockets tell each other: the greeting in the private data of the handshake, control messages, and the
//! immediate value of data. All of it comes from a peer and is believed only as far as it is checked here and in
//! [`window`](crate::window).
//!
//! All numbers are big endian.
//!
//! | greeting, 40 bytes | |
//! |---|---|
//! | 0–3 | `SRSK` |
//! | 4 | version, 1 |
//! | 5 | zero |
//! | 6–7 | data messages that may be on their way to this side |
//! | 8–15, 16–19, 20–23 | its receive ring: address, key, bytes |
//! | 24–31, 32–35, 36–37 | its table of mappings: address, key, entries (0: none) |
//! | 38–39 | zero |
//!
//! | control message, 24 bytes | |
//! |---|---|
//! | 0 | kind: 1 credit, 2 end of data |
//! | 1–7 | zero |
//! | 8–15 | bytes that were taken out of the receive ring, since the beginning |
//! | 16–23 | data messages that arrived, since the beginning |
//!
//! Data is an RDMA WRITE with immediate into the receive ring, at the place that follows from all before. The immediate
//! says how many bytes it has. [`datagram`] has what stands in front of datagrams.

use verbs_api::{RKey, RemoteAddr};

pub mod datagram;

const MAGIC: [u8; 4] = *b"SRSK";
const VERSION: u8 = 1;

/// Bytes of a greeting.
pub const HELLO_BYTES: usize = 40;
/// Bytes of a control message.
pub const CONTROL_BYTES: usize = 24;
/// A receive ring is at most so large.
pub const RING_BYTES_MAX: u32 = 1 << 28;
/// A table of mappings has at most so many entries.
pub const MAPPINGS_MAX: u16 = 1024;

/// Something that no peer of ours says. The connection ends with EPROTO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// The greeting is too short, of another protocol or version, or its numbers are out of range.
    Hello,
    /// A control message has the wrong length or an unknown kind.
    Control,
    /// Data whose length is zero, or not what its immediate says, or that has no room where it must lie.
    Data,
    /// A credit that takes something back, or gives back what was never sent.
    Credit,
    /// Data after the end of data, or a second end.
    AfterEnd,
}

/// What a side tells the other at connection time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Data messages that may be on their way to this side, at least 1.
    pub messages: u16,
    /// The start of its receive ring.
    pub ring: RemoteAddr,
    /// The ring's bytes, at least 1.
    pub ring_bytes: u32,
    /// The start of its table of mappings.
    pub table: RemoteAddr,
    /// The table's entries.
    pub table_entries: u16,
}

impl Hello {
    /// As private data.
    pub fn to_bytes(&self) -> [u8; HELLO_BYTES] {
        let mut bytes = [0; HELLO_BYTES];
        bytes[0..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[6..8].copy_from_slice(&self.messages.to_be_bytes());
        put_place(&mut bytes[8..20], self.ring);
        bytes[20..24].copy_from_slice(&self.ring_bytes.to_be_bytes());
        put_place(&mut bytes[24..36], self.table);
        bytes[36..38].copy_from_slice(&self.table_entries.to_be_bytes());
        bytes
    }

    /// From private data, which may be padded.
    pub fn parse(bytes: &[u8]) -> Result<Hello, Violation> {
        let bytes: &[u8; HELLO_BYTES] = bytes.first_chunk().ok_or(Violation::Hello)?;
        let hello = Hello {
            messages: u16::from_be_bytes(part(bytes, 6)),
            ring: place(bytes, 8),
            ring_bytes: u32::from_be_bytes(part(bytes, 20)),
            table: place(bytes, 24),
            table_entries: u16::from_be_bytes(part(bytes, 36)),
        };
        let is_sound = bytes[0..4] == MAGIC
            && bytes[4] == VERSION
            && hello.messages > 0
            && (1..=RING_BYTES_MAX).contains(&hello.ring_bytes)
            && hello.table_entries <= MAPPINGS_MAX
            && hello.ring.addr.checked_add(hello.ring_bytes.into()).is_some()
            && hello.table.addr.checked_add(TABLE_BYTES_MAX).is_some();
        is_sound.then_some(hello).ok_or(Violation::Hello)
    }
}

/// No table has more bytes.
const TABLE_BYTES_MAX: u64 = 32 * MAPPINGS_MAX as u64;

/// How much of what a side sent the other is done with, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credit {
    /// Bytes that were taken out of the receive ring.
    pub bytes: u64,
    /// Data messages that arrived.
    pub messages: u64,
}

/// A control message. Each brings the latest credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// Nothing but the credit.
    Credit(Credit),
    /// No data follows.
    End(Credit),
}

impl Control {
    /// The bytes of the message.
    pub fn to_bytes(&self) -> [u8; CONTROL_BYTES] {
        let (kind, credit) = match self {
            Control::Credit(credit) => (1, credit),
            Control::End(credit) => (2, credit),
        };
        let mut bytes = [0; CONTROL_BYTES];
        bytes[0] = kind;
        bytes[8..16].copy_from_slice(&credit.bytes.to_be_bytes());
        bytes[16..24].copy_from_slice(&credit.messages.to_be_bytes());
        bytes
    }

    /// From a received message.
    pub fn parse(bytes: &[u8]) -> Result<Control, Violation> {
        let bytes: &[u8; CONTROL_BYTES] = bytes.try_into().map_err(|_| Violation::Control)?;
        let credit = Credit {
            bytes: u64::from_be_bytes(part(bytes, 8)),
            messages: u64::from_be_bytes(part(bytes, 16)),
        };
        match bytes[0] {
            1 => Ok(Control::Credit(credit)),
            2 => Ok(Control::End(credit)),
            _ => Err(Violation::Control),
        }
    }
}

fn put_place(bytes: &mut [u8], place: RemoteAddr) {
    bytes[..8].copy_from_slice(&place.addr.to_be_bytes());
    bytes[8..12].copy_from_slice(&place.rkey.0.to_be_bytes());
}

fn place(bytes: &[u8], at: usize) -> RemoteAddr {
    RemoteAddr {
        addr: u64::from_be_bytes(part(bytes, at)),
        rkey: RKey(u32::from_be_bytes(part(bytes, at + 8))),
    }
}

/// `N` bytes from `at`, which the caller knows to be there.
pub(crate) fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut part = [0; N];
    part.copy_from_slice(&bytes[at..at + N]);
    part
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello() -> Hello {
        let at = |addr, rkey| RemoteAddr {
            addr,
            rkey: RKey(rkey),
        };
        Hello {
            messages: 0x0102,
            ring: at(0x1112_1314_1516_1718, 0x2122_2324),
            ring_bytes: 0x0032_3334,
            table: at(0x4142_4344_4546_4748, 0x5152_5354),
            table_entries: 0x0062,
        }
    }

    #[test]
    fn a_greeting_has_its_fields_where_the_table_says_and_may_be_padded() {
        let mut bytes = hello().to_bytes().to_vec();
        assert_eq!(bytes[..8], [b'S', b'R', b'S', b'K', 1, 0, 1, 2]);
        assert_eq!(
            bytes[8..24],
            [
                0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0, 0x32, 0x33, 0x34
            ]
        );
        assert_eq!(bytes[36..], [0, 0x62, 0, 0]);
        bytes.resize(196, 0);
        assert_eq!(Hello::parse(&bytes), Ok(hello()));
    }

    #[test]
    fn greetings_with_numbers_out_of_range_are_refused() {
        let broken = |change: fn(&mut Hello)| {
            let mut hello = hello();
            change(&mut hello);
            Hello::parse(&hello.to_bytes())
        };
        assert_eq!(broken(|h| h.messages = 0), Err(Violation::Hello));
        assert_eq!(broken(|h| h.ring_bytes = 0), Err(Violation::Hello));
        assert_eq!(
            broken(|h| h.ring_bytes = RING_BYTES_MAX + 1),
            Err(Violation::Hello)
        );
        assert_eq!(broken(|h| h.ring.addr = u64::MAX), Err(Violation::Hello));
        assert_eq!(broken(|h| h.table.addr = u64::MAX - 5), Err(Violation::Hello));
        assert_eq!(
            broken(|h| h.table_entries = MAPPINGS_MAX + 1),
            Err(Violation::Hello)
        );
        assert_eq!(Hello::parse(&hello().to_bytes()[..39]), Err(Violation::Hello));
        // Another version, and another program's private data.
        let mut bytes = hello().to_bytes();
        bytes[4] = 2;
        assert_eq!(Hello::parse(&bytes), Err(Violation::Hello));
        assert_eq!(Hello::parse(&[0; 56]), Err(Violation::Hello));
    }

    #[test]
    fn control_messages_come_back_as_they_were() {
        let credit = Credit {
            bytes: 5,
            messages: u64::MAX,
        };
        for control in [Control::Credit(credit), Control::End(credit)] {
            assert_eq!(Control::parse(&control.to_bytes()), Ok(control));
        }
        assert_eq!(Control::parse(&[3; CONTROL_BYTES]), Err(Violation::Control));
        assert_eq!(Control::parse(&[1; CONTROL_BYTES - 1]), Err(Violation::Control));
        assert_eq!(Control::parse(&[1; CONTROL_BYTES + 1]), Err(Violation::Control));
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            if let Ok(hello) = Hello::parse(&bytes) {
                prop_assert!(hello.messages > 0 && hello.ring_bytes > 0);
            }
            let _ = Control::parse(&bytes);
        }
    }
}
