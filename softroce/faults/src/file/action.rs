//! What `do` says.

use roce_wire::{NakCode, RnrTimer};
use toml::de::DeValue;

use super::reader::{Fault, Reader, Value, suggestion};
use super::{sections, text};
use crate::action::HISTORY_MAX;
use crate::{Action, Change, Corruption, Field, Forgery, Icrc, Place};

/// A packet is overtaken for so long at most unless told otherwise, ns.
const OVERTAKEN_AT_MOST_NS: u64 = 10_000_000;
/// Bytes that wait for a line of limited rate unless told otherwise.
const QUEUE_BYTES: u64 = 1 << 20;
/// Bits of the longest packet.
const PACKET_BITS_MAX: u64 = 8 * 65_535;
/// A ghost acknowledgement is so far ahead unless told otherwise.
const GHOST_AHEAD: u64 = 1_000;

/// The words, and those of them that need no more than themselves.
const WORDS: [&str; 11] = [
    "drop",
    "duplicate",
    "delay",
    "reorder",
    "corrupt",
    "truncate",
    "mark-ce",
    "blackhole",
    "rate",
    "inject",
    "event",
];

/// A word, or a table whose first key is one.
pub(super) fn read(value: &Value<'_>) -> Result<Action, Fault> {
    match value.get_ref() {
        DeValue::String(word) => alone(word).ok_or_else(|| match WORDS.contains(&word.as_ref()) {
            true => Fault::wrong(value, format!("it needs more: {}", example(word))),
            false => Fault::wrong(value, suggestion(word, WORDS.into_iter())),
        }),
        DeValue::Table(table) => {
            let mut table_reader = Reader::new(value.span(), table, "`do`");
            let names: Vec<&str> = WORDS
                .into_iter()
                .filter(|word| table.iter().any(|(key, _)| key.get_ref() == word))
                .collect();
            let [word] = names.as_slice() else {
                let reason = match names.is_empty() {
                    true => "this says nothing that can be done to a packet".to_owned(),
                    false => format!("this says several things at once: {}", names.join(", ")),
                };
                let help = format!(
                    "it is one of {}; a rule does one thing, several rules may match one packet",
                    WORDS.join(", ")
                );
                return Err(Fault::new(value.span(), reason, help));
            };
            let action = with_more(word, &mut table_reader)?;
            table_reader.finish()?;
            Ok(action)
        }
        _ => Err(Fault::wrong(
            value,
            "such as do = \"drop\" or do = { delay = \"1ms\" }",
        )),
    }
}

fn alone(word: &str) -> Option<Action> {
    match word {
        "drop" => Some(Action::Drop),
        "duplicate" => Some(Action::Duplicate(1)),
        "mark-ce" => Some(Action::MarkCe),
        "blackhole" => Some(Action::Blackhole { lasts_ns: None }),
        _ => None,
    }
}

fn example(word: &str) -> &'static str {
    match word {
        "delay" => "do = { delay = \"1ms\" }",
        "reorder" => "do = { reorder = 3 }",
        "corrupt" => "do = { corrupt = \"icrc\" }",
        "truncate" => "do = { truncate = 20 }",
        "rate" => "do = { rate = \"100 Mbit/s\" }",
        "inject" => "do = { inject = \"cnp\" }",
        "event" => "do = { event = \"qp-fatal\" }",
        _ => "",
    }
}

fn with_more(word: &str, table: &mut Reader<'_>) -> Result<Action, Fault> {
    // Each word is there, or this would not be called.
    Ok(match word {
        "duplicate" => Action::Duplicate(table.required("duplicate", "", text::whole_in(1..=64))? as u32),
        "delay" => delay(table)?,
        "reorder" => Action::Reorder {
            past: table.required("reorder", "", text::whole_in(1..=4096))? as u32,
            at_most_ns: table
                .optional("at_most", text::duration)?
                .unwrap_or(OVERTAKEN_AT_MOST_NS),
        },
        "corrupt" => corrupt(table)?,
        "truncate" => Action::Truncate {
            to_bytes: table.required("truncate", "", text::whole_in(1..=65_535))? as usize,
            icrc: icrc(table)?,
        },
        "blackhole" => Action::Blackhole {
            lasts_ns: Some(table.required("blackhole", "", text::duration)?),
        },
        "rate" => Action::RateLimit {
            bits_per_second: table.required("rate", "", text::rate)?,
            queue_bytes: table.optional("queue", text::whole)?.unwrap_or(QUEUE_BYTES),
        },
        "inject" => inject(table)?,
        "event" => Action::Raise(table.required("event", "", sections::event_word)?),
        word => {
            let at = table.place_of(word);
            let reason = format!("`{word}` takes no value");
            return Err(Fault::new(at, reason, format!("write do = \"{word}\"")));
        }
    })
}

fn delay(table: &mut Reader<'_>) -> Result<Action, Fault> {
    let at = table.place_of("delay");
    let nanos = table.required("delay", "", text::time)?;
    let jitter_ns = table.optional("jitter", text::time)?.unwrap_or(0);
    match (nanos, jitter_ns) {
        (0, 0) => Err(Fault::new(
            at,
            "a delay of 0 changes nothing",
            "say a longer time, or a `jitter`",
        )),
        (nanos, jitter_ns) => Ok(Action::Delay { nanos, jitter_ns }),
    }
}

