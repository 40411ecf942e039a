//! What the two ends say to each other, and how a case ends.

use std::fmt;

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde_json::{Value, json};
use verbs_api::{ErrorKind, PostError};

use crate::peer::Line;

/// What ends each end's part of a case.
const VERDICT: &str = "verdict";

/// How an end's part of a case ended, if nothing went wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// As the specification says.
    Passed,
    /// As a documented deviation of the peer says: which.
    Deviation(&'static str),
    /// It cannot be played with these two: why.
    Skipped(&'static str),
}

/// How a case ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed,
    Deviation(String),
    Skipped(String),
    /// A provider lacks what it needs.
    Unsupported(String),
    Failed(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Passed => write!(f, "ok"),
            Verdict::Deviation(which) => write!(f, "deviation: {which}"),
            Verdict::Skipped(why) => write!(f, "skipped: {why}"),
            Verdict::Unsupported(what) => write!(f, "unsupported: {what}"),
            Verdict::Failed(why) => write!(f, "FAILED: {why}"),
        }
    }
}

impl Verdict {
    fn of(outcome: Result<Ending>) -> Verdict {
        match outcome {
            Ok(Ending::Passed) => Verdict::Passed,
            Ok(Ending::Deviation(which)) => Verdict::Deviation(which.to_owned()),
            Ok(Ending::Skipped(why)) => Verdict::Skipped(why.to_owned()),
            Err(error) if is_unsupported(&error) => Verdict::Unsupported(format!("{error:#}")),
            Err(error) => Verdict::Failed(format!("{error:#}")),
        }
    }

    fn parts(&self) -> (&'static str, &str) {
        match self {
            Verdict::Passed => ("passed", ""),
            Verdict::Deviation(which) => ("deviation", which),
            Verdict::Skipped(why) => ("skipped", why),
            Verdict::Unsupported(what) => ("unsupported", what),
            Verdict::Failed(why) => ("failed", why),
        }
    }

    fn parse(said: &Value) -> Result<Verdict> {
        let detail = said["detail"].as_str().unwrap_or_default().to_owned();
        Ok(match said["outcome"].as_str() {
            Some("passed") => Verdict::Passed,
            Some("deviation") => Verdict::Deviation(detail),
            Some("skipped") => Verdict::Skipped(detail),
            Some("unsupported") => Verdict::Unsupported(detail),
            Some("failed") => Verdict::Failed(detail),
            _ => bail!("the peer's verdict is {said}"),
        })
    }

    fn weight(&self) -> u8 {
        match self {
            Verdict::Passed => 0,
            Verdict::Deviation(_) => 1,
            Verdict::Skipped(_) => 2,
            Verdict::Failed(_) => 3,
            // The cause of what the other end calls a failure.
            Verdict::Unsupported(_) => 4,
        }
    }

    /// Of both ends' verdicts the graver; of two failures both.
    fn with(self, theirs: Verdict) -> Verdict {
        match (self, theirs) {
            (Verdict::Failed(mine), Verdict::Failed(theirs)) => {
                Verdict::Failed(format!("{mine}; at the peer: {theirs}"))
            }
            (mine, theirs) if theirs.weight() > mine.weight() => theirs,
            (mine, _) => mine,
        }
    }
}

fn is_unsupported(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let direct = cause.downcast_ref::<verbs_api::Error>();
        let posted = cause.downcast_ref::<PostError>().map(|posted| &posted.error);
        direct
            .or(posted)
            .is_some_and(|error| error.kind() == ErrorKind::Unsupported)
    })
}

/// The line to the other end, which may give a case up at any time.
#[derive(Debug)]
pub struct Talk<'a> {
    line: &'a mut Line,
    /// The peer's verdict, if it came before it was waited for.
    early: Option<Value>,
}

impl<'a> Talk<'a> {
    pub fn new(line: &'a mut Line) -> Self {
        Talk { line, early: None }
    }

    pub fn tell(&mut self, kind: &str) -> Result<()> {
        self.line.tell(kind)
    }

    /// Says something; `fields` is an object.
    pub fn tell_with(&mut self, kind: &str, fields: Value) -> Result<()> {
        self.line.tell_with(kind, fields)
    }

    /// Waits for what the other end says next, which must be of this kind.
    pub fn hear(&mut self, kind: &str) -> Result<Value> {
        if self.early.is_none() {
            let said = self
                .line
                .hear_any()
                .with_context(|| format!("waiting for `{kind}`"))?;
            if said["type"] != VERDICT {
                ensure!(
                    said["type"] == kind,
                    "the peer said {said}, `{kind}` was expected"
                );
                return Ok(said);
            }
            self.early = Some(said);
        }
        Err(anyhow!("the peer gave up before `{kind}`"))
    }

    /// Both say something of this kind, and hear it: nobody goes on before the other is as far.
    pub fn meet(&mut self, kind: &str) -> Result<Value> {
        self.meet_with(kind, json!({}))
    }

    /// The same with fields.
    pub fn meet_with(&mut self, kind: &str, fields: Value) -> Result<Value> {
        self.tell_with(kind, fields)?;
        self.hear(kind)
    }

    /// Exchanges verdicts; the case is over for both.
    pub fn settle(&mut self, outcome: Result<Ending>) -> Result<Verdict> {
        let mine = Verdict::of(outcome);
        let (outcome, detail) = mine.parts();
        self.tell_with(VERDICT, json!({ "outcome": outcome, "detail": detail }))?;
        let theirs = loop {
            match self.early.take() {
                Some(said) => break said,
                // What it says before its verdict belongs to the case that was given up here.
                None => self.early = Some(self.line.hear_any()?).filter(|said| said["type"] == VERDICT),
            }
        };
        Ok(mine.with(Verdict::parse(&theirs)?))
    }
}

#[cfg(test)]
mod tests {
    use super::{Ending, Verdict};

    #[test]
    fn what_a_provider_lacks_explains_the_peers_failure() {
        let lacks = anyhow::Error::from(verbs_api::Error::unsupported("XRC")).context("posting");
        let lacks = Verdict::of(Err(lacks));
        let failed = Verdict::Failed("the peer gave up".into());
        assert_eq!(failed.clone().with(lacks.clone()), lacks);
        assert_eq!(lacks.clone().with(failed), lacks);
    }

    #[test]
    fn a_deviation_of_either_end_is_one_of_the_case() {
        let deviation = Verdict::of(Ok(Ending::Deviation("another status")));
        assert_eq!(Verdict::Passed.with(deviation.clone()), deviation);
        assert_eq!(deviation.clone().with(Verdict::Passed), deviation);
    }

    #[test]
    fn both_ends_failures_are_told() {
        let both = Verdict::Failed("a".into()).with(Verdict::Failed("b".into()));
        assert_eq!(both, Verdict::Failed("a; at the peer: b".into()));
    }
}
