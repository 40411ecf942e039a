//! Management datagrams (MADs): 256 bytes, on RoCE between queue pairs 1 (IBA 13.4.2).
//!
//! Their header is the same in all classes; the rest is the class's own, see [`cm`](crate::cm).

use crate::fields::layout;
use crate::{Layer, ParseError, QKey};

/// Bytes of a datagram.
pub const MAD_LEN: usize = 256;
/// Bytes of the header that all classes have.
pub const MAD_HEADER_LEN: usize = MadHeader::LEN;
/// The Q_Key of queue pair 1 (IBA 10.2.5).
pub const GSI_QKEY: QKey = QKey(0x8001_0000);
/// The only base version.
pub const BASE_VERSION: u8 = 1;

/// Management classes.
pub mod class {
    /// Subnet administration.
    pub const SUBNET_ADMINISTRATION: u8 = 0x03;
    /// Performance management.
    pub const PERFORMANCE: u8 = 0x04;
    /// Communication management.
    pub const COMMUNICATION: u8 = 0x07;
}

/// Methods. Bit 7 marks a response.
pub mod method {
    /// Read an attribute.
    pub const GET: u8 = 0x01;
    /// Write an attribute.
    pub const SET: u8 = 0x02;
    /// A message that is no request for an attribute: all of communication management.
    pub const SEND: u8 = 0x03;
    /// The answer to [`GET`] and [`SET`].
    pub const GET_RESPONSE: u8 = 0x81;
}

layout! {
    /// The header of every datagram.
    MadHeader[24] {
        /// Must be [`BASE_VERSION`].
        base_version: u8 = 0:0, 8;
        /// Management class.
        class: u8 = 1:0, 8;
        /// The class's version.
        class_version: u8 = 2:0, 8;
        /// What to do.
        method: u8 = 3:0, 8;
        /// 0 in requests.
        status: u16 = 4:0, 16;
        /// The class's own.
        class_specific: u16 = 6:0, 16;
        /// The number that an answer repeats.
        transaction_id: u64 = 8:0, 64;
        /// About what.
        attribute_id: u16 = 16:0, 16;
        /// In more detail.
        attribute_modifier: u32 = 20:0, 32;
    }
}

impl MadHeader {
    /// The header at the start of a datagram.
    ///
    /// # Errors
    /// Not 256 bytes; another base version than 1.
    pub fn parse(mad: &[u8]) -> Result<(Self, &[u8; MAD_LEN]), ParseError> {
        let whole: &[u8; MAD_LEN] = mad.try_into().map_err(|_| ParseError::Truncated {
            layer: Layer::Mad,
            offset: 0,
            needed: MAD_LEN,
            available: mad.len(),
        })?;
        let header = Self::read(whole.first_chunk().expect("a MAD is longer than its header"));
        if header.base_version != BASE_VERSION {
            return Err(ParseError::Invalid {
                layer: Layer::Mad,
                offset: 0,
                field: "base version",
                value: header.base_version.into(),
                expected: "1",
            });
        }
        Ok((header, whole))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_datagram_is_256_bytes_of_base_version_1() {
        let mut mad = [0; MAD_LEN];
        (mad[0], mad[1], mad[17]) = (1, class::COMMUNICATION, 0x10);
        let (header, _) = MadHeader::parse(&mad).unwrap();
        assert_eq!((header.class, header.attribute_id), (7, 0x10));
        assert_eq!(
            MadHeader::parse(&mad[..255]).unwrap_err().to_string(),
            "MAD at byte 0 needs 256 bytes, 255 are there"
        );
        mad[0] = 2;
        assert_eq!(
            MadHeader::parse(&mad).unwrap_err().to_string(),
            "MAD at byte 0: base version is 0x2, must be 1"
        );
    }
}
