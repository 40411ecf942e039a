//! How long a steward waits, and how often it asks.

/// How long an echo may take. The kernel has put it into the own receive queue, if that is where it goes, in
/// microseconds; the rest is for the own thread to get a processor.
pub(super) const ECHO_PATIENCE_NS: u64 = 2_000_000;
/// How long answers may take, for which threads of other processes must get a processor.
pub(super) const ANSWER_PATIENCE_NS: u64 = 5_000_000;
/// Checks after a change, as delays from the one before. The kernel moves sockets a little after the links of a killed
/// process have closed, so one check is not enough.
pub(super) const CHECK_DELAYS_NS: [u64; 5] = [0, 1_000_000, 5_000_000, 20_000_000, 100_000_000];
/// Between checks when nothing changes, while there are other members.
pub(super) const HEARTBEAT_NS: u64 = 1_000_000_000;
/// Least time from a check that succeeded to the next one that a stray packet asks for.
pub(super) const STRAY_PAUSE_NS: u64 = 1_000_000;
/// Repairs that fail in a row are spaced out, from the first to the second of these.
pub(super) const BACKOFF_NS_MIN: u64 = 1_000_000;
pub(super) const BACKOFF_NS_MAX: u64 = 500_000_000;
/// Positions asked beyond the members known, in case others have just joined; more after each repair that failed,
/// since then somebody is there whom we do not know.
pub(super) const PROBES_EXTRA: usize = 1;
/// A round of probes is sent so often before who has not answered is held for stopped. Who only waits for a processor
/// answers one of them.
pub(super) const TIMES_ASKED_MAX: u8 = 4;
pub(super) const PROBES_EXTRA_A_FAILURE: usize = 8;
