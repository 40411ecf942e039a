//! Runs a CI file of GitHub's on this machine: each step's shell commands, in order, with the environment that the steps
//! before it left, as an unprivileged user.
//!
//! What it knows is what the files of this repository need: jobs with `run` steps, and `uses` steps of a composite action
//! that lies in the repository. Any other key is an error, so that a file cannot rely on what was not run. The checkout
//! has happened: the caller's folder is it. Packages are there already: `sudo` is a stand-in that fails when one of those
//! that it should install is missing.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use yaml_rust2::{Yaml, YamlLoader};

use crate::bed::Bed;
use crate::case::{Outcome, Stop};
use crate::process::Program;
use crate::program::repository;

/// Actions of other projects that bring what is here already.
const DONE_ALREADY: &str = "actions/checkout@";
/// Where an action of ours is named by the CI files of others.
const OUR_ACTIONS: &str = "softroce/softroce/";

/// Starts a step's command line: which user and place, is the caller's.
pub type Starter<'a> = dyn Fn(&[String]) -> Program + 'a;

/// A job that runs: its folder and the environment that its steps see.
pub struct Job<'a> {
    bed: &'a Bed,
    start: &'a Starter<'a>,
    /// The checkout.
    folder: PathBuf,
    /// What `GITHUB_PATH` has in front of the machine's own path.
    path: Vec<String>,
    environment: Vec<(String, String)>,
    /// What one step may take.
    limit: Duration,
}

impl<'a> Job<'a> {
    /// A job in the checkout `folder`. Its environment is clean but for `environment`.
    pub fn new(
        bed: &'a Bed,
        start: &'a Starter<'a>,
        folder: &Path,
        environment: &[(&str, &str)],
        limit: Duration,
    ) -> Result<Self, Stop> {
        let bin = bed.scratch.file("stand-ins");
        fs::create_dir_all(&bin)?;
        let sudo = bin.join("sudo");
        fs::write(&sudo, include_str!("workflow/sudo.sh"))?;
        fs::set_permissions(&sudo, Permissions::from_mode(0o755))?;
        for name in ["path", "env", "output"] {
            let file = bed.scratch.file(name);
            fs::write(&file, "")?;
            fs::set_permissions(&file, Permissions::from_mode(0o666))?;
        }
        let environment = environment
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()));
        Ok(Job {
            bed,
            start,
            folder: folder.to_owned(),
            path: vec![bin.display().to_string()],
            environment: environment.collect(),
            limit,
        })
    }

    /// Runs the steps of the only job of the CI file at `path`; returns what they printed.
    pub fn run(&mut self, path: &Path) -> Result<String, Stop> {
        let file = load(path)?;
        let jobs = file["jobs"]
            .as_hash()
            .ok_or_else(|| Stop::fail("a CI file has jobs"))?;
        let [job] = jobs.values().collect::<Vec<_>>()[..] else {
            return Err(Stop::fail("this knows CI files with one job"));
        };
        only_keys(job, &["runs-on", "steps", "timeout-minutes"])?;
        let mut printed = String::new();
        for step in job["steps"].as_vec().into_iter().flatten() {
            only_keys(step, &["name", "run", "uses", "with"])?;
            match (step["run"].as_str(), step["uses"].as_str()) {
                (Some(commands), None) => printed += &self.shell(commands, &[])?,
                (None, Some(action)) if action.starts_with(DONE_ALREADY) => {}
                (None, Some(action)) => printed += &self.action(action, &step["with"])?,
                _ => return Err(Stop::fail("a step has either `run` or `uses`")),
            }
        }
        Ok(printed)
    }

    /// Runs a composite action of this repository, `softroce/softroce/FOLDER@VERSION`.
    fn action(&mut self, name: &str, with: &Yaml) -> Result<String, Stop> {
        let folder = name
            .strip_prefix(OUR_ACTIONS)
            .and_then(|rest| rest.split('@').next())
            .map(|folder| repository().join(folder))
            .ok_or_else(|| Stop::Fail(format!("{name} is no action of this repository")))?;
        let action = load(&folder.join("action.yml"))?;
        only_keys(&action, &["name", "description", "inputs", "outputs", "runs"])?;
        only_keys(&action["runs"], &["using", "steps"])?;
        let inputs = inputs_of(&action["inputs"], with)?;
        // The runner unpacks an action where every user of the machine can read it.
        let readable = self.bed.scratch.file("action");
        copy_folder(&folder, &readable)?;
        let mut printed = String::new();
        for step in action["runs"]["steps"].as_vec().into_iter().flatten() {
            only_keys(step, &["id", "shell", "env", "run"])?;
            let commands = step["run"]
                .as_str()
                .ok_or_else(|| Stop::fail("an action's step runs commands"))?;
            let mut variables = vec![("GITHUB_ACTION_PATH".to_string(), readable.display().to_string())];
            for (name, value) in step["env"].as_hash().into_iter().flatten() {
                variables.push((text(name), expand(&text(value), &inputs)?));
            }
            printed += &self.shell(commands, &variables)?;
        }
        Ok(printed)
    }

    /// Runs commands as the runner does, and takes over what they leave for the next steps.
    fn shell(&mut self, commands: &str, variables: &[(String, String)]) -> Result<String, Stop> {
        let scratch = &self.bed.scratch;
        let mut words: Vec<String> = ["env", "-i", "-C"].map(String::from).to_vec();
        words.push(self.folder.display().to_string());
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.path.join(":"));
        words.extend([
            format!("PATH={path}"),
            "CI=true".into(),
            "HOME=/nonexistent".into(),
            format!("RUNNER_TEMP={}", scratch.path().display()),
            format!("GITHUB_WORKSPACE={}", self.folder.display()),
            format!("GITHUB_PATH={}", scratch.file("path").display()),
            format!("GITHUB_ENV={}", scratch.file("env").display()),
            format!("GITHUB_OUTPUT={}", scratch.file("output").display()),
        ]);
        for (name, value) in self.environment.iter().chain(variables) {
            words.push(format!("{name}={value}"));
        }
        words.extend(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c"].map(String::from));
        words.push(commands.to_owned());
        let finished = (self.start)(&words).finish(self.limit)?;
        finished.succeeded()?;

        let added = fs::read_to_string(scratch.file("path"))?;
        self.path.splice(0..0, added.lines().rev().map(String::from));
        for line in fs::read_to_string(scratch.file("env"))?.lines() {
            let (name, value) = line
                .split_once('=')
                .ok_or_else(|| Stop::Fail(format!("`{line}` in GITHUB_ENV is not NAME=VALUE")))?;
            self.environment.push((name.to_owned(), value.to_owned()));
        }
        for name in ["path", "env"] {
            fs::write(scratch.file(name), "")?;
        }
        Ok(finished.stdout)
    }
}

