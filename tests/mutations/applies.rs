//! The mutations fit the code as it is. Trying them is `cargo run -p e2e --bin mutate`.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use e2e::mutations;
use e2e::program::repository;

#[test]
fn every_mutation_fits_the_code_and_has_a_name_of_its_own() {
    let all = mutations::all().expect("the file is well-formed");
    assert!(all.len() >= 20, "only {} mutations", all.len());
    let sources = mutations::engine_sources(repository()).expect("the engine's sources can be read");
    let mut names = BTreeSet::new();
    for mutation in &all {
        assert!(
            names.insert(&mutation.name),
            "two mutations are called {:?}",
            mutation.name
        );
        if let Err(error) = mutation.apply(&sources) {
            panic!("{error}");
        }
    }
}
