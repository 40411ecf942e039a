//! Whether there is memory for an object, before it is made.
//!
//! An allocation that fails ends the process. So whoever makes an object asks first, and a program that has no memory
//! left is told ENOMEM. The rings of a queue may take many megabytes and are always asked for; small objects only under
//! a limit (`ulimit -v`), since without one there is hardly an end.

use verbs_api::{Error, ErrorKind, QpCap, Result, Sge, Wc};

use crate::os;

/// Below this nobody asks, bytes.
const WORTH_ASKING: u64 = 256 * 1024;
/// More than any queue takes, bytes: such numbers are wrong, and refused by who knows the limits.
const BEYOND_LIMITS: u64 = 1 << 30;
/// What the largest tables grow by, bytes.
const TABLES_BYTES: usize = 16 << 20;
/// What a request or completion takes beside what is counted, at most, bytes.
const OVERHEAD: u64 = 192;

const SGE: u64 = size_of::<Sge>() as u64;

/// For anything else, and what tables must grow for it.
pub(crate) fn for_small_object() -> Result<()> {
    if !os::memory_is_limited() || os::has_room(TABLES_BYTES) {
        return Ok(());
    }
    Err(no_memory(TABLES_BYTES as u64))
}

/// For a completion queue of so many entries.
pub(crate) fn for_completions(cqe: u32) -> Result<()> {
    check(u64::from(cqe) * (size_of::<Wc>() as u64 + 16))
}

/// For the queues of a queue pair.
pub(crate) fn for_queues(cap: &QpCap) -> Result<()> {
    let sends = slots(cap.max_send_wr);
    let each_send = OVERHEAD + u64::from(cap.max_send_sge) * SGE + u64::from(cap.max_inline_data);
    check(
        sends
            .saturating_mul(each_send)
            .saturating_add(receives(cap.max_recv_wr, cap.max_recv_sge)),
    )
}

/// For a queue of receives.
pub(crate) fn for_receives(max_wr: u32, max_sge: u32) -> Result<()> {
    check(receives(max_wr, max_sge))
}

fn receives(max_wr: u32, max_sge: u32) -> u64 {
    slots(max_wr).saturating_mul(OVERHEAD + u64::from(max_sge) * SGE)
}

/// Rings are as long as a power of two.
fn slots(requests: u32) -> u64 {
    u64::from(requests).next_power_of_two()
}

fn check(bytes: u64) -> Result<()> {
    for_small_object()?;
    if !(WORTH_ASKING..BEYOND_LIMITS).contains(&bytes) || usize::try_from(bytes).is_ok_and(os::has_room) {
        return Ok(());
    }
    Err(no_memory(bytes))
}

fn no_memory(bytes: u64) -> Error {
    Error::new(
        ErrorKind::NoMemory,
        format!("there are no {bytes} bytes of memory left (see `ulimit -v`)"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_anyway_is_left_to_who_knows_the_limits() {
        let cap = QpCap {
            max_send_wr: u32::MAX,
            max_recv_wr: u32::MAX,
            max_send_sge: u32::MAX,
            max_recv_sge: u32::MAX,
            max_inline_data: u32::MAX,
        };
        for_queues(&cap).unwrap();
        for_receives(u32::MAX, u32::MAX).unwrap();
        for_completions(u32::MAX).unwrap();
    }

    #[test]
    fn queues_within_the_limits_are_asked_for() {
        let asked = |bytes: u64| (WORTH_ASKING..BEYOND_LIMITS).contains(&bytes);
        assert!(asked(receives(32_768, 32)));
        assert!(!asked(receives(16, 1)));
        for_queues(&QpCap::default()).unwrap();
        for_completions(1 << 20).unwrap();
    }
}
