//! Every script of `scripts/` against the embedded engine in virtual time, as a test of its own; and what a script says
//! that it shows must be a requirement.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use drill::{Script, SimBench};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let requirements = requirements(&here.join("../../docs/spec/requirements.toml"));
    let mut paths: Vec<PathBuf> = std::fs::read_dir(here.join("scripts"))
        .expect("the scripts lie beside the sources")
        .map(|entry| entry.expect("a folder can be read").path())
        .collect();
    paths.sort();
    let trials = paths.into_iter().map(|path| {
        let name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let requirements = requirements.clone();
        Trial::test(name, move || run(&path, &requirements))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

fn run(path: &Path, requirements: &HashSet<String>) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let script = Script::parse(name, &text).map_err(|(source, problems)| {
        let shown: Vec<String> = problems.iter().map(|p| p.show(&source).to_string()).collect();
        shown.join("\n")
    })?;
    if script.shows.is_empty() {
        return Err("the script names no requirement: begin with shows \"…\"".into());
    }
    if let Some(unknown) = script.shows.iter().find(|id| !requirements.contains(*id)) {
        return Err(format!("there is no requirement {unknown}").into());
    }
    let mut bench = SimBench::new(1)?;
    drill::run(&script, &mut bench, &mut |_, _| {}).map_err(|failed| failed.show(&script).to_string().into())
}

/// The ids of all requirements.
fn requirements(path: &Path) -> HashSet<String> {
    let text = std::fs::read_to_string(path).expect("the requirements can be read");
    let table: toml::Table = text.parse().expect("the requirements are TOML");
    let all = table["requirement"].as_array().expect("a list of requirements");
    all.iter()
        .map(|entry| entry["id"].as_str().expect("an id").to_owned())
        .collect()
}
