//! Lines into tokens.

use crate::source::{Problem, Span};

/// A piece of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Token {
    /// A name or keyword; may have dots inside (`M.rkey`).
    Word(String),
    /// A number; with a unit of time it is in nanoseconds.
    Number(u64),
    /// Text between quotes.
    Text(String),
    /// One of the signs of [`SIGNS`].
    Sign(&'static str),
}

/// A token and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Located {
    /// The token.
    pub token: Token,
    /// Its place.
    pub span: Span,
}

/// All signs, longer ones first.
const SIGNS: [&str; 16] = [
    "..", "<", ">", "=", "+", "-", "*", "(", ")", "[", "]", ",", "~", "@", "!", "?",
];

/// Units of time, in nanoseconds.
const UNITS: [(&str, u64); 4] = [("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

/// The tokens of a line; a comment (`#` to the end) is none.
pub fn tokens(line_number: usize, line: &str) -> Result<Vec<Located>, Problem> {
    let characters: Vec<char> = line.chars().collect();
    let mut lexer = Lexer {
        line: line_number,
        characters: &characters,
        at: 0,
    };
    let mut all = Vec::new();
    while let Some(next) = lexer.next_token()? {
        all.push(next);
    }
    Ok(all)
}

struct Lexer<'a> {
    line: usize,
    characters: &'a [char],
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<char> {
        self.characters.get(self.at + ahead).copied()
    }

    fn span_from(&self, start: usize) -> Span {
        Span {
            line: self.line,
            column: start,
            length: self.at - start,
        }
    }

    fn take_while(&mut self, keep: impl Fn(char) -> bool) -> String {
        let start = self.at;
        while self.peek(0).is_some_and(&keep) {
            self.at += 1;
        }
        self.characters[start..self.at].iter().collect()
    }

    fn next_token(&mut self) -> Result<Option<Located>, Problem> {
        self.take_while(char::is_whitespace);
        let start = self.at;
        let token = match self.peek(0) {
            None | Some('#') => return Ok(None),
            Some('"') => self.text()?,
            Some(c) if c.is_ascii_digit() => self.number()?,
            Some(c) if is_word_start(c) => Token::Word(self.word()),
            Some(c) => self.sign().ok_or_else(|| {
                self.at += 1;
                Problem::new(
                    self.span_from(start),
                    format!("the character {c:?} means nothing here"),
                )
            })?,
        };
        Ok(Some(Located {
            token,
            span: self.span_from(start),
        }))
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek(0) {
            // A single dot joins two names; two dots are a range.
            let joins = c == '.' && self.peek(1).is_some_and(is_word_start);
            if !(joins || c == '_' || c.is_ascii_alphanumeric()) {
                break;
            }
            word.push(c);
            self.at += 1;
        }
        word
    }

    fn text(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        self.at += 1;
        let text = self.take_while(|c| c != '"');
        if self.peek(0).is_none() {
            return Err(Problem::new(
                self.span_from(start),
                "the closing quote is missing",
            ));
        }
        self.at += 1;
        Ok(Token::Text(text))
    }

    fn number(&mut self) -> Result<Token, Problem> {
        let start = self.at;
        if self.peek(0) == Some('0') && matches!(self.peek(1), Some('x' | 'X')) {
            self.at += 2;
            let digits = self
                .take_while(|c| c.is_ascii_hexdigit() || c == '_')
                .replace('_', "");
            return u64::from_str_radix(&digits, 16).map(Token::Number).map_err(|_| {
                Problem::new(
                    self.span_from(start),
                    "a hexadecimal number has 1 to 16 digits after 0x",
                )
            });
        }
        let whole = self
            .take_while(|c| c.is_ascii_digit() || c == '_')
            .replace('_', "");
        let mut fraction = String::new();
        if self.peek(0) == Some('.') && self.peek(1).is_some_and(|c| c.is_ascii_digit()) {
            self.at += 1;
            fraction = self.take_while(|c| c.is_ascii_digit());
        }
        let unit = self.take_while(|c| c.is_ascii_alphabetic());
        let problem = |this: &Self, message: String| Problem::new(this.span_from(start), message);
        let scale = match UNITS.iter().find(|(name, _)| *name == unit) {
            Some((_, scale)) => *scale,
            None if unit.is_empty() && fraction.is_empty() => 1,
            None if unit.is_empty() => {
                return Err(problem(
                    self,
                    "a number with a fraction needs a unit: ns, us, ms or s".into(),
                ));
            }
            None => {
                return Err(problem(
                    self,
                    format!("no unit {unit:?}; times have ns, us, ms or s"),
                ));
            }
        };
        scaled(&whole, &fraction, scale)
            .map(Token::Number)
            .ok_or_else(|| problem(self, "the number does not fit 64 bits".into()))
    }

    fn sign(&mut self) -> Option<Token> {
        let sign = SIGNS
            .into_iter()
            .find(|sign| sign.chars().enumerate().all(|(n, c)| self.peek(n) == Some(c)))?;
        self.at += sign.len();
        Some(Token::Sign(sign))
    }
}

fn is_word_start(c: char) -> bool {
    c == '_' || c.is_ascii_alphabetic()
}

/// `whole.fraction` times `scale`; digits below one are dropped.
fn scaled(whole: &str, fraction: &str, scale: u64) -> Option<u64> {
    let mut value = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.chars() {
        place /= 10;
        value = value.checked_add(u64::from(digit.to_digit(10)?) * place)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only(line: &str) -> Vec<Token> {
        tokens(0, line).unwrap().into_iter().map(|t| t.token).collect()
    }

    #[test]
    fn names_numbers_signs_and_times_are_told_apart() {
        assert_eq!(
            only("+10us > SEND_ONLY psn=s+1 M[0..64] # tail"),
            vec![
                Token::Sign("+"),
                Token::Number(10_000),
                Token::Sign(">"),
                Token::Word("SEND_ONLY".into()),
                Token::Word("psn".into()),
                Token::Sign("="),
                Token::Word("s".into()),
                Token::Sign("+"),
                Token::Number(1),
                Token::Word("M".into()),
                Token::Sign("["),
                Token::Number(0),
                Token::Sign(".."),
                Token::Number(64),
                Token::Sign("]"),
            ]
        );
        assert_eq!(
            only("0.64ms 4.096us"),
            vec![Token::Number(640_000), Token::Number(4_096)]
        );
        assert_eq!(only("M.rkey"), vec![Token::Word("M.rkey".into())]);
        assert_eq!(only("0xAB_cd"), vec![Token::Number(0xabcd)]);
    }

    #[test]
    fn what_is_no_token_is_named_with_its_column() {
        for (line, column, words) in [
            ("send A %", 7, "means nothing"),
            ("title \"open", 6, "closing quote"),
            ("wait 10min", 5, "no unit"),
            ("wait 1.5", 5, "needs a unit"),
            ("psn=0x", 4, "hexadecimal"),
            ("n=99999999999999999999", 2, "64 bits"),
        ] {
            let problem = tokens(4, line).unwrap_err();
            assert_eq!((problem.span.line, problem.span.column), (4, column), "{line}");
            assert!(problem.message.contains(words), "{line}: {}", problem.message);
        }
    }
}