fn load(path: &Path) -> Result<Yaml, Stop> {
    let text =
        fs::read_to_string(path).map_err(|error| Stop::Fail(format!("{}: {error}", path.display())))?;
    let documents = YamlLoader::load_from_str(&text)
        .map_err(|error| Stop::Fail(format!("{}: {error}", path.display())))?;
    documents
        .into_iter()
        .next()
        .ok_or_else(|| Stop::Fail(format!("{} is empty", path.display())))
}

/// Fails when there is something that would not be heeded.
fn only_keys(table: &Yaml, known: &[&str]) -> Outcome {
    let keys = table.as_hash().into_iter().flat_map(|table| table.keys());
    for key in keys.map(text) {
        if !known.contains(&key.as_str()) {
            return Err(Stop::Fail(format!("the key `{key}` is not known here")));
        }
    }
    Ok(())
}

/// An action's inputs: what the step gives, else their defaults.
fn inputs_of(declared: &Yaml, with: &Yaml) -> Result<Vec<(String, String)>, Stop> {
    let declared = declared
        .as_hash()
        .ok_or_else(|| Stop::fail("the action has no inputs"))?;
    let names: Vec<String> = declared.keys().map(text).collect();
    only_keys(with, &names.iter().map(String::as_str).collect::<Vec<_>>())?;
    Ok(declared
        .iter()
        .map(|(name, input)| {
            let given = &with[name.as_str().unwrap_or_default()];
            let value = if given.is_badvalue() {
                &input["default"]
            } else {
                given
            };
            (text(name), text(value))
        })
        .collect())
}

/// Puts inputs in the place of `${{ inputs.NAME }}`.
fn expand(value: &str, inputs: &[(String, String)]) -> Result<String, Stop> {
    let mut expanded = value.to_owned();
    for (name, input) in inputs {
        expanded = expanded.replace(&format!("${{{{ inputs.{name} }}}}"), input);
    }
    if expanded.contains("${{") {
        return Err(Stop::Fail(format!("`{value}` is more than an input")));
    }
    Ok(expanded)
}

/// A scalar as it is written.
fn text(value: &Yaml) -> String {
    match value {
        Yaml::String(text) | Yaml::Real(text) => text.clone(),
        Yaml::Integer(number) => number.to_string(),
        Yaml::Boolean(truth) => truth.to_string(),
        _ => String::new(),
    }
}

/// Copies a folder with everything in it, readable by everybody; the modes of files stay.
pub fn copy_folder(from: &Path, to: &Path) -> Outcome {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
