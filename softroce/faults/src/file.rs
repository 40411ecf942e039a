//! Rules from a TOML file. `docs/faults.md` describes the format.

use std::collections::BTreeSet;
use std::fmt;

use toml::de::DeTable;

use crate::rules::RULES_MAX;
use crate::{CompletionRule, EventRule, PacketRule, Rules, VerbRule};

mod action;
mod reader;
mod sections;
mod text;

use reader::{Fault, Reader};

/// The longest file, bytes.
const FILE_BYTES_MAX: usize = 1 << 20;

/// What is wrong with a file, where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileError {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    /// What is wrong there.
    pub reason: String,
    /// What would be right; empty where the reason says it.
    pub help: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.reason)?;
        if self.help.is_empty() {
            return Ok(());
        }
        write!(f, "; {}", self.help)
    }
}

impl std::error::Error for FileError {}

impl FileError {
    fn new(text: &str, fault: Fault) -> FileError {
        let mut at = fault.at.start.min(text.len());
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let before = &text[..at];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        FileError {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            reason: fault.reason,
            help: fault.help,
        }
    }
}

impl Rules {
    /// Read a file's text.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Rules, FileError> {
        read(text).map_err(|fault| FileError::new(text, fault))
    }
}

fn read(text: &str) -> Result<Rules, Fault> {
    if text.len() > FILE_BYTES_MAX {
        return Err(Fault::new(
            0..0,
            format!("the file has {} bytes", text.len()),
            format!("a file of rules has {FILE_BYTES_MAX} at most"),
        ));
    }
    let document = DeTable::parse(text).map_err(|error| {
        let at = error.span().unwrap_or(0..0);
        Fault::new(at, format!("this is no TOML: {}", error.message()), "")
    })?;
    let mut top = Reader::new(document.span(), document.get_ref(), "the file");
    let mut rules = Rules {
        seed: top.optional("seed", text::whole)?.unwrap_or(0),
        ..Rules::default()
    };
    let mut names = BTreeSet::new();
    for mut table in top.tables("packet")? {
        let name = name(&mut table, &mut names, "packet", rules.packets.len())?;
        let (select, when, action) = sections::packet(&mut table)?;
        table.finish()?;
        rules.packets.push(PacketRule {
            name,
            select,
            when,
            action,
        });
    }
    for mut table in top.tables("verb")? {
        let name = name(&mut table, &mut names, "verb", rules.verbs.len())?;
        let (calls, when, errno) = sections::verb(&mut table)?;
        table.finish()?;
        rules.verbs.push(VerbRule {
            name,
            calls,
            when,
            errno,
        });
    }
    for mut table in top.tables("completion")? {
        let name = name(&mut table, &mut names, "completion", rules.completions.len())?;
        let (qpn, work, when, status) = sections::completion(&mut table)?;
        table.finish()?;
        rules.completions.push(CompletionRule {
            name,
            qpn,
            work,
            when,
            status,
        });
    }
    for mut table in top.tables("event")? {
        let name = name(&mut table, &mut names, "event", rules.events.len())?;
        let rule = sections::event(&mut table)?;
        table.finish()?;
        rules.events.push(EventRule { name, ..rule });
    }
    top.finish()?;
    if rules.len() > RULES_MAX {
        return Err(Fault::new(
            0..0,
            format!("the file has {} rules", rules.len()),
            format!("{RULES_MAX} at most"),
        ));
    }
    Ok(rules)
}

/// A rule's name, by which reports call it: each has its own.
fn name(
    table: &mut Reader<'_>,
    taken: &mut BTreeSet<String>,
    kind: &str,
    number: usize,
) -> Result<String, Fault> {
    let at = table.place_of("name");
    let name = table
        .optional("name", text::string)?
        .unwrap_or_else(|| format!("{kind} {}", number + 1));
    if name.is_empty() || name.chars().any(char::is_control) || name.len() > 200 {
        return Err(Fault::new(
            at,
            "this is no name for a rule",
            "a name is a line of text",
        ));
    }
    if !taken.insert(name.clone()) {
        return Err(Fault::new(
            at,
            format!("another rule is named {name:?} already"),
            "give each rule a name of its own",
        ));
    }
    Ok(name)
}

#[cfg(test)]
mod tests;
