//! The table of operations covers exactly what the C library has.

use std::collections::BTreeSet;

use verbs_api::table::{CONTEXT_OPS, EXPORTED, Mapping, VERBS_CONTEXT};

const LAYOUT: &str = include_str!("data/abi/layout_master.txt");
const EXPORTS: &str = include_str!("data/abi/libibverbs.so.1.exports.txt");

/// Members of `verbs_context` that are no operations.
const NO_OPERATIONS: [&str; 6] = [
    "priv",
    "ABI_placeholder1",
    "ABI_placeholder2",
    "_ABI_placeholder3",
    "sz",
    "context",
];

fn members(name: &str) -> BTreeSet<&'static str> {
    LAYOUT
        .lines()
        .skip_while(|line| !line.starts_with(&format!("struct {name} ")))
        .skip(1)
        .take_while(|line| line.starts_with(' '))
        .filter_map(|line| line.split_whitespace().nth(1))
        .collect()
}

fn names(table: &[(&'static str, Mapping)]) -> BTreeSet<&'static str> {
    let names: BTreeSet<_> = table.iter().map(|(name, _)| *name).collect();
    assert_eq!(names.len(), table.len(), "an operation stands twice in the table");
    names
}

#[test]
fn every_operation_of_ibv_context_ops_has_its_place() {
    assert_eq!(names(CONTEXT_OPS), members("ibv_context_ops"));
}

#[test]
fn every_operation_of_verbs_context_has_its_place() {
    let mut expected = members("verbs_context");
    for name in NO_OPERATIONS {
        assert!(
            expected.remove(name),
            "{name} is no member of verbs_context any more"
        );
    }
    assert_eq!(names(VERBS_CONTEXT), expected);
}

#[test]
fn every_exported_public_function_has_its_place() {
    let expected: BTreeSet<_> = EXPORTS
        .lines()
        .map(|line| line.split('\t').collect::<Vec<_>>())
        .filter(|fields| !fields[1].starts_with("IBVERBS_PRIVATE") && fields[0] != fields[1])
        .map(|fields| fields[0])
        .collect();
    assert_eq!(names(EXPORTED), expected);
}

#[test]
fn what_is_not_offered_has_a_reason() {
    for (name, mapping) in CONTEXT_OPS.iter().chain(VERBS_CONTEXT).chain(EXPORTED) {
        if let Mapping::NotOffered(reason) = mapping {
            assert!(reason.len() > 10, "{name} has no reason");
        }
    }
}
