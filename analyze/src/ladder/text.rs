//! Ladders for a terminal.

use std::fmt;

use super::{Ladder, Ladders, Reach, Side};

/// Arrows are not drawn longer than this.
const WIDTH_MAX: usize = 100;

impl fmt::Display for Ladders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, ladder) in self.ladders.iter().enumerate() {
            if at > 0 {
                writeln!(f)?;
            }
            write!(f, "{ladder}")?;
        }
        if self.omitted > 0 {
            writeln!(
                f,
                "\n{} more packets are not drawn; choose others with --from and --to",
                self.omitted
            )?;
        }
        Ok(())
    }
}

impl fmt::Display for Ladder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.rungs.iter().map(|rung| rung.label.chars().count());
        let width = labels.max().unwrap_or(0).min(WIDTH_MAX);
        let (left, right) = (self.left.to_string(), self.right.to_string());
        let inner = width + 8;
        writeln!(f, "{:>6} {:>12}  {left:inner$}{right}", "frame", "time")?;
        for rung in &self.rungs {
            let label: String = rung.label.chars().take(WIDTH_MAX).collect();
            let head = match (rung.reach, rung.from) {
                (Reach::Arrives, Side::Left) => ">",
                (Reach::Arrives, Side::Right) => "<",
                (Reach::Lost | Reach::Spoilt, _) => "x",
            };
            let line = "-".repeat(width - label.chars().count());
            let arrow = match rung.from {
                Side::Left => format!("|-- {label} {line}-{head}|"),
                Side::Right => format!("|{head}- {label} {line}--|"),
            };
            write!(f, "{:>6} {:>12}  {arrow}", rung.number, rung.time())?;
            let remarks = rung.remarks();
            if remarks.is_empty() {
                writeln!(f)?;
            } else {
                writeln!(f, "  {}", remarks.join("; "))?;
            }
        }
        Ok(())
    }
}
