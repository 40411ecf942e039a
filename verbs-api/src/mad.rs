//! Management datagrams: the 256-byte messages of QP0 and QP1, as libibumad offers them.
//!
//! A provider may lack them: [`MadProvider`] is a trait of its own, implemented next to [`Provider`].

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::{AddressVector, Object, Provider, Result};

/// A datagram. On the wire its header's fields are big endian; here it is only bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Mad(pub [u8; Mad::LENGTH]);

impl Mad {
    /// Bytes of a datagram.
    pub const LENGTH: usize = 256;

    /// Base version (1).
    pub fn base_version(&self) -> u8 {
        self.0[0]
    }
    /// Management class, such as 0x03 for subnet administration or 0x07 for communication management.
    pub fn class(&self) -> u8 {
        self.0[1]
    }
    /// Version of the class.
    pub fn class_version(&self) -> u8 {
        self.0[2]
    }
    /// Method; bit 7 marks a response.
    pub fn method(&self) -> u8 {
        self.0[3]
    }
    /// Whether it answers another one.
    pub fn is_response(&self) -> bool {
        self.method() & 0x80 != 0
    }
    /// The number that a response repeats.
    pub fn transaction_id(&self) -> u64 {
        u64::from_be_bytes(self.0[8..16].try_into().expect("8 bytes"))
    }
    /// Attribute ID.
    pub fn attribute_id(&self) -> u16 {
        u16::from_be_bytes(self.0[16..18].try_into().expect("2 bytes"))
    }
    /// Attribute modifier.
    pub fn attribute_modifier(&self) -> u32 {
        u32::from_be_bytes(self.0[20..24].try_into().expect("4 bytes"))
    }
}

impl Default for Mad {
    fn default() -> Self {
        Mad([0; Mad::LENGTH])
    }
}

impl std::fmt::Debug for Mad {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mad")
            .field("class", &self.class())
            .field("method", &self.method())
            .field("transaction_id", &self.transaction_id())
            .field("attribute_id", &self.attribute_id())
            .finish_non_exhaustive()
    }
}

/// What an agent wants to receive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MadRegistration {
    /// 0 for QP0, 1 for QP1.
    pub qpn: u8,
    /// Management class.
    pub class: u8,
    /// Its version.
    pub class_version: u8,
    /// Vendor classes (0x30–0x4F): their OUI.
    pub oui: [u8; 3],
    /// Requests of these methods reach the agent, one bit each; empty: only responses to its own requests.
    pub methods: u128,
    /// The provider puts segments of long messages together (RMPP).
    pub reassemble: bool,
}

/// A datagram as it arrived, or a request of one's own that nobody answered.
#[derive(Clone, Debug)]
pub struct ReceivedMad {
    /// Its bytes. Longer than [`Mad::LENGTH`] only when segments were put together.
    pub bytes: Vec<u8>,
    /// 0, or the error number of a request that failed (ETIMEDOUT).
    pub status: i32,
    /// Who sent it.
    pub from: AddressVector,
    /// The sender's queue pair.
    pub remote_qpn: u32,
    /// The Q_Key that it was sent with.
    pub remote_qkey: u32,
}

/// A provider that hands out agents.
pub trait MadProvider: Provider {
    /// An agent.
    type Agent: MadAgent;
    /// A new agent on `port` (from 1) of the device.
    fn register_agent(
        context: &Self::Context,
        port: u8,
        registration: &MadRegistration,
    ) -> Result<Self::Agent>;
}

/// Sends and receives datagrams of one class.
pub trait MadAgent: Object {
    /// Readable while a datagram waits.
    fn fd(&self) -> BorrowedFd<'_>;
    /// Send `mad`. A request is sent again, `retries` times, when no response came within `timeout`; a zero timeout
    /// expects none.
    fn send(
        &self,
        mad: &Mad,
        to: &AddressVector,
        remote: (u32, u32),
        timeout: Duration,
        retries: u32,
    ) -> Result<()>;
    /// Wait for the next datagram (`None`: without end; zero: do not wait); `None` when the time is over.
    fn receive(&self, timeout: Option<Duration>) -> Result<Option<ReceivedMad>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_fields_are_read_in_network_order() {
        let mut mad = Mad::default();
        mad.0[..4].copy_from_slice(&[1, 7, 2, 0x83]);
        mad.0[8..16].copy_from_slice(&[0, 0, 0, 0, 0, 0, 1, 2]);
        mad.0[16..18].copy_from_slice(&[0, 0x10]);
        mad.0[20..24].copy_from_slice(&[0, 0, 0, 9]);
        assert_eq!(
            (mad.base_version(), mad.class(), mad.class_version(), mad.method()),
            (1, 7, 2, 0x83)
        );
        assert!(mad.is_response());
        assert_eq!(
            (mad.transaction_id(), mad.attribute_id(), mad.attribute_modifier()),
            (0x102, 0x10, 9)
        );
    }
}
