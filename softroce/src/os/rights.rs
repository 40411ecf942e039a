//! What the kernel lets this process do.
#![forbid(unsafe_code)]

use std::fs;

const CAP_NET_RAW: u32 = 13;

/// Whether the calling thread has CAP_NET_RAW. Where that cannot be seen, it has not.
pub(crate) fn has_net_raw() -> bool {
    fs::read_to_string("/proc/thread-self/status")
        .is_ok_and(|status| effective(&status) >> CAP_NET_RAW & 1 == 1)
}

/// The effective capabilities in the text of `/proc/PID/status`.
fn effective(status: &str) -> u64 {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::effective;

    #[test]
    fn capabilities_are_read_from_their_line_and_are_none_without_it() {
        assert_eq!(effective("CapPrm:\t00ff\nCapEff:\t0000000000002000\n"), 1 << 13);
        assert_eq!(effective("CapPrm:\t00ff\n"), 0);
        assert_eq!(effective("CapEff:\tmany\n"), 0);
    }
}
