//! A case that leaves an object behind has failed, however it ended.

use conformance::beds::{BedOptions, SimBed};
use conformance::{Case, CaseResult, LIMIT, Scene, Side, Verdict, run_case};
use verbs_api::Context;

fn leaks_a_domain(scene: &mut Scene<SimBed>) -> CaseResult {
    std::mem::forget(scene.context(Side::Right).alloc_pd()?);
    Ok(())
}

#[test]
fn a_case_that_leaves_an_object_behind_fails_and_the_object_is_named() {
    let case = Case::verbs("leak", "leaks a domain", &[], leaks_a_domain);
    let outcome = run_case(|| SimBed::open(&BedOptions::default()), case, None, LIMIT);
    let Verdict::Fail(why) = outcome.verdict else {
        panic!("a leak ended with {:?}", outcome.verdict)
    };
    assert!(why.contains("sim1") && why.contains("pds: 1"), "{why}");
}
