//! Ladders as a page of its own, that needs nothing else and no network.

use std::fmt::Write as _;

use super::Ladders;

/// What the elements of a ladder need in the style of their page, for light and dark.
pub const STYLE: &str = "\
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--faint:#667;--rule:#d5d9de;--panel:#f6f7f9;\
--request:#1f5fbf;--response:#0b7a75;--ack:#2e7d32;--nak:#c62828;--note:#8e5a00;--bad:#c62828}\n\
@media(prefers-color-scheme:dark){:root{--paper:#14171b;--ink:#e4e7ea;--faint:#9aa3ad;--rule:#343a41;\
--panel:#1d2126;--request:#7fb2ff;--response:#5fd0c9;--ack:#7fd184;--nak:#ff8a80;--note:#e7b75f;--bad:#ff8a80}}\n\
body{margin:0 auto;padding:1.5rem;max-width:84rem;background:var(--paper);color:var(--ink);\
font:15px/1.45 system-ui,sans-serif}\n\
.scroll{overflow-x:auto}\n\
svg.ladder{display:block;font:12px ui-monospace,monospace;fill:var(--ink)}\n\
.ladder .life{stroke:var(--rule);stroke-width:2}\n\
.ladder .end{text-anchor:middle;font-weight:bold}\n\
.ladder .number,.ladder .time{text-anchor:end;fill:var(--faint)}\n\
.ladder .label{text-anchor:middle;paint-order:stroke;stroke:var(--paper);stroke-width:3px}\n\
.ladder g line,.ladder .cross{stroke-width:1.5;fill:none}\n\
.ladder .request line,.ladder .request .cross{stroke:var(--request)}.ladder .request path{fill:var(--request)}\n\
.ladder .response line,.ladder .response .cross{stroke:var(--response)}.ladder .response path{fill:var(--response)}\n\
.ladder .ack line,.ladder .ack .cross{stroke:var(--ack)}.ladder .ack path{fill:var(--ack)}\n\
.ladder .nak line,.ladder .nak .cross{stroke:var(--nak)}.ladder .nak path{fill:var(--nak)}\n\
.ladder .nak .label{fill:var(--nak)}\n\
.ladder .notification line,.ladder .notification .cross{stroke:var(--note)}\
.ladder .notification path{fill:var(--note)}\n\
.ladder .again line{stroke-width:3}\n\
.ladder .lost line{stroke-dasharray:6 4}.ladder .lost .cross{stroke:var(--bad);stroke-width:2.5;fill:none}\n\
.ladder .remark{fill:var(--faint)}.ladder .again .remark,.ladder .lost .remark{fill:var(--note)}\n\
.ladder .deviates .remark{fill:var(--bad);font-weight:bold}\n";

/// Text as HTML takes it, in attributes too.
pub fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c if c.is_control() && c != '\n' => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// The page.
pub fn page(title: &str, ladders: &Ladders) -> String {
    let title = escaped(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
    );
    // Writing to a string does not fail.
    for ladder in &ladders.ladders {
        let _ = writeln!(
            out,
            "<section><h2>{} and {}: {} packets</h2><div class=\"scroll\">{}</div></section>",
            ladder.left,
            ladder.right,
            ladder.rungs.len(),
            ladder.svg()
        );
    }
    if ladders.ladders.is_empty() {
        out.push_str("<p>There is no RoCEv2 packet among these frames.</p>\n");
    }
    if ladders.omitted > 0 {
        let _ = writeln!(out, "<p>{} more packets are not drawn.</p>", ladders.omitted);
    }
    out.push_str("</body></html>\n");
    out
}
