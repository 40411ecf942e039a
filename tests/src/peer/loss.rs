//! What loses one chosen packet when told to: a fault rule of the embedded card.

use anyhow::Result;
use softroce::Softroce;
use softroce::faults::Rules;

/// The way of a packet, seen from here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Sent.
    Out,
    /// Received.
    In,
}

/// What to lose: the next packet that fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// Which way.
    pub way: Way,
    /// Which packets: an `opcode` of fault rules, such as `"rc send middle"`.
    pub packets: &'static str,
}

/// Loses packets of a card, whose options have to have fault rules from the start, empty ones at that.
#[derive(Debug, Clone, Copy)]
pub struct Loss<'a> {
    card: &'a Softroce,
}

impl<'a> Loss<'a> {
    /// Of this card, whose devices are open; until [`arm`](Self::arm) it loses nothing.
    pub fn of(card: &'a Softroce) -> Result<Self> {
        card.set_faults(None)?;
        Ok(Loss { card })
    }

    /// Has the next packet that fits be lost.
    pub fn arm(self, rule: Rule) -> Result<()> {
        let direction = match rule.way {
            Way::Out => "out",
            Way::In => "in",
        };
        let opcode = rule.packets;
        let rules = format!(
            "[[packet]]\ndirection = \"{direction}\"\nopcode = \"{opcode}\"\nhits = 1\ndo = \"drop\"\n"
        );
        Ok(self.card.set_faults(Some(Rules::parse(&rules)?))?)
    }

    /// Whether the packet was lost meanwhile; if not, none will be.
    pub fn disarm(self) -> Result<bool> {
        let was_lost = self.card.faults().tallies().iter().any(|rule| rule.hits > 0);
        self.card.set_faults(None)?;
        Ok(was_lost)
    }
}
