//! How a case ends.

use std::fmt;

/// Why a case failed: what was expected, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    message: String,
    is_unsupported: bool,
}

impl Failure {
    /// A failure with its sentence.
    pub fn new(message: impl Into<String>) -> Self {
        Failure {
            message: message.into(),
            is_unsupported: false,
        }
    }

    /// Whether it is that the provider does not offer a verb.
    pub fn is_unsupported(&self) -> bool {
        self.is_unsupported
    }

    /// The same, with what was going on in front.
    pub fn during(self, doing: impl fmt::Display) -> Self {
        Failure {
            message: format!("{doing}: {}", self.message),
            ..self
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

impl From<verbs_api::Error> for Failure {
    fn from(error: verbs_api::Error) -> Self {
        Failure {
            message: format!(
                "a verb that must succeed was refused: {error} (errno {})",
                error.errno()
            ),
            is_unsupported: error.kind() == verbs_api::ErrorKind::Unsupported,
        }
    }
}

impl From<verbs_api::PostError> for Failure {
    fn from(error: verbs_api::PostError) -> Self {
        Failure {
            message: format!("a post that must succeed was refused: {error}"),
            is_unsupported: error.error.kind() == verbs_api::ErrorKind::Unsupported,
        }
    }
}

impl<T> From<verbs_api::Refused<T>> for Failure {
    fn from(refused: verbs_api::Refused<T>) -> Self {
        Failure::new(format!(
            "destroying an object that nothing uses was refused: {}",
            refused.error
        ))
    }
}

/// What a case function answers.
pub type CaseResult = Result<(), Failure>;

/// The verdict on one case on one bed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// As the requirement says.
    Pass,
    /// Not as the requirement says, but as documented for this provider.
    Deviation(String),
    /// Not as the requirement says.
    Fail(String),
    /// Not run: something is missing on this bed, named here.
    Skipped(String),
}

impl Verdict {
    /// One word.
    pub fn word(&self) -> &'static str {
        match self {
            Verdict::Pass => "pass",
            Verdict::Deviation(_) => "deviation",
            Verdict::Fail(_) => "FAIL",
            Verdict::Skipped(_) => "skipped",
        }
    }

    /// The explanation, where there is one.
    pub fn explanation(&self) -> Option<&str> {
        match self {
            Verdict::Pass => None,
            Verdict::Deviation(why) | Verdict::Fail(why) | Verdict::Skipped(why) => Some(why),
        }
    }
}

/// Fail the case with a message unless the condition holds.
#[macro_export]
macro_rules! check {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::Failure::new(format!($($message)+)));
        }
    };
}

/// Fail the case unless both are equal; says what was compared, what was expected and what was seen.
#[macro_export]
macro_rules! same {
    ($seen:expr, $expected:expr, $($what:tt)+) => {{
        let (seen, expected) = (&$seen, &$expected);
        if seen != expected {
            return Err($crate::Failure::new(format!(
                "{}: expected {expected:?}, seen {seen:?}",
                format_args!($($what)+)
            )));
        }
    }};
}
