//! Tokens into lines: when, a head word, what it is about, and arguments. What the head means is not known here.

use crate::expression::Expression;
use crate::lexer::{Located, Token};
use crate::source::{Problem, Span};

/// When a line acts, or when what it expects must have happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum When {
    /// Nothing is said: acts at once; expects within the bench's patience.
    Unsaid,
    /// So long after the line before, give or take: `+10us`, `+10us~2us`.
    After(Expression, Option<Expression>),
    /// Between two times after the line before: `+1ms..4ms`.
    Within(Expression, Expression),
    /// So long after the start of the script: `@5ms`, `@5ms~1ms`.
    At(Expression, Option<Expression>),
}

/// Something that stands by itself behind the head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A name or a flag.
    Word(String),
    /// A flag with `!` in front.
    Not(String),
    /// A part of a memory region: `M[0..64]`, or all of it: `M[]`.
    Slice(Slice),
    /// A value.
    Value(Expression),
    /// Text in quotes.
    Text(String),
    /// `name=…`.
    Named(String, Named),
}

/// A part of a memory region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The region's name.
    pub region: String,
    /// Offsets, from and to; `None` is the whole.
    pub range: Option<(Expression, Expression)>,
}

/// What follows `name=`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named {
    /// A value. A single name is one too.
    Value(Expression),
    /// A part of a region.
    Slice(Slice),
    /// Text in quotes.
    Text(String),
    /// `name(value)`, as in `pattern(7)`.
    Call(String, Argument),
    /// `*` or `?`: any value.
    Any,
}

/// What stands between the parentheses of a [`Named::Call`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Argument {
    /// A value.
    Value(Expression),
    /// Text in quotes.
    Text(String),
}

/// An item and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed<T> {
    /// The item.
    pub item: T,
    /// Its place.
    pub span: Span,
}

/// A line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// When.
    pub when: Placed<When>,
    /// The first word, or the sign `<` or `>`.
    pub head: Placed<String>,
    /// The rest, in order.
    pub items: Vec<Placed<Item>>,
    /// What stands behind a lone ` = `.
    pub result: Option<Placed<Named>>,
}

impl Line {
    /// The place of the whole line.
    pub fn span(&self) -> Span {
        let last = self.result.as_ref().map(|r| r.span);
        let last = last.or(self.items.last().map(|i| i.span));
        self.head.span.to(last.unwrap_or(self.head.span))
    }
}

/// Reads a line; `None` when there is nothing on it.
pub fn parse(line_number: usize, text: &str) -> Result<Option<Line>, Problem> {
    let tokens = crate::lexer::tokens(line_number, text)?;
    if tokens.is_empty() {
        return Ok(None);
    }
    let end = Span {
        line: line_number,
        column: text.trim_end().chars().count(),
        length: 1,
    };
    let mut parser = Parser { tokens, at: 0, end };
    parser.line().map(Some)
}

