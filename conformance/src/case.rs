//! A case: what it is called, what it shows, what it needs, and the function that runs it.

use crate::outcome::CaseResult;
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};

/// What a case is made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Verbs on both ends and nothing else: runs on any provider.
    Verbs,
    /// Verbs on both ends, faults between them.
    Faults,
    /// One end is played by the case, packet by packet.
    RawPeer,
}

impl Mode {
    /// Its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Verbs => "verbs",
            Mode::Faults => "faults",
            Mode::RawPeer => "raw",
        }
    }
}

impl std::str::FromStr for Mode {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Mode::Verbs, Mode::Faults, Mode::RawPeer]
            .into_iter()
            .find(|mode| mode.name() == name)
            .ok_or_else(|| format!("there is no mode {name:?}; the modes are verbs, faults and raw"))
    }
}

/// One case, on a bed of type `B`.
pub struct Case<B: Testbed> {
    /// Its id in the catalogue, such as `D1`; a suffix tells parts of one entry apart.
    pub id: &'static str,
    /// One line: what must happen.
    pub title: &'static str,
    /// The requirements that it shows (`docs/spec/requirements.toml`).
    pub requirements: &'static [&'static str],
    /// What it is made with.
    pub mode: Mode,
    /// 1 is a must.
    pub priority: u8,
    /// What the bed must have.
    pub needs: &'static [Need],
    /// The case itself.
    pub run: fn(&mut Scene<B>) -> CaseResult,
}

impl<B: Testbed> Case<B> {
    /// A case of priority 1 with verbs only.
    pub fn verbs(
        id: &'static str,
        title: &'static str,
        requirements: &'static [&'static str],
        run: fn(&mut Scene<B>) -> CaseResult,
    ) -> Self {
        Case {
            id,
            title,
            requirements,
            mode: Mode::Verbs,
            priority: 1,
            needs: &[],
            run,
        }
    }

    /// A case of priority 1 with faults on the way.
    pub fn faults(
        id: &'static str,
        title: &'static str,
        requirements: &'static [&'static str],
        run: fn(&mut Scene<B>) -> CaseResult,
    ) -> Self {
        Case {
            id,
            title,
            requirements,
            mode: Mode::Faults,
            priority: 1,
            needs: &[Need::Network],
            run,
        }
    }

    /// A case of priority 1 that plays one end itself.
    pub fn raw_peer(
        id: &'static str,
        title: &'static str,
        requirements: &'static [&'static str],
        run: fn(&mut Scene<B>) -> CaseResult,
    ) -> Self {
        Case {
            id,
            title,
            requirements,
            mode: Mode::RawPeer,
            priority: 1,
            needs: &[Need::Network],
            run,
        }
    }

    /// The same with other needs.
    pub fn needing(mut self, needs: &'static [Need]) -> Self {
        self.needs = needs;
        self
    }

    /// The same with another priority.
    pub fn of_priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }

    /// Why the case cannot run on `bed`, if so.
    pub fn missing(&self, bed: &B) -> Option<&'static str> {
        self.needs
            .iter()
            .find(|need| !bed.has(**need))
            .map(|need| need.lacking())
    }
}
