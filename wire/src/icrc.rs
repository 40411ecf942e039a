//! The invariant CRC that ends every packet (IBA annex A17; volume 1, 7.8.1).
//!
//! It is the CRC-32 of Ethernet over eight bytes of ones, then the IP header, the UDP header and the packet,
//! with every field that a router may change replaced by ones: of IPv4 the type of service, time to live and
//! header checksum; of IPv6 the traffic class, flow label and hop limit; the UDP checksum; and of the BTH the
//! byte with the congestion bits. It goes on the wire with its least significant byte first.
//!
//! A UDP socket sees no IP header, yet the ICRC covers it. Addresses and ports are known from the socket and
//! lengths follow from the packet; IPv4's identification is what is missing. A CRC is linear: the difference
//! between the ICRC received and the one computed for a guessed identification depends on nothing but the wrong
//! bits and how many bytes follow them. So [`verify`] carries that difference back to the place of the
//! identification, where all bits outside it must be 0: it learns the identification and still checks 16 bits
//! (15 when the sender cleared "don't fragment", which is found the same way).

use std::net::IpAddr;

use crate::{BTH_LEN, ICRC_LEN, ParseError, crc32};

mod linear;

/// What the pseudo headers need to know of a packet's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Flow {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// UDP source port.
    pub source_port: u16,
    /// UDP destination port: [`crate::ROCE_V2_PORT`].
    pub dest_port: u16,
}

/// What an ICRC says of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// Right, with an expected IPv4 identification or none.
    Valid,
    /// Right if the IPv4 identification was this one, which no hint named.
    ValidWithIpId(u16),
    /// Wrong: the packet must be dropped silently.
    Invalid,
}

/// Writes the ICRC of a packet into its last four bytes, for an IP header with "don't fragment" set and
/// identification `ip_id` (IPv6 has none).
///
/// # Panics
/// When `packet` is shorter than a BTH and an ICRC, or longer than a UDP datagram may be.
pub fn seal(flow: &Flow, ip_id: u16, packet: &mut [u8]) {
    FlowCrc::new(flow).seal(ip_id, packet);
}

/// Checks the ICRC in the last four bytes of `packet`. A packet whose IPv4 identification is among the hints
/// (0 when there are none) is [`Verdict::Valid`]. Put the likeliest first: only for the others the identification
/// has to be recovered, which takes some 70 ns (`examples/icrc_speed.rs`). The segments of one `UDP_SEGMENT` send
/// are numbered from 0, so `[i, 0]` serves for segment `i`.
pub fn verify(flow: &Flow, ip_id_hints: &[u16], packet: &[u8]) -> Verdict {
    FlowCrc::new(flow).verify(ip_id_hints, packet)
}

/// Choose how ICRCs are computed from now on, in all of this process: by the way that is faster on this machine, going by
/// `now_ns`, a clock in nanoseconds. It takes some microseconds. Without it the processor's own instructions are used
/// where it claims to have them; an emulated one has them too, and is slow at them.
pub fn choose_faster_way(now_ns: impl FnMut() -> u64) {
    crc32::choose(now_ns);
}

/// The ICRC of a whole IP packet, of which nothing has to be guessed; its last four bytes are taken for the
/// ICRC and left out.
///
/// # Errors
/// The bytes are not an unfragmented UDP packet without IP options that is long enough for a BTH and an ICRC.
pub fn of_ip_packet(packet: &[u8]) -> Result<[u8; ICRC_LEN], ParseError> {
    let frame = crate::frame::parse_ip(packet)?;
    frame.icrc()
}

/// The state of the CRC after the headers of one flow, as far as it is the same for all packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowCrc {
    /// After IP and UDP headers with lengths and identification 0.
    base: u32,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

const ONES: u8 = 0xff;
const LRH_STAND_IN: [u8; 8] = [ONES; 8];
const UDP_LEN: usize = 8;
const IPV4_LEN: usize = 20;
/// A BTH byte that routers change: FECN, BECN and reserved bits.
const BTH_CONGESTION: usize = 4;
/// Up to so many bytes behind the BTH, looking each up in a table takes less time than what is made for many.
const SMALL_LEN: usize = 64;
/// IP counts its own header, and UDP's, in 16 bits.
const MAX_PACKET_LEN: usize = u16::MAX as usize - IPV4_LEN - UDP_LEN;

