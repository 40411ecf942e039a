//! The UDP source port: its only purpose is to spread flows over equal-cost paths. Receivers never check it.

use crate::Qpn;

/// The lowest port a sender chooses; the highest is 0xffff.
pub const LOWEST: u16 = 0xc000;

/// The flow label (20 bits) of a connection that has none of its own, the same from both ends.
pub const fn flow_label(local: Qpn, remote: Qpn) -> u32 {
    let mut mixed = local.value() as u64 * remote.value() as u64;
    mixed ^= mixed >> 20;
    mixed ^= mixed >> 40;
    (mixed & 0xf_ffff) as u32
}

/// The source port of a flow label: its 20 bits folded into 14.
pub const fn from_flow_label(flow_label: u32) -> u16 {
    let folded = (flow_label & 0x3fff) ^ ((flow_label & 0xf_c000) >> 14);
    folded as u16 | LOWEST
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_those_that_other_implementations_choose() {
        let port =
            |local, remote| from_flow_label(flow_label(Qpn::new(local).unwrap(), Qpn::new(remote).unwrap()));
        assert_eq!(port(0x11, 0x12), 0xc132);
        assert_eq!(port(0x12, 0x11), 0xc132);
        assert_eq!(port(1, 1), 0xc001);
        assert_eq!(port(0x12_3456, 0xab_cdef), 0xc3c8);
    }

    #[test]
    fn bits_above_the_flow_label_are_ignored() {
        assert_eq!(from_flow_label(0xfff0_0132), 0xc132);
    }
}
