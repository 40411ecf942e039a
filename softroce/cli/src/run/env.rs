//! `softroce env`: the variables of a run, for programs that something else starts.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value};

use super::environment::Environment;
use super::options::{CAPTURE_ON_FAILURE, Options, TIMEOUT};
use crate::output;

/// Print the variables with which programs run on softroce: eval "$(softroce env)".
#[derive(Args, Debug)]
pub struct Env {
    #[command(flatten)]
    options: Options,

    /// How: for a shell, for $GITHUB_ENV, for a Dockerfile, as lines NAME=VALUE (env files of Docker, systemd), or as JSON
    #[arg(long, value_enum, default_value_t = Format::Sh)]
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Sh,
    Github,
    Dockerfile,
    Lines,
    Json,
}

impl Env {
    /// Print them.
    pub fn run(self) -> Result<()> {
        let mut environment = Environment::new(&self.options)?;
        if let Some(file) = self.options.capture() {
            environment.set_capture(&file)?;
        }
        // These two are for `softroce run` alone.
        if let Some(file) = self.options.capture_on_failure() {
            environment.set(CAPTURE_ON_FAILURE, std::path::absolute(file)?);
        }
        if let Some(time) = self.options.timeout()? {
            environment.set(TIMEOUT, time.as_secs_f64().to_string());
        }
        let mut text = Vec::new();
        let mut object = Map::new();
        for (name, value) in environment.variables() {
            match self.format {
                Format::Sh => {
                    write!(text, "export {name}=")?;
                    text.extend(quoted(value));
                    text.push(b'\n');
                }
                Format::Github | Format::Lines => {
                    text.extend(one_line(name, value)?);
                }
                Format::Dockerfile => writeln!(text, "ENV {name}={}", in_dockerfile(name, value)?)?,
                Format::Json => {
                    let value = value
                        .to_str()
                        .with_context(|| format!("{name} is not valid UTF-8"))?;
                    object.insert(name.to_owned(), Value::from(value));
                }
            }
        }
        if self.format == Format::Json {
            writeln!(text, "{:#}", Value::Object(object))?;
        }
        output::unless_unread(output::standard().write_all(&text))
    }
}

/// As a shell takes it for one word, whatever is in it.
fn quoted(value: &OsStr) -> Vec<u8> {
    let mut text = vec![b'\''];
    for byte in value.as_bytes() {
        match byte {
            b'\'' => text.extend(br"'\''"),
            byte => text.push(*byte),
        }
    }
    text.push(b'\'');
    text
}

fn one_line(name: &str, value: &OsStr) -> Result<Vec<u8>> {
    if value.as_bytes().contains(&b'\n') {
        bail!("{name} has a line break in it, which this format cannot say: {value:?}");
    }
    Ok([name.as_bytes(), b"=", value.as_bytes(), b"\n"].concat())
}

fn in_dockerfile(name: &str, value: &OsStr) -> Result<String> {
    one_line(name, value)?;
    let value = value
        .to_str()
        .with_context(|| format!("{name} is not valid UTF-8"))?;
    let mut text = String::from("\"");
    for letter in value.chars() {
        if matches!(letter, '"' | '\\' | '$') {
            text.push('\\');
        }
        text.push(letter);
    }
    text.push('"');
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_shell_or_docker_would_read_otherwise_is_quoted() {
        assert_eq!(quoted(OsStr::new("/a b/$x'y")), br"'/a b/$x'\''y'");
        assert_eq!(
            in_dockerfile("N", OsStr::new(r#"/a "$b\"#)).unwrap(),
            r#""/a \"\$b\\""#
        );
        assert!(one_line("N", OsStr::new("a\nb")).is_err());
    }
}
