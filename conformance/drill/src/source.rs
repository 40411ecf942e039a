//! The text of a script, places in it, and what is wrong there.

use std::fmt;

/// A script's text with the name that messages call it by.
#[derive(Clone, Debug)]
pub struct Source {
    name: String,
    lines: Vec<String>,
}

impl Source {
    /// A text under a name, usually a file's path.
    pub fn new(name: impl Into<String>, text: &str) -> Self {
        Source {
            name: name.into(),
            lines: text.lines().map(str::to_owned).collect(),
        }
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its lines, without their ends.
    pub fn lines(&self) -> &[String] {
        &self.lines
    }

    /// The text of the line that `span` lies in.
    pub fn line(&self, span: Span) -> &str {
        self.lines.get(span.line).map_or("", String::as_str)
    }
}

/// A place in a script: a part of one line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// From 0.
    pub line: usize,
    /// Characters from the start of the line, from 0.
    pub column: usize,
    /// Characters.
    pub length: usize,
}

impl Span {
    /// From the start of this one to the end of `last`, on the same line.
    pub fn to(self, last: Span) -> Span {
        Span {
            length: (last.column + last.length).saturating_sub(self.column),
            ..self
        }
    }
}

/// Something wrong at a place: in the script itself, or with what was seen there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where.
    pub span: Span,
    /// What, in a sentence or two.
    pub message: String,
}

impl Problem {
    /// `message` at `span`.
    pub fn new(span: Span, message: impl Into<String>) -> Self {
        Problem {
            span,
            message: message.into(),
        }
    }

    /// With file, line, column and the line itself, the place underlined.
    pub fn show<'a>(&'a self, source: &'a Source) -> impl fmt::Display + 'a {
        Shown {
            problem: self,
            source,
        }
    }
}

struct Shown<'a> {
    problem: &'a Problem,
    source: &'a Source,
}

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Span { line, column, length } = self.problem.span;
        let number = (line + 1).to_string();
        let margin = " ".repeat(number.len());
        let text = self.source.line(self.problem.span);
        // Tabs stay tabs, so that the marks stand under what they mark.
        let indent: String = text
            .chars()
            .take(column)
            .map(|c| if c == '\t' { '\t' } else { ' ' })
            .collect();
        writeln!(
            f,
            "{}:{number}:{}: {}",
            self.source.name,
            column + 1,
            self.problem.message
        )?;
        writeln!(f, " {number} | {text}")?;
        write!(f, " {margin} | {indent}{}", "^".repeat(length.max(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_shows_file_line_column_and_underlines_its_place() {
        let source = Source::new("a.drill", "qp A rc\n\tsend A 1 lem=3\n");
        let span = Span {
            line: 1,
            column: 10,
            length: 3,
        };
        let shown = Problem::new(span, "no argument `lem`").show(&source).to_string();
        assert_eq!(
            shown,
            "a.drill:2:11: no argument `lem`\n 2 | \tsend A 1 lem=3\n   | \t         ^^^"
        );
    }
}
