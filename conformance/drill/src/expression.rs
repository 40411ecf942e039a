//! Values: numbers, names, sums, differences and products. They wrap at 64 bits, as packet numbers do at 24.

use crate::source::{Problem, Span};

/// A value that may depend on names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expression {
    /// A number.
    Number(u64),
    /// A name, and where it stands.
    Name(String, Span),
    /// a + b
    Sum(Box<Expression>, Box<Expression>),
    /// a - b
    Difference(Box<Expression>, Box<Expression>),
    /// a * b
    Product(Box<Expression>, Box<Expression>),
}

impl Expression {
    /// Its value, where `look_up` knows the names.
    pub fn evaluate(&self, look_up: &impl Fn(&str) -> Option<u64>) -> Result<u64, Problem> {
        let both = |a: &Expression, b: &Expression| Ok((a.evaluate(look_up)?, b.evaluate(look_up)?));
        match self {
            Expression::Number(number) => Ok(*number),
            Expression::Name(name, span) => {
                look_up(name).ok_or_else(|| Problem::new(*span, format!("nothing is called `{name}`")))
            }
            Expression::Sum(a, b) => both(a, b).map(|(a, b)| a.wrapping_add(b)),
            Expression::Difference(a, b) => both(a, b).map(|(a, b)| a.wrapping_sub(b)),
            Expression::Product(a, b) => both(a, b).map(|(a, b)| a.wrapping_mul(b)),
        }
    }

    /// The name, where it is one and nothing else.
    pub fn as_name(&self) -> Option<&str> {
        match self {
            Expression::Name(name, _) => Some(name),
            _ => None,
        }
    }

    /// Each name in it, with its place.
    pub fn names(&self, visit: &mut impl FnMut(&str, Span)) {
        match self {
            Expression::Number(_) => {}
            Expression::Name(name, span) => visit(name, *span),
            Expression::Sum(a, b) | Expression::Difference(a, b) | Expression::Product(a, b) => {
                a.names(visit);
                b.names(visit);
            }
        }
    }
}
