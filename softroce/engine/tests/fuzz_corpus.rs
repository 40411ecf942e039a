//! Replays the fuzz target's corpus.

use std::fs;
use std::path::Path;

#[path = "../fuzz/harness/run.rs"]
mod harness;

#[test]
fn every_input_of_the_fuzz_corpus_passes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/engine");
    let mut count = 0;
    for entry in fs::read_dir(&corpus).expect("the corpus") {
        let path = entry.expect("a readable folder").path();
        let bytes = fs::read(&path).expect("a readable input");
        println!("{}", path.display());
        harness::run(&bytes);
        count += 1;
    }
    println!("{count} inputs");
    assert_ne!(count, 0, "{} is empty", corpus.display());
}
