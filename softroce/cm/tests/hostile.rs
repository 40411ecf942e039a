//! The fuzz target's harness with random bytes.

use proptest::prelude::*;

#[path = "../fuzz/harness.rs"]
mod harness;

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]
    #[test]
    fn a_hostile_network_and_a_hostile_program_leave_nothing_behind(
        bytes in prop::collection::vec(any::<u8>(), 0..2000),
    ) {
        harness::run(&bytes);
    }
}
