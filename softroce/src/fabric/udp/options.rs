//! How to open a fabric.

use std::net::IpAddr;

use super::super::sys::HeaderFields;
use super::Endpoint;

/// How to open a [`UdpFabric`](super::UdpFabric).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UdpOptions {
    /// Where it sits.
    pub endpoint: Endpoint,
    /// Trains (`UDP_SEGMENT` and `UDP_GRO`), where the kernel has them; or every packet by itself.
    pub trains: Trains,
    /// Receive buffer to ask for, bytes as the kernel counts them, which caps it at twice `net.core.rmem_max`.
    /// `None`: the system's default.
    pub receive_buffer_bytes: Option<u32>,
    /// Whether the traffic class and the hop limit of packets that arrive are told.
    pub header_fields: HeaderFields,
}

/// Whether runs of packets travel as trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trains {
    /// Where the kernel can.
    #[default]
    Allowed,
    /// Every packet is sent and received by itself.
    Never,
}

impl UdpOptions {
    /// The usual options for an address.
    pub fn new(address: IpAddr) -> Self {
        UdpOptions {
            endpoint: Endpoint::Address(address),
            trains: Trains::default(),
            receive_buffer_bytes: None,
            header_fields: HeaderFields::default(),
        }
    }
}