impl FlowCrc {
    /// The addresses must be of one family; a mapped IPv4 address counts as IPv4. (Of a mixed pair the IPv4
    /// address is taken as a mapped one.)
    pub fn new(flow: &Flow) -> Self {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&LRH_STAND_IN);
        let family = match (flow.src.to_canonical(), flow.dst.to_canonical()) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let (s, d) = (src.octets(), dst.octets());
                hasher.update(&[
                    0x45, ONES, 0, 0, 0, 0, 0x40, 0, ONES, 17, ONES, ONES, s[0], s[1], s[2], s[3], d[0],
                    d[1], d[2], d[3],
                ]);
                Family::V4
            }
            (src, dst) => {
                hasher.update(&[0x6f, ONES, ONES, ONES, 0, 0, 17, ONES]);
                hasher.update(&crate::gid::from_ip(src));
                hasher.update(&crate::gid::from_ip(dst));
                Family::V6
            }
        };
        let ([s0, s1], [d0, d1]) = (flow.source_port.to_be_bytes(), flow.dest_port.to_be_bytes());
        hasher.update(&[s0, s1, d0, d1, 0, 0, ONES, ONES]);
        Self {
            base: hasher.finalize(),
            family,
        }
    }

    /// As [`seal`].
    ///
    /// # Panics
    /// As [`seal`].
    pub fn seal(&self, ip_id: u16, packet: &mut [u8]) {
        let len = packet.len();
        assert!(
            (BTH_LEN + ICRC_LEN..=MAX_PACKET_LEN).contains(&len),
            "a packet of {len} bytes cannot be sealed (16 to {MAX_PACKET_LEN})"
        );
        let (body, icrc) = packet.split_at_mut(len - ICRC_LEN);
        icrc.copy_from_slice(&self.crc(ip_id, body).to_le_bytes());
    }

    /// As [`verify`].
    pub fn verify(&self, ip_id_hints: &[u16], packet: &[u8]) -> Verdict {
        let Some((body, icrc)) = packet
            .split_last_chunk::<ICRC_LEN>()
            .filter(|(body, _)| body.len() >= BTH_LEN && packet.len() <= MAX_PACKET_LEN)
        else {
            return Verdict::Invalid;
        };
        let guess = ip_id_hints.first().copied().unwrap_or(0);
        let difference = self.crc(guess, body) ^ u32::from_le_bytes(*icrc);
        if difference == 0 {
            return Verdict::Valid;
        }
        match self.family {
            Family::V6 => Verdict::Invalid,
            Family::V4 => match recover_ip_id(difference, guess, body.len()) {
                Some(ip_id) if ip_id_hints.contains(&ip_id) => Verdict::Valid,
                Some(ip_id) if ip_id_hints.is_empty() && ip_id == 0 => Verdict::Valid,
                Some(ip_id) => Verdict::ValidWithIpId(ip_id),
                None => Verdict::Invalid,
            },
        }
    }

    /// The CRC of a packet without its ICRC. `body` has at least a BTH.
    fn crc(&self, ip_id: u16, body: &[u8]) -> u32 {
        let udp_len = (body.len() + ICRC_LEN + UDP_LEN) as u16;
        let prefix = match self.family {
            Family::V4 => self.base ^ linear::ipv4_fields(udp_len + IPV4_LEN as u16, ip_id, udp_len),
            Family::V6 => self.base ^ linear::ipv6_fields(udp_len),
        };
        let (bth, rest) = body.split_at(BTH_LEN);
        let mut masked = [0; BTH_LEN];
        masked.copy_from_slice(bth);
        masked[BTH_CONGESTION] = ONES;
        let after_bth = linear::update_few(prefix, &masked);
        if rest.len() <= SMALL_LEN {
            // Such packets are what programs wait for.
            return linear::update_few(after_bth, rest);
        }
        crc32::append(after_bth, rest)
    }
}

/// The identification that explains `difference`, given that `guess` was used instead; `None` when none does.
fn recover_ip_id(difference: u32, guess: u16, body_len: usize) -> Option<u16> {
    /// "Don't fragment", where the third of the four recovered bytes has it.
    const DONT_FRAGMENT: u32 = 0x0040_0000;
    // The four bytes from the identification on, read as one little-endian word, entered the CRC before the
    // rest of the IP header, the UDP header and the body.
    let bytes_since = 4 + (IPV4_LEN - 8) + UDP_LEN + body_len;
    let wrong_bits = linear::carry_back(difference, bytes_since);
    let wrong_flags = wrong_bits & 0xffff_0000;
    let is_explained = wrong_flags == 0 || wrong_flags == DONT_FRAGMENT;
    is_explained.then(|| guess ^ (wrong_bits as u16).swap_bytes())
}

#[cfg(test)]
mod tests;