/// Reads tokens one after another.
pub(crate) struct Parser {
    tokens: Vec<Located>,
    at: usize,
    end: Span,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|t| &t.token)
    }

    fn span(&self) -> Span {
        self.tokens.get(self.at).map_or(self.end, |t| t.span)
    }

    fn previous_span(&self) -> Span {
        self.tokens[self.at.saturating_sub(1).min(self.tokens.len() - 1)].span
    }

    /// Whether the next token follows the one before without a space.
    fn is_adjacent(&self) -> bool {
        let before = self.previous_span();
        self.at > 0 && self.at < self.tokens.len() && before.column + before.length == self.span().column
    }

    fn accept(&mut self, sign: &str) -> bool {
        let found = matches!(self.peek(), Some(Token::Sign(s)) if *s == sign);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &str) -> Result<(), Problem> {
        if self.accept(sign) {
            return Ok(());
        }
        Err(self.unexpected(&format!("`{sign}`")))
    }

    fn unexpected(&self, wanted: &str) -> Problem {
        let seen = match self.peek() {
            None => "the end of the line".to_owned(),
            Some(Token::Word(word)) => format!("`{word}`"),
            Some(Token::Number(number)) => format!("`{number}`"),
            Some(Token::Text(text)) => format!("{text:?}"),
            Some(Token::Sign(sign)) => format!("`{sign}`"),
        };
        Problem::new(self.span(), format!("expected {wanted}, seen {seen}"))
    }

    fn line(&mut self) -> Result<Line, Problem> {
        let when = self.when()?;
        let start = self.span();
        let head = match self.peek() {
            Some(Token::Word(word)) => word.clone(),
            Some(Token::Sign(sign @ ("<" | ">"))) => (*sign).to_owned(),
            _ => return Err(self.unexpected("a word that says what to do, or `<` or `>` and a packet")),
        };
        self.at += 1;
        let head = Placed {
            item: head,
            span: start,
        };
        let mut items = Vec::new();
        let mut result = None;
        while self.peek().is_some() {
            if self.accept("=") {
                let span = self.span();
                let item = self.named()?;
                result = Some(Placed {
                    item,
                    span: span.to(self.previous_span()),
                });
                if self.peek().is_some() {
                    return Err(self.unexpected("the end of the line"));
                }
                break;
            }
            let span = self.span();
            let item = self.item()?;
            items.push(Placed {
                item,
                span: span.to(self.previous_span()),
            });
        }
        Ok(Line {
            when,
            head,
            items,
            result,
        })
    }

    fn when(&mut self) -> Result<Placed<When>, Problem> {
        let span = self.span();
        let when = if self.accept("+") {
            let first = self.expression()?;
            if self.accept("..") {
                When::Within(first, self.expression()?)
            } else {
                When::After(first, self.tolerance()?)
            }
        } else if self.accept("@") {
            When::At(self.expression()?, self.tolerance()?)
        } else {
            When::Unsaid
        };
        Ok(Placed {
            item: when,
            span: span.to(self.previous_span()),
        })
    }

    fn tolerance(&mut self) -> Result<Option<Expression>, Problem> {
        self.accept("~").then(|| self.expression()).transpose()
    }

    fn item(&mut self) -> Result<Item, Problem> {
        match self.peek().cloned() {
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(Item::Text(text))
            }
            Some(Token::Sign("!")) => {
                self.at += 1;
                match self.peek().cloned() {
                    Some(Token::Word(word)) => {
                        self.at += 1;
                        Ok(Item::Not(word))
                    }
                    _ => Err(self.unexpected("the name of a flag behind `!`")),
                }
            }
            Some(Token::Word(word)) => {
                self.at += 1;
                match self.peek() {
                    Some(Token::Sign("=")) if self.is_adjacent() => {
                        self.at += 1;
                        Ok(Item::Named(word, self.named()?))
                    }
                    Some(Token::Sign("[")) if self.is_adjacent() => Ok(Item::Slice(self.slice(word)?)),
                    Some(Token::Sign("+" | "-" | "*")) if self.is_adjacent() => {
                        self.at -= 1;
                        Ok(Item::Value(self.expression()?))
                    }
                    _ => Ok(Item::Word(word)),
                }
            }
            Some(Token::Number(_) | Token::Sign("(")) => Ok(Item::Value(self.expression()?)),
            _ => Err(self.unexpected("a name, a number, `name=value` or `REGION[from..to]`")),
        }
    }

    fn named(&mut self) -> Result<Named, Problem> {
        match self.peek().cloned() {
            Some(Token::Text(text)) => {
                self.at += 1;
                Ok(Named::Text(text))
            }
            Some(Token::Sign("*" | "?")) => {
                self.at += 1;
                Ok(Named::Any)
            }
            Some(Token::Word(word)) => {
                let next = self.tokens.get(self.at + 1).map(|t| t.token.clone());
                match next {
                    Some(Token::Sign("[")) => {
                        self.at += 1;
                        Ok(Named::Slice(self.slice(word)?))
                    }
                    Some(Token::Sign("(")) => {
                        self.at += 2;
                        let argument = match self.peek().cloned() {
                            Some(Token::Text(text)) => {
                                self.at += 1;
                                Argument::Text(text)
                            }
                            _ => Argument::Value(self.expression()?),
                        };
                        self.expect(")")?;
                        Ok(Named::Call(word, argument))
                    }
                    _ => Ok(Named::Value(self.expression()?)),
                }
            }
            _ => Ok(Named::Value(self.expression()?)),
        }
    }

    fn slice(&mut self, region: String) -> Result<Slice, Problem> {
        self.expect("[")?;
        if self.accept("]") {
            return Ok(Slice { region, range: None });
        }
        let from = self.expression()?;
        self.expect("..")?;
        let to = self.expression()?;
        self.expect("]")?;
        Ok(Slice {
            region,
            range: Some((from, to)),
        })
    }

    fn expression(&mut self) -> Result<Expression, Problem> {
        self.expression_within(0)
    }

    /// Sums of products. `depth` bounds the parentheses.
    fn expression_within(&mut self, depth: usize) -> Result<Expression, Problem> {
        let mut left = self.product(depth)?;
        loop {
            // `M 1 +2` would be two things; a sign belongs to a value when it follows without a space.
            let build: fn(Box<Expression>, Box<Expression>) -> Expression = if !self.is_adjacent() {
                return Ok(left);
            } else if self.accept("+") {
                Expression::Sum
            } else if self.accept("-") {
                Expression::Difference
            } else {
                return Ok(left);
            };
            let right = self.product(depth)?;
            left = build(Box::new(left), Box::new(right));
        }
    }

    fn product(&mut self, depth: usize) -> Result<Expression, Problem> {
        let mut left = self.factor(depth)?;
        while self.is_adjacent() && self.accept("*") {
            let right = self.factor(depth)?;
            left = Expression::Product(Box::new(left), Box::new(right));
        }
        Ok(left)
    }

    fn factor(&mut self, depth: usize) -> Result<Expression, Problem> {
        const DEEPEST: usize = 16;
        let span = self.span();
        match self.peek().cloned() {
            Some(Token::Number(number)) => {
                self.at += 1;
                Ok(Expression::Number(number))
            }
            Some(Token::Word(word)) => {
                self.at += 1;
                Ok(Expression::Name(word, span))
            }
            Some(Token::Sign("(")) if depth < DEEPEST => {
                self.at += 1;
                let inner = self.expression_within(depth + 1)?;
                self.expect(")")?;
                Ok(inner)
            }
            Some(Token::Sign("(")) => Err(Problem::new(span, "too many parentheses within each other")),
            _ => Err(self.unexpected("a number or a name")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(text: &str) -> Line {
        parse(0, text).unwrap().unwrap()
    }

    #[test]
    fn a_line_has_a_time_a_head_items_and_a_result() {
        let read = line("+10us~2us send A 1 len=3*4 M[0..64] !signaled = EINVAL");
        assert_eq!(
            read.when.item,
            When::After(Expression::Number(10_000), Some(Expression::Number(2_000)))
        );
        assert_eq!(read.head.item, "send");
        let items: Vec<Item> = read.items.into_iter().map(|i| i.item).collect();
        assert_eq!(items[0], Item::Word("A".into()));
        assert_eq!(items[1], Item::Value(Expression::Number(1)));
        assert!(
            matches!(&items[2], Item::Named(name, Named::Value(Expression::Product(..))) if name == "len")
        );
        assert!(matches!(&items[3], Item::Slice(slice) if slice.region == "M"));
        assert_eq!(items[4], Item::Not("signaled".into()));
        assert!(matches!(
            read.result.unwrap().item,
            Named::Value(Expression::Name(name, _)) if name == "EINVAL"
        ));
    }

    #[test]
    fn empty_lines_and_comments_are_nothing() {
        assert_eq!(parse(0, ""), Ok(None));
        assert_eq!(parse(0, "   # a remark"), Ok(None));
    }

    #[test]
    fn wrong_lines_say_what_was_expected_where() {
        for (text, column, words) in [
            ("+ send", 6, "expected a word that says what to do"),
            ("= 3", 0, "expected a word"),
            ("send A M[0", 10, "expected `..`"),
            ("let x = 3 4", 10, "the end of the line"),
            ("send A len=", 11, "a number or a name"),
            ("send A ! 3", 9, "the name of a flag"),
        ] {
            let problem = parse(0, text).unwrap_err();
            assert!(problem.message.contains(words), "{text}: {}", problem.message);
            assert_eq!(problem.span.column, column, "{text}: {}", problem.message);
        }
    }

    #[test]
    fn parentheses_have_a_bound() {
        let text = format!("let x = {}1{}", "(".repeat(5000), ")".repeat(5000));
        assert!(
            parse(0, &text)
                .unwrap_err()
                .message
                .contains("too many parentheses")
        );
    }
}
