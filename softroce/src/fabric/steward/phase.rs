//! What a steward is at.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing under way.
    Resting,
    /// An echo is out.
    Checking {
        round: u32,
        give_up_at_ns: u64,
        purpose: Purpose,
    },
    /// Probes are out.
    Probing {
        round: u32,
        give_up_at_ns: u64,
        positions: u8,
        attempt: Attempt,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// To see whether a repair is needed.
    Routine,
    /// To see whether the repair has helped.
    AfterRepair,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    First,
    /// After a table was attached for its rule about probes alone.
    WithRule,
}
