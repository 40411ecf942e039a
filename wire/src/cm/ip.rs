//! What RDMA CM puts in front of the private data of a REQ or SIDR_REQ: from which address and port to which address
//! (IBA annex A11, "IP addressing CM service").

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::{Layer, ParseError};

/// Bytes of the header.
pub const IP_CM_LEN: usize = 36;

/// Who asks, and whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IpCm {
    /// Address and port of the requester.
    pub source: SocketAddr,
    /// Address of the responder, of the same family; the port is in the service ID.
    pub destination: IpAddr,
}

impl IpCm {
    /// From the start of a request's private data.
    ///
    /// # Errors
    /// Too few bytes; another version than 0.0; an IP version other than 4 and 6.
    pub fn parse(private_data: &[u8]) -> Result<Self, ParseError> {
        let bytes: &[u8; IP_CM_LEN] = private_data.first_chunk().ok_or(ParseError::Truncated {
            layer: Layer::IpCm,
            offset: 0,
            needed: IP_CM_LEN,
            available: private_data.len(),
        })?;
        let invalid = |field, value: u8, expected| ParseError::Invalid {
            layer: Layer::IpCm,
            offset: 0,
            field,
            value: value.into(),
            expected,
        };
        if bytes[0] != 0 {
            return Err(invalid("version", bytes[0], "0"));
        }
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let (source, destination) = (&bytes[4..20], &bytes[20..36]);
        match bytes[1] >> 4 {
            4 => Ok(IpCm {
                source: SocketAddr::new(v4(source).into(), port),
                destination: v4(destination).into(),
            }),
            6 => Ok(IpCm {
                source: SocketAddr::new(v6(source).into(), port),
                destination: v6(destination).into(),
            }),
            other => Err(invalid("IP version", other, "4 or 6")),
        }
    }

    /// Its bytes.
    pub fn to_bytes(&self) -> [u8; IP_CM_LEN] {
        let mut bytes = [0; IP_CM_LEN];
        bytes[1] = if self.source.is_ipv4() { 0x40 } else { 0x60 };
        bytes[2..4].copy_from_slice(&self.source.port().to_be_bytes());
        put(&mut bytes[4..20], self.source.ip());
        put(&mut bytes[20..36], self.destination);
        bytes
    }
}

/// An IPv4 address stands in the last four of sixteen bytes.
fn v4(bytes: &[u8]) -> Ipv4Addr {
    Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15])
}

fn v6(bytes: &[u8]) -> Ipv6Addr {
    Ipv6Addr::from(*bytes.first_chunk::<16>().expect("sixteen bytes"))
}

fn put(bytes: &mut [u8], address: IpAddr) {
    match address {
        IpAddr::V4(v4) => bytes[12..].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes.copy_from_slice(&v6.octets()),
    }
}
