//! The items behind a head word, taken one by one; what nobody took is an error that lists what there is.

use std::cell::RefCell;

use crate::expression::Expression;
use crate::line::{Argument, Item, Line, Named, Placed, Slice};
use crate::names;
use crate::script::Content;
use crate::source::Problem;

/// The arguments of one line.
pub(crate) struct Arguments<'a> {
    line: &'a Line,
    taken: RefCell<Vec<bool>>,
    /// Names that the head asked for, for the error message.
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Arguments<'a> {
    pub(crate) fn new(line: &'a Line) -> Self {
        Arguments {
            line,
            taken: RefCell::new(vec![false; line.items.len()]),
            asked: RefCell::default(),
        }
    }

    /// The first item not yet taken that `choose` wants.
    fn take<T>(&self, choose: impl Fn(&'a Item) -> Option<T>) -> Option<Placed<T>> {
        let mut taken = self.taken.borrow_mut();
        for (index, placed) in self.line.items.iter().enumerate() {
            if taken[index] {
                continue;
            }
            if let Some(item) = choose(&placed.item) {
                taken[index] = true;
                return Some(Placed {
                    item,
                    span: placed.span,
                });
            }
        }
        None
    }

    fn missing(&self, what: &str) -> Problem {
        Problem::new(
            self.line.span(),
            format!("`{}` needs {what}", self.line.head.item),
        )
    }

    /// The next free-standing word.
    pub(crate) fn word(&self, what: &str) -> Result<Placed<&'a str>, Problem> {
        self.optional_word().ok_or_else(|| self.missing(what))
    }

    /// The next free-standing word, if there is one.
    pub(crate) fn optional_word(&self) -> Option<Placed<&'a str>> {
        self.take(|item| match item {
            Item::Word(word) => Some(word.as_str()),
            _ => None,
        })
    }

    /// A word that `known` accepts, wherever it stands.
    pub(crate) fn word_among<T>(&self, known: impl Fn(&str) -> Option<T>) -> Option<Placed<T>> {
        self.take(|item| match item {
            Item::Word(word) => known(word),
            _ => None,
        })
    }

    /// The next free-standing value; a word is the value of that name.
    pub(crate) fn value(&self, what: &str) -> Result<Expression, Problem> {
        enum Found<'a> {
            Value(&'a Expression),
            Name(&'a str),
        }
        let found = self.take(|item| match item {
            Item::Value(value) => Some(Found::Value(value)),
            Item::Word(word) => Some(Found::Name(word)),
            _ => None,
        });
        match found {
            None => Err(self.missing(what)),
            Some(Placed {
                item: Found::Value(value),
                ..
            }) => Ok(value.clone()),
            Some(Placed {
                item: Found::Name(name),
                span,
            }) => Ok(Expression::Name(name.to_owned(), span)),
        }
    }

    /// The next text in quotes.
    pub(crate) fn text(&self, what: &str) -> Result<String, Problem> {
        self.optional_text().ok_or_else(|| self.missing(what))
    }

    /// The next text in quotes, if there is one.
    pub(crate) fn optional_text(&self) -> Option<String> {
        self.take(|item| match item {
            Item::Text(text) => Some(text.clone()),
            _ => None,
        })
        .map(|placed| placed.item)
    }

    /// All parts of regions that stand by themselves.
    pub(crate) fn slices(&self) -> Vec<Placed<Slice>> {
        let next = || {
            self.take(|item| match item {
                Item::Slice(slice) => Some(slice.clone()),
                _ => None,
            })
        };
        std::iter::from_fn(next).collect()
    }

    /// What `name=` says.
    pub(crate) fn named(&self, name: &'static str) -> Option<Placed<Named>> {
        self.asked.borrow_mut().push(name);
        self.take(|item| match item {
            Item::Named(seen, named) if seen == name => Some(named.clone()),
            _ => None,
        })
    }

    /// What `name=` says, a value.
    pub(crate) fn number(&self, name: &'static str) -> Result<Option<Expression>, Problem> {
        match self.named(name) {
            None => Ok(None),
            Some(Placed {
                item: Named::Value(value),
                ..
            }) => Ok(Some(value)),
            Some(placed) => Err(Problem::new(
                placed.span,
                format!("`{name}` is a number, as in {name}=3"),
            )),
        }
    }

    /// What `name=` says, a single name.
    pub(crate) fn name(&self, name: &'static str) -> Result<Option<Placed<String>>, Problem> {
        let Some(placed) = self.named(name) else {
            return Ok(None);
        };
        match &placed.item {
            Named::Value(Expression::Name(value, span)) => Ok(Some(Placed {
                item: value.clone(),
                span: *span,
            })),
            _ => Err(Problem::new(placed.span, format!("`{name}` is a name"))),
        }
    }

    /// Access rights: `access=write+read`, or `all` or `none`.
    pub(crate) fn access(&self) -> Result<Option<verbs_api::Access>, Problem> {
        let Some(value) = self.number("access")? else {
            return Ok(None);
        };
        names::access(&value).map(Some)
    }

    /// Bytes: `data=…`.
    pub(crate) fn content(&self, name: &'static str) -> Result<Option<Placed<Content>>, Problem> {
        let Some(placed) = self.named(name) else {
            return Ok(None);
        };
        Ok(Some(Placed {
            item: content(&placed)?,
            span: placed.span,
        }))
    }

    /// Whether `name` (true) or `!name` (false) stands there.
    pub(crate) fn flag(&self, name: &'static str) -> Option<bool> {
        self.asked.borrow_mut().push(name);
        self.take(|item| match item {
            Item::Word(word) if word == name => Some(true),
            Item::Not(word) if word == name => Some(false),
            _ => None,
        })
        .map(|placed| placed.item)
    }

    /// Nothing may be left, nor a result that the head does not have.
    pub(crate) fn finish(self) -> Result<(), Problem> {
        if let Some(result) = &self.line.result {
            return Err(Problem::new(
                result.span,
                format!(
                    "`{}` has no result to compare (a value follows its name without blanks, as in `len=64`)",
                    self.line.head.item
                ),
            ));
        }
        self.finish_with_result()
    }

    /// Nothing may be left.
    pub(crate) fn finish_with_result(self) -> Result<(), Problem> {
        let taken = self.taken.borrow();
        let Some(at) = taken.iter().position(|taken| !taken) else {
            return Ok(());
        };
        let left = &self.line.items[at];
        let what = match &left.item {
            Item::Word(word) | Item::Not(word) | Item::Named(word, _) => format!("`{word}`"),
            Item::Slice(slice) => format!("`{}[…]`", slice.region),
            Item::Value(_) => "this number".into(),
            Item::Text(text) => format!("{text:?}"),
        };
        let asked = self.asked.borrow();
        let takes = if asked.is_empty() {
            "it takes none".to_owned()
        } else {
            format!("it takes {}", asked.join(", "))
        };
        let head = &self.line.head.item;
        Err(Problem::new(
            left.span,
            format!("{what} is no argument of `{head}`; {takes}"),
        ))
    }
}

/// Bytes, as `zero`, `pattern(7)`, `word(5)`, `hex("00ff")` or `"text"`.
pub(crate) fn content(placed: &Placed<Named>) -> Result<Content, Problem> {
    let problem = |message: &str| Problem::new(placed.span, message);
    match &placed.item {
        Named::Text(text) => Ok(Content::Bytes(text.clone().into_bytes())),
        Named::Value(Expression::Name(name, _)) if name == "zero" => Ok(Content::Zero),
        Named::Call(name, argument) => match (name.as_str(), argument) {
            ("pattern", Argument::Value(seed)) => Ok(Content::Pattern(seed.clone())),
            ("word", Argument::Value(value)) => Ok(Content::Word(value.clone())),
            ("hex", Argument::Text(digits)) => names::hex(digits)
                .map(Content::Bytes)
                .ok_or_else(|| problem("hex(\"…\") holds pairs of hexadecimal digits")),
            _ => Err(problem(
                "bytes are zero, pattern(SEED), word(VALUE), hex(\"…\") or \"text\"",
            )),
        },
        _ => Err(problem(
            "bytes are zero, pattern(SEED), word(VALUE), hex(\"…\") or \"text\"",
        )),
    }
}