fn icrc(table: &mut Reader<'_>) -> Result<Icrc, Fault> {
    let words = [("broken", Icrc::Broken), ("repaired", Icrc::Repaired)];
    Ok(table.optional("icrc", text::word(&words))?.unwrap_or_default())
}

/// "icrc", "bit" with `bit`, or the name of a field with `set`, `flip` or `add`.
fn corrupt(table: &mut Reader<'_>) -> Result<Action, Fault> {
    let at = table.place_of("corrupt");
    let what = table.required("corrupt", "", text::string)?;
    let (what, icrc) = match what.as_str() {
        "icrc" => (Corruption::Icrc, Icrc::Broken),
        "bit" => {
            let bit = table.optional("bit", text::whole_in(0..=PACKET_BITS_MAX - 1))?;
            let what = bit.map_or(Corruption::AnyBit, |bit| Corruption::Bit(bit as u32));
            (what, icrc(table)?)
        }
        name => {
            let field = Field::named(name).ok_or_else(|| {
                let words = ["icrc", "bit"]
                    .into_iter()
                    .chain(Field::ALL.iter().map(|field| field.name()));
                Fault::new(
                    at.clone(),
                    format!("{name:?} is nothing in a packet"),
                    suggestion(name, words),
                )
            })?;
            let most = field.max();
            let changes = [
                table.optional("set", text::whole_in(0..=most))?.map(Change::Set),
                table
                    .optional("flip", text::whole_in(1..=most))?
                    .map(Change::Flip),
                table.optional("add", added(most))?.map(Change::Add),
            ];
            let mut changes = changes.into_iter().flatten();
            let (Some(change), None) = (changes.next(), changes.next()) else {
                return Err(Fault::new(
                    at,
                    format!("how does the field {name} change?"),
                    format!(
                        "say one of set, flip and add, such as do = {{ corrupt = {name:?}, add = 1, icrc = \"repaired\" }}"
                    ),
                ));
            };
            (Corruption::Field(field, change), icrc(table)?)
        }
    };
    Ok(Action::Corrupt { what, icrc })
}

/// What can be added to a field with values up to `most`, in either direction.
fn added(most: u64) -> impl Fn(&Value<'_>) -> Result<i64, Fault> {
    move |value| match text::signed(value)? {
        0 => Err(Fault::wrong(value, "to add 0 changes nothing")),
        number if number.unsigned_abs() > most => {
            let help = format!("the field holds numbers up to {most} ({most:#x})");
            Err(Fault::wrong(value, help))
        }
        number => Ok(number),
    }
}

#[derive(Clone, Copy)]
enum Packet {
    Nak,
    Rnr,
    GhostAck,
    Cnp,
    StaleDuplicate,
}

const PACKETS: &[(&str, Packet)] = &[
    ("nak", Packet::Nak),
    ("rnr", Packet::Rnr),
    ("ghost-ack", Packet::GhostAck),
    ("cnp", Packet::Cnp),
    ("stale-duplicate", Packet::StaleDuplicate),
];

const CODES: &[(&str, NakCode)] = &[
    ("psn-sequence", NakCode::PsnSequence),
    ("invalid-request", NakCode::InvalidRequest),
    ("remote-access", NakCode::RemoteAccess),
    ("remote-operational", NakCode::RemoteOperational),
    ("invalid-rd", NakCode::InvalidRd),
];

fn inject(table: &mut Reader<'_>) -> Result<Action, Fault> {
    let packet = match table.required("inject", "", text::word(PACKETS))? {
        Packet::Nak => Forgery::Nak(table.required("code", "such as code = \"remote-access\"", nak_code)?),
        Packet::Rnr => {
            let code = table.optional("timer", text::whole_in(0..=31))?.unwrap_or(1);
            Forgery::Rnr(RnrTimer::new(code as u8).expect("up to 31 are timers"))
        }
        Packet::GhostAck => Forgery::GhostAck {
            ahead: table
                .optional("ahead", text::whole_in(1..=0x7f_ffff))?
                .unwrap_or(GHOST_AHEAD) as u32,
        },
        Packet::Cnp => Forgery::Cnp,
        Packet::StaleDuplicate => Forgery::StaleDuplicate {
            age: table
                .optional("age", text::whole_in(1..=HISTORY_MAX.into()))?
                .unwrap_or(1) as u32,
        },
    };
    let places = [
        ("before", Place::Before),
        ("after", Place::After),
        ("instead", Place::Instead),
    ];
    Ok(Action::Inject {
        packet,
        place: table.optional("place", text::word(&places))?.unwrap_or_default(),
        qpn: table
            .optional("to_qpn", text::whole_in(0..=0xff_ffff))?
            .map(|qpn| qpn as u32),
    })
}

/// A name, or any of the 32 numbers.
fn nak_code(value: &Value<'_>) -> Result<NakCode, Fault> {
    match value.get_ref() {
        DeValue::Integer(_) => text::whole_in(0..=31)(value).map(|code| NakCode::new(code as u8)),
        _ => text::word(CODES)(value),
    }
}
