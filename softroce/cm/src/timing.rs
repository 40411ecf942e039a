//! Times of communication management.

/// Time that a packet lives on RoCE: 4.096 µs · 2^16, 0.27 s. The choice of RDMA CM.
pub const PACKET_LIFETIME: u8 = 16;

/// The time of a code, ns: in whole milliseconds, as the kernel counts it (2^(code-8) ms, at least one).
pub fn code_to_ns(code: u8) -> u64 {
    let ms = 1_u64 << code.saturating_sub(8).min(40);
    ms * 1_000_000
}

/// The local ACK timeout for a path: twice the packet lifetime and the responder's delay, rounded up to a code (IBA
/// 12.7.34).
pub fn ack_timeout(packet_lifetime: u8, ack_delay: u8) -> u8 {
    let round_trip = packet_lifetime + 1;
    // A sum of two powers of two needs one more only when they are near each other.
    let near = ack_delay + 1 >= round_trip;
    let code = if round_trip >= ack_delay {
        round_trip + u8::from(near)
    } else {
        ack_delay + u8::from(round_trip + 1 >= ack_delay)
    };
    code.min(31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_kernels() {
        assert_eq!(code_to_ns(20), 4_096_000_000);
        assert_eq!(code_to_ns(0), 1_000_000);
        // rxe's delay of 15: a timeout of 537 ms.
        assert_eq!(ack_timeout(PACKET_LIFETIME, 15), 17);
        assert_eq!(ack_timeout(18, 15), 19);
        assert_eq!(ack_timeout(16, 16), 18);
        assert_eq!(ack_timeout(16, 17), 18);
        assert_eq!(ack_timeout(16, 25), 25);
    }
}
