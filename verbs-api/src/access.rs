//! Access rights and the keys that carry them.

bitflags::bitflags! {
    /// What a memory region, a memory window or a queue pair permits; the numbers are `IBV_ACCESS_*`.
    ///
    /// Local reads are always permitted.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Access: u32 {
        /// The card may write on behalf of its own side: receives, READ responses, atomic results.
        const LOCAL_WRITE = 1;
        /// The peer may WRITE. On a region it needs `LOCAL_WRITE` as well.
        const REMOTE_WRITE = 1 << 1;
        /// The peer may READ.
        const REMOTE_READ = 1 << 2;
        /// The peer may run atomics. On a region it needs `LOCAL_WRITE` as well.
        const REMOTE_ATOMIC = 1 << 3;
        /// Memory windows may be bound to the region.
        const MW_BIND = 1 << 4;
        /// Addresses count from zero rather than from the region's own start.
        const ZERO_BASED = 1 << 5;
        /// On-demand paging: the memory need not be there before it is used. An access that finds none is an error of
        /// the request, where faults of the card's copy are caught (by the drop-in, on x86-64); elsewhere the
        /// process's handler of SIGSEGV gets it.
        const ON_DEMAND = 1 << 6;
        /// Huge pages.
        const HUGETLB = 1 << 7;
        /// FLUSH to global visibility.
        const FLUSH_GLOBAL = 1 << 8;
        /// FLUSH to persistence.
        const FLUSH_PERSISTENT = 1 << 9;
        /// Relaxed ordering; a hint that may be ignored.
        const RELAXED_ORDERING = 1 << 20;
    }
}

/// The local key of a memory region: names it in scatter/gather entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LKey(pub u32);

/// The remote key of a memory region or window: what a peer must know to reach it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RKey(pub u32);
