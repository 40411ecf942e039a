//! The names that a script has declared so far.

use std::collections::HashMap;

use verbs_api::QpState;

use crate::arguments::Arguments;
use crate::call::Service;
use crate::expression::Expression;
use crate::line::{Placed, Slice};
use crate::names;
use crate::source::{Problem, Span};

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    QueuePair(Service),
    Region,
    Window,
    SharedQueue,
    Value,
}

impl Kind {
    fn in_words(self) -> &'static str {
        match self {
            Kind::QueuePair(_) => "a queue pair",
            Kind::Region => "a memory region",
            Kind::Window => "a memory window",
            Kind::SharedQueue => "a shared receive queue",
            Kind::Value => "a value",
        }
    }

    /// What follows the name and a dot.
    fn members(self) -> &'static [&'static str] {
        match self {
            Kind::QueuePair(_) => &["s", "p", "T", "qpn", "played"],
            Kind::Region => &["addr", "lkey", "rkey"],
            Kind::Window => &["rkey"],
            Kind::SharedQueue | Kind::Value => &[],
        }
    }
}

/// Values of the only queue pair, or of the one that a line is about.
const SHORT_MEMBERS: [&str; 3] = ["s", "p", "T"];

/// All names so far.
#[derive(Default)]
pub(super) struct Scope {
    names: HashMap<String, Kind>,
    queue_pairs: Vec<String>,
}

impl Scope {
    /// A new object's name.
    pub(super) fn declare(&mut self, name: &Placed<&str>, kind: Kind) -> Result<(), Problem> {
        if name.item.contains('.') || SHORT_MEMBERS.contains(&name.item) {
            return Err(Problem::new(
                name.span,
                format!("`{}` cannot be a name: it means something already", name.item),
            ));
        }
        if let Some(other) = self.names.insert(name.item.to_owned(), kind) {
            return Err(Problem::new(
                name.span,
                format!("`{}` is {} already", name.item, other.in_words()),
            ));
        }
        if matches!(kind, Kind::QueuePair(_)) {
            self.queue_pairs.push(name.item.to_owned());
        }
        Ok(())
    }

    /// A value's name; it may be set again.
    pub(super) fn declare_value(&mut self, name: &str) {
        self.names.entry(name.to_owned()).or_insert(Kind::Value);
    }

    pub(super) fn is_queue_pair(&self, name: &str) -> bool {
        matches!(self.names.get(name), Some(Kind::QueuePair(_)))
    }

    /// The service of a queue pair.
    pub(super) fn service(&self, name: &str) -> Service {
        match self.names.get(name) {
            Some(Kind::QueuePair(service)) => *service,
            _ => Service::Rc,
        }
    }

    /// The object that a word names.
    pub(super) fn object(&self, word: &Placed<&str>, wanted: &[Kind]) -> Result<String, Problem> {
        match self.names.get(word.item) {
            Some(kind) if wanted.contains(kind) => Ok(word.item.to_owned()),
            Some(kind) => Err(Problem::new(
                word.span,
                format!("`{}` is {}", word.item, kind.in_words()),
            )),
            None => Err(unknown(word.item, word.span)),
        }
    }

    /// The queue pair that a line names, or the only one.
    pub(super) fn queue_pair(&self, arguments: &Arguments<'_>) -> Result<String, Problem> {
        if let Some(named) = arguments.word_among(|word| self.is_queue_pair(word).then(|| word.to_owned())) {
            return Ok(named.item);
        }
        match &self.queue_pairs[..] {
            [only] => Ok(only.clone()),
            [] => arguments
                .word("a queue pair, and none has been made: begin with `qp A rc`")
                .and_then(|word| Err(unknown(word.item, word.span))),
            _ => {
                let word = arguments.word("the name of a queue pair, since there are several")?;
                Err(Problem::new(
                    word.span,
                    format!(
                        "`{}` is no queue pair; there are several, so the line must name one: {}",
                        word.item,
                        self.queue_pairs.join(", ")
                    ),
                ))
            }
        }
    }

    /// All names in a value must be known; `s`, `p` and `T` where the line is about a queue pair.
    pub(super) fn check(&self, value: &Expression, with_short: bool) -> Result<(), Problem> {
        let mut problem = None;
        value.names(&mut |name, span| {
            if problem.is_none() {
                problem = self.check_name(name, span, with_short).err();
            }
        });
        problem.map_or(Ok(()), Err)
    }

    fn check_name(&self, name: &str, span: Span, with_short: bool) -> Result<(), Problem> {
        let short = with_short || self.queue_pairs.len() == 1;
        if short && !self.queue_pairs.is_empty() && SHORT_MEMBERS.contains(&name) {
            return Ok(());
        }
        let (owner, member) = name.split_once('.').unwrap_or((name, ""));
        match self.names.get(owner) {
            Some(Kind::Value) if member.is_empty() => Ok(()),
            Some(kind) if kind.members().contains(&member) => Ok(()),
            Some(kind) => {
                let members: Vec<String> = kind.members().iter().map(|m| format!("{owner}.{m}")).collect();
                let has = if members.is_empty() {
                    "it has no values".to_owned()
                } else {
                    format!("its values are {}", members.join(", "))
                };
                Err(Problem::new(
                    span,
                    format!("`{name}` is no value; `{owner}` is {}: {has}", kind.in_words()),
                ))
            }
            None => Err(unknown(name, span)),
        }
    }

    /// The region of a slice must be one, and its bounds values.
    pub(super) fn check_slice(&self, slice: &Placed<Slice>) -> Result<(), Problem> {
        let region = Placed {
            item: slice.item.region.as_str(),
            span: slice.span,
        };
        self.object(&region, &[Kind::Region])?;
        if let Some((from, to)) = &slice.item.range {
            self.check(from, false)?;
            self.check(to, false)?;
        }
        Ok(())
    }
}

fn unknown(name: &str, span: Span) -> Problem {
    Problem::new(span, format!("nothing is called `{name}`"))
}

/// A state from its name.
pub(super) fn state(word: &Placed<&str>) -> Result<QpState, Problem> {
    names::state(word.item).ok_or_else(|| {
        Problem::new(
            word.span,
            format!("no state `{}`; there are {}", word.item, names::states()),
        )
    })
}
