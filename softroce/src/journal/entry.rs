//! An entry of the journal, and how it stands in a file.

use std::net::IpAddr;
use std::str::FromStr;

/// What an entry tells. Ordered: the earlier kinds explain a failure better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A request of a peer was refused here, for a reason that is known here alone.
    Refused,
    /// A request was refused by the peer.
    Rejected,
    /// The peer was never ready to receive.
    NotReady,
    /// Nobody answered.
    NoAnswer,
    /// Something is wrong on this side.
    Local,
    /// A connection did not come about.
    Connect,
    /// A connection does not come about.
    Connecting,
    /// A queue pair or a listener waits.
    Waiting,
    /// A verb failed.
    Verb,
    /// A packet found no receive, or was dropped: that may be the cause, or mean nothing.
    Hint,
    /// A process has looked for devices; the text is its name.
    Process,
    /// A connection has come about after others did not; the text is the peer.
    Connected,
}

const NAMES: [(Kind, &str); 12] = [
    (Kind::Refused, "refused"),
    (Kind::Rejected, "rejected"),
    (Kind::NotReady, "not-ready"),
    (Kind::NoAnswer, "no-answer"),
    (Kind::Local, "local"),
    (Kind::Connect, "connect"),
    (Kind::Connecting, "connecting"),
    (Kind::Waiting, "waiting"),
    (Kind::Verb, "verb"),
    (Kind::Hint, "hint"),
    (Kind::Process, "process"),
    (Kind::Connected, "connected"),
];

impl Kind {
    /// Its word.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or("", |(_, name)| name)
    }
}

/// The packet that an entry is about, for a look into a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The queue pair that it went to.
    pub dest_qpn: u32,
    /// Its PSN.
    pub psn: u32,
    /// Where it was sent to; `None`: here.
    pub dst: Option<IpAddr>,
}

/// An entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The process.
    pub process: u32,
    /// Nanoseconds since 1970.
    pub time_ns: u64,
    /// What it tells.
    pub kind: Kind,
    /// The packet that it is about.
    pub place: Option<Place>,
    /// One sentence.
    pub text: String,
}

impl Entry {
    /// Something that happens now, in this process.
    pub(crate) fn now(kind: Kind, text: String) -> Entry {
        Entry {
            process: std::process::id(),
            time_ns: super::now_ns(),
            kind,
            place: None,
            text,
        }
    }

    /// As it stands in a file: a line of exactly so many bytes.
    pub(super) fn line(&self, bytes: usize) -> Vec<u8> {
        let place = self.place.map_or_else(
            || "-".to_owned(),
            |place| {
                let dst = place.dst.map_or_else(|| "-".to_owned(), |dst| dst.to_string());
                format!("{}/{}/{dst}", place.dest_qpn, place.psn)
            },
        );
        let text = self.text.replace(['\n', '\r', '\t'], " ");
        let line = format!("{}\t{}\t{place}\t{text}", self.time_ns, self.kind.name());
        let mut end = line.len().min(bytes - 1);
        while !line.is_char_boundary(end) {
            end -= 1;
        }
        let mut line = line.into_bytes();
        line.resize(end, b' ');
        line.resize(bytes - 1, b' ');
        line.push(b'\n');
        line
    }

    /// From such a line. Of whose process it is, the line does not say.
    pub fn parse(line: &str) -> Option<Entry> {
        let mut fields = line.splitn(4, '\t');
        let time_ns = fields.next()?.parse().ok()?;
        let kind = fields.next()?.parse().ok()?;
        let place = fields.next()?.parse().ok();
        Some(Entry {
            process: 0,
            time_ns,
            kind,
            place,
            text: fields.next()?.trim_end().to_owned(),
        })
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Kind, ()> {
        let found = NAMES.iter().find(|(_, name)| *name == text);
        found.map(|(kind, _)| *kind).ok_or(())
    }
}

impl FromStr for Place {
    type Err = ();

    fn from_str(text: &str) -> Result<Place, ()> {
        let mut fields = text.splitn(3, '/');
        let mut number = || fields.next()?.parse().ok();
        let (dest_qpn, psn) = (number().ok_or(())?, number().ok_or(())?);
        let dst = fields.next().and_then(|dst| dst.parse().ok());
        Ok(Place { dest_qpn, psn, dst })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_survives_its_line() {
        for place in [
            None,
            Some(Place {
                dest_qpn: 17,
                psn: 9,
                dst: None,
            }),
            Some(Place {
                dest_qpn: 17,
                psn: 9,
                dst: Some("::1".parse().unwrap()),
            }),
        ] {
            let mut entry = Entry::now(Kind::NoAnswer, "nobody answered at ::1".into());
            (entry.place, entry.process) = (place, 0);
            let line = String::from_utf8(entry.line(256)).unwrap();
            assert_eq!(line.len(), 256);
            assert_eq!(Entry::parse(line.trim_end_matches('\n')), Some(entry));
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_noise_is_no_entry() {
        let entry = Entry::now(Kind::Verb, "é".repeat(500));
        let line = String::from_utf8(entry.line(256)).unwrap();
        assert_eq!(line.len(), 256);
        for noise in [
            "",
            "\t\t\t",
            "1\tverb",
            "x\tverb\t-\ttext",
            "1\tnothing\t-\ttext",
            "\0\0\0",
        ] {
            assert_eq!(Entry::parse(noise), None, "{noise:?}");
        }
    }
}
