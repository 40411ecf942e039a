//! A test case: a sentence and a function that passes, fails, or cannot run here and says why.

use std::fmt::Display;

use libtest_mimic::{Completion, Failed, Trial};

/// Why a case did not pass.
#[derive(Debug)]
pub enum Stop {
    /// The behaviour is wrong; the text shows what each process printed.
    Fail(String),
    /// This machine lacks something that the case needs; shown as ignored, with this reason.
    Skip(String),
}

/// What a case's function returns.
pub type Outcome = Result<(), Stop>;

impl Stop {
    /// A failure with a message.
    pub fn fail(message: impl Display) -> Self {
        Stop::Fail(message.to_string())
    }

    /// Something that the case needs is not here.
    pub fn skip(reason: impl Display) -> Self {
        Stop::Skip(reason.to_string())
    }
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Stop::Fail(error.to_string())
    }
}

/// A named case.
pub struct Case {
    name: String,
    run: Box<dyn FnOnce() -> Outcome + Send>,
}

impl Case {
    /// `sentence` says the behaviour that `run` checks.
    pub fn new(sentence: impl Display, run: impl FnOnce() -> Outcome + Send + 'static) -> Self {
        let name = sentence.to_string().replace(' ', "_");
        Case {
            name,
            run: Box::new(run),
        }
    }

    /// The case as `cargo test` sees it.
    pub fn into_trial(self) -> Trial {
        Trial::ignorable_test(self.name, || match (self.run)() {
            Ok(()) => Ok(Completion::Completed),
            Err(Stop::Skip(reason)) => Ok(Completion::ignored_with(reason)),
            Err(Stop::Fail(message)) => Err(Failed::from(message)),
        })
    }
}

/// Fails with `message` unless `condition` holds.
pub fn ensure(condition: bool, message: impl FnOnce() -> String) -> Outcome {
    if condition {
        Ok(())
    } else {
        Err(Stop::Fail(message()))
    }
}
