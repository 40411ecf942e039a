//! Errors put in on purpose, to see that the conformance suite finds them: the kinds of mistakes that others have made
//! (`tests/mutations/bugs.toml` tells of each).
//!
//! Without the feature `mutations` none of this is there: every question is answered by a constant `false`.
#![forbid(unsafe_code)]

macro_rules! mutants {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// An error put in on purpose.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Mutant {
            $($(#[$doc])* $name,)*
        }

        #[cfg(feature = "mutations")]
        impl Mutant {
            /// All of them.
            pub const ALL: &[Mutant] = &[$(Mutant::$name),*];

            /// As `tests/mutations/bugs.toml` calls it.
            pub fn name(self) -> &'static str {
                match self {
                    $(Mutant::$name => stringify!($name),)*
                }
            }
        }
    };
}

mutants! {
    /// PSNs are compared as numbers: behind the wrap all looks old.
    PsnWindowDoesNotWrap,
    /// The pad is left out of the ICRC.
    IcrcSkipsPad,
    /// A READ that comes again ends the message under way.
    RepeatedReadEndsMessage,
    /// A SEND or WRITE that comes again is acknowledged beyond a READ that is not answered.
    RepeatedAckReachesBeyondRead,
    /// The answer to the rest of a READ does not begin with First or Only.
    RepeatedReadBeginsInTheMiddle,
    /// An acknowledgement behind a READ completes it without its answer.
    AckStandsForReadAnswer,
    /// The rest of a READ is asked for with the length of the whole.
    RepeatedReadAsksForAll,
    /// The wait that an RNR NAK asks for is cut short.
    RnrRetryComesEarly,
    /// Time-outs run out long before their time.
    TimeoutsAreSpurious,
    /// An atomic that comes again is carried out again.
    AtomicRunsAgain,
    /// A request that is posted in ERR has no completion.
    SendInErrIsForgotten,
    /// A flush completes the first request alone.
    FlushStaysAtFirst,
    /// A request with an unknown opcode has no answer.
    UnknownOpcodeIsSwallowed,
    /// UC packets ask for acknowledgements.
    UcAsksForAck,
    /// UD packets ask for acknowledgements.
    UdAsksForAck,
    /// A window's new key must be the one after its last.
    BindWantsTheNextKey,
    /// A window may grant what its region cannot.
    BindIgnoresRights,
    /// An invalidation does not look at the consumer's part of the key.
    InvalidateComparesWrongKey,
    /// The consumer's part of a key opens nothing and locks nothing.
    KeysCollide,
    /// A region remains in use when its windows are gone.
    UnbindKeepsRegionInUse,
    /// A packet may have any length that fits a datagram.
    PacketOfAnyLength,
    /// A WRITE may bring more or less than it said.
    WriteOfAnyLength,
    /// Packets to multicast groups are dropped.
    MulticastIsRejected,
    /// What a device sends to itself is dropped for its address.
    LoopbackHasWrongAddress,
    /// Requests that have not begun go without a completion.
    UnstartedSendsAreNotFlushed,
    /// A shared receive queue that is resized loses its requests.
    ResizeLosesReceives,
    /// A responder whose resources are changed in number forgets its answers.
    RetuningForgetsAnswers,
    /// A request with too many entries is taken.
    EntriesAreNotCounted,
    /// SQ_DRAINED comes while requests are under way.
    DrainedTooEarly,
    /// In SQD new requests begin.
    SqdBeginsRequests,
    /// A failed completion names no queue pair.
    FailedCompletionSaysNotWhose,
    /// A READ response may have any length.
    ReadAnswerOfAnyLength,
}

/// What some of them compute. It stands here, and not where they strike, since what strikes nobody is not tried out by
/// `.ci/mutants.sh`.
pub(crate) mod wrong {
    use roce_wire::Psn;

    /// Keys that differ in the consumer's part alone, or not at all.
    pub(crate) fn is_same_upper_part(key: u32, other: u32) -> bool {
        key >> 8 == other >> 8
    }

    /// A key whose consumer's part is one more than the other's.
    pub(crate) fn is_next_key(key: u32, last: u32) -> bool {
        key & 0xff == last.wrapping_add(1) & 0xff
    }

    /// A packet with pad bytes.
    pub(crate) fn has_pad(udp_payload: &[u8]) -> bool {
        udp_payload.get(1).is_some_and(|bits| bits >> 4 & 3 != 0)
    }

    /// A sequence number as if there were no other round than this one.
    pub(crate) fn unwrapped(sequence: u64, psn: Psn) -> u64 {
        sequence & !0xff_ffff | u64::from(psn.value())
    }

    /// Much less than the time-out with this code, ns.
    pub(crate) fn hurried_timeout_ns(code: u8) -> u64 {
        64 << code
    }

    /// Much less than this.
    pub(crate) fn hurried(nanos: u64) -> u64 {
        nanos / 16
    }
}

#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub(crate) const fn is_on(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutations")]
std::thread_local! {
    static CHOSEN: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// All engines that this thread drives have this error from now on, or none.
#[cfg(feature = "mutations")]
pub fn choose(mutant: Option<Mutant>) {
    CHOSEN.set(mutant);
}

#[cfg(feature = "mutations")]
pub(crate) fn is_on(mutant: Mutant) -> bool {
    CHOSEN.get() == Some(mutant)
}
