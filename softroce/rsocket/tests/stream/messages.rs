//! The fuzz target's harness, with what its corpus holds and with random bytes.

use proptest::prelude::*;

#[path = "../../fuzz/harness.rs"]
mod harness;

#[test]
fn what_the_fuzzer_has_kept_does_no_harm() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/messages");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        harness::run(&std::fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 5);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn a_peer_that_says_anything_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..1000)) {
        harness::run(&bytes);
    }
}
