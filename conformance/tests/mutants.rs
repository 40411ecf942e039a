//! Every known kind of mistake that the engine can be made to have is found by a case on the simulator, by one that
//! shows the requirement that the mistake is against (`tests/mutations/bugs.toml`).
//!
//! `SOFTROCE_ALL_CASES=1` runs all cases with every mistake, and prints which ones fail: for who adds one.

use std::collections::BTreeSet;

use conformance::Verdict;
use conformance::beds::{BedKind, BedOptions, Entry, entries, run_entry};
use libtest_mimic::{Arguments, Failed, Trial};
use serde::Deserialize;
use softroce_sim::Mutant;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    bug: Vec<Bug>,
}

/// A kind of mistake.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bug {
    kind: String,
    #[serde(rename = "where")]
    _where: String,
    #[serde(default)]
    mutant: Vec<Row>,
    why_not: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    name: String,
    requirement: String,
}

fn main() {
    let arguments = Arguments::from_args();
    let table: Table = toml::from_str(include_str!("../../tests/mutations/bugs.toml"))
        .expect("tests/mutations/bugs.toml is well-formed");
    let cases = entries(BedKind::Sim, &BedOptions::default()).expect("the simulator opens");
    let rows: Vec<Row> = table.bug.iter().flat_map(|bug| bug.mutant.clone()).collect();
    let mut trials: Vec<Trial> = rows.iter().map(|row| trial(row.clone(), cases.clone())).collect();
    trials.push(Trial::test("the table is complete", move || check(&table)));
    libtest_mimic::run(&arguments, trials).exit();
}

fn trial(row: Row, cases: Vec<Entry>) -> Trial {
    let name = format!("{} is found by {}", row.name, row.requirement);
    Trial::test(name, move || {
        let mutant = Mutant::ALL.iter().find(|mutant| mutant.name() == row.name);
        let mutant = *mutant.ok_or("softroce/engine/src/mutants.rs has none of this name")?;
        if std::env::var_os("SOFTROCE_ALL_CASES").is_some() {
            survey(&row, &cases, mutant);
        }
        let mut shown = cases
            .iter()
            .filter(|case| case.requirements.contains(&row.requirement.as_str()));
        match shown.any(|case| fails(case, mutant).is_some()) {
            true => Ok(()),
            false => Err("no case that shows this requirement fails".into()),
        }
    })
}

/// What a case says that fails with this mistake.
fn fails(case: &Entry, mutant: Mutant) -> Option<String> {
    if case.missing.is_some() {
        return None;
    }
    let options = BedOptions {
        seed: 1,
        mutant: Some(mutant),
        ..BedOptions::default()
    };
    match run_entry(case, &options, None).verdict {
        Verdict::Fail(why) => Some(why),
        Verdict::Pass | Verdict::Deviation(_) | Verdict::Skipped(_) => None,
    }
}

fn survey(row: &Row, cases: &[Entry], mutant: Mutant) {
    for case in cases {
        if let Some(why) = fails(case, mutant) {
            let why = why.lines().next().unwrap_or_default();
            println!("{}: {} {:?}: {why}", row.name, case.id, case.requirements);
        }
    }
}

fn check(table: &Table) -> Result<(), Failed> {
    for bug in &table.bug {
        if bug.mutant.is_empty() == bug.why_not.is_none() {
            return Err(format!("{:?} needs either mutants or a reason why not", bug.kind).into());
        }
    }
    let rows: Vec<&str> = table
        .bug
        .iter()
        .flat_map(|bug| &bug.mutant)
        .map(|row| row.name.as_str())
        .collect();
    let listed: BTreeSet<&str> = rows.iter().copied().collect();
    let known: BTreeSet<&str> = Mutant::ALL.iter().map(|mutant| mutant.name()).collect();
    if listed.len() != rows.len() || listed != known {
        let odd: Vec<_> = listed.symmetric_difference(&known).collect();
        return Err(format!("twice in the table, or not in table and engine: {odd:?}").into());
    }
    if known.len() < 25 {
        return Err(format!("only {} mistakes", known.len()).into());
    }
    Ok(())
}
