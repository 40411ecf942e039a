//! A ladder as SVG. Its colours come from the page's style ([`super::STYLE`]).

use std::fmt::Write as _;

use super::{Ladder, Reach, Rung, Side, Tone, escaped};

const LEFT_X: u32 = 170;
const RIGHT_X: u32 = 830;
const WIDTH: u32 = 1300;
const ROW: u32 = 26;
const TOP: u32 = 34;
/// Where a packet that does not arrive ends, from its sender.
const SHORT: u32 = 600;

impl Ladder {
    /// The picture, as an element of a page.
    pub fn svg(&self) -> String {
        let height = TOP + ROW * (self.rungs.len() as u32 + 1);
        let mut out = format!(
            "<svg class=\"ladder\" role=\"img\" aria-label=\"packets between {} and {}\" width=\"{WIDTH}\" \
             height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\">\n",
            self.left, self.right
        );
        // Writing to a string does not fail.
        for (x, address) in [(LEFT_X, self.left), (RIGHT_X, self.right)] {
            let _ = writeln!(
                out,
                "<text class=\"end\" x=\"{x}\" y=\"18\">{address}</text><line class=\"life\" x1=\"{x}\" y1=\"26\" \
                 x2=\"{x}\" y2=\"{height}\"/>"
            );
        }
        for (at, rung) in self.rungs.iter().enumerate() {
            draw(rung, TOP + ROW * at as u32 + 18, &mut out);
        }
        out.push_str("</svg>\n");
        out
    }
}

fn draw(rung: &Rung, y: u32, out: &mut String) {
    let mut class = match rung.tone {
        Tone::Request => "request",
        Tone::Response => "response",
        Tone::Ack => "ack",
        Tone::Nak => "nak",
        Tone::Notification => "notification",
    }
    .to_owned();
    if rung.transmission > 1 {
        class.push_str(" again");
    }
    if rung.reach != Reach::Arrives {
        class.push_str(" lost");
    }
    if !rung.deviations.is_empty() {
        class.push_str(" deviates");
    }
    let (from, to, tip) = match (rung.from, rung.reach) {
        (Side::Left, Reach::Arrives) => (LEFT_X, RIGHT_X, -8),
        (Side::Right, Reach::Arrives) => (RIGHT_X, LEFT_X, 8),
        (Side::Left, _) => (LEFT_X, LEFT_X + SHORT, 0),
        (Side::Right, _) => (RIGHT_X, RIGHT_X - SHORT, 0),
    };
    let _ = write!(
        out,
        "<g class=\"{class}\"><text class=\"number\" x=\"60\" y=\"{y}\">{}</text><text class=\"time\" x=\"160\" \
         y=\"{y}\">{}</text><line x1=\"{from}\" y1=\"{y}\" x2=\"{to}\" y2=\"{y}\"/>",
        rung.number,
        rung.time()
    );
    if rung.reach == Reach::Arrives {
        let back = to as i32 + tip;
        let _ = write!(
            out,
            "<path d=\"M{to} {y} L{back} {} L{back} {} Z\"/>",
            y - 4,
            y + 4
        );
    } else {
        let (a, b, c, d) = (to - 5, to + 5, y - 5, y + 5);
        let _ = write!(
            out,
            "<path class=\"cross\" d=\"M{a} {c} L{b} {d} M{a} {d} L{b} {c}\"/>"
        );
    }
    let middle = (LEFT_X + RIGHT_X) / 2;
    let _ = write!(
        out,
        "<text class=\"label\" x=\"{middle}\" y=\"{}\">{}</text>",
        y - 4,
        escaped(&rung.label)
    );
    let remarks = rung.remarks();
    if !remarks.is_empty() {
        let _ = write!(
            out,
            "<text class=\"remark\" x=\"{}\" y=\"{y}\">{}</text>",
            RIGHT_X + 12,
            escaped(&remarks.join("; "))
        );
    }
    out.push_str("</g>\n");
}
