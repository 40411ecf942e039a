//! Single values: numbers, times, rates, addresses.

use std::net::IpAddr;

use toml::de::DeValue;

use super::reader::{Fault, Value, suggestion};
use crate::{Numbers, OpcodeSet};

pub(super) fn string(value: &Value<'_>) -> Result<String, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.to_string()),
        _ => Err(Fault::wrong(value, "it is a text in quotation marks")),
    }
}

/// A whole number from 0 on.
pub(super) fn whole(value: &Value<'_>) -> Result<u64, Fault> {
    let wrong = || Fault::wrong(value, "it is a whole number from 0 on, such as 3 or 0x1f");
    match value.get_ref() {
        DeValue::Integer(number) => u64::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// One in these bounds.
pub(super) fn whole_in(range: std::ops::RangeInclusive<u64>) -> impl Fn(&Value<'_>) -> Result<u64, Fault> {
    move |value| {
        let number = whole(value)?;
        if range.contains(&number) {
            return Ok(number);
        }
        let help = format!("it is a number from {} to {}", range.start(), range.end());
        Err(Fault::wrong(value, help))
    }
}

/// A whole number, also below 0.
pub(super) fn signed(value: &Value<'_>) -> Result<i64, Fault> {
    let wrong = || Fault::wrong(value, "it is a whole number, such as 1 or -1");
    match value.get_ref() {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).map_err(|_| wrong()),
        _ => Err(wrong()),
    }
}

/// A number, a range in a text, or a list of both; each one within these bounds, where a range need not say its ends.
pub(super) fn numbers(
    bounds: std::ops::RangeInclusive<u64>,
) -> impl Fn(&Value<'_>) -> Result<Numbers, Fault> {
    let (min, max) = bounds.into_inner();
    move |value| {
        let help = "it is a number, a range such as \"3-5\" or \"10-\", or a list of these";
        let read = |value: &Value<'_>| -> Result<Numbers, Fault> {
            let numbers = match value.get_ref() {
                DeValue::String(text) => Numbers::from_text(text).ok_or_else(|| Fault::wrong(value, help))?,
                DeValue::Integer(_) => Numbers::one(whole(value)?),
                _ => return Err(Fault::wrong(value, help)),
            };
            match numbers.bounds() {
                Some((first, last)) if first > max || (last > max && last != u64::MAX) => Err(Fault::wrong(
                    value,
                    format!("{max} ({max:#x}) is the largest here"),
                )),
                Some((first, last)) if last < min || (first < min && !is_open_below(value)) => {
                    Err(Fault::wrong(value, format!("{min} is the smallest here")))
                }
                _ => Ok(numbers),
            }
        };
        match value.get_ref() {
            DeValue::Array(items) if items.is_empty() => Err(Fault::wrong(value, help)),
            DeValue::Array(items) => {
                let mut all = Numbers::ANY;
                for item in items.iter() {
                    all = all.and(read(item)?);
                }
                Ok(all)
            }
            _ => read(value),
        }
    }
}

/// Whether a range is in it that names its last number alone ("-5").
fn is_open_below(value: &Value<'_>) -> bool {
    match value.get_ref() {
        DeValue::String(text) => text.split(',').any(|part| part.trim().starts_with('-')),
        _ => false,
    }
}

/// From 0 to 1, or with a percent sign.
pub(super) fn probability(value: &Value<'_>) -> Result<f64, Fault> {
    let number = match value.get_ref() {
        DeValue::Float(number) => number.as_str().replace('_', "").parse().ok(),
        DeValue::Integer(number) => number.as_str().parse().ok(),
        DeValue::String(text) => text
            .trim()
            .strip_suffix('%')
            .and_then(|number| number.trim().parse::<f64>().ok())
            .map(|percent| percent / 100.0),
        _ => None,
    };
    number
        .filter(|number| (0.0..=1.0).contains(number))
        .ok_or_else(|| {
            Fault::wrong(
                value,
                "a probability is a number from 0 to 1, or a text such as \"1 %\"",
            )
        })
}

/// A text such as "10 ms", in ns.
pub(super) fn time(value: &Value<'_>) -> Result<u64, Fault> {
    const UNITS: [(&str, f64); 5] = [("ns", 1.0), ("us", 1e3), ("µs", 1e3), ("ms", 1e6), ("s", 1e9)];
    let wrong = || Fault::wrong(value, "a time is a text such as \"50us\", \"10 ms\" or \"1.5s\"");
    let DeValue::String(text) = value.get_ref() else {
        return Err(wrong());
    };
    quantity(text, &UNITS).ok_or_else(wrong)
}

/// A time that is not 0, in ns.
pub(super) fn duration(value: &Value<'_>) -> Result<u64, Fault> {
    match time(value)? {
        0 => Err(Fault::wrong(value, "the time is longer than 0")),
        nanos => Ok(nanos),
    }
}

/// A text such as "100 Mbit/s", in bits a second.
pub(super) fn rate(value: &Value<'_>) -> Result<u64, Fault> {
    const UNITS: [(&str, f64); 8] = [
        ("Gbit/s", 1e9),
        ("Mbit/s", 1e6),
        ("kbit/s", 1e3),
        ("bit/s", 1.0),
        ("Gbit", 1e9),
        ("Mbit", 1e6),
        ("kbit", 1e3),
        ("bit", 1.0),
    ];
    let wrong = || Fault::wrong(value, "a rate is a text such as \"100 Mbit/s\"");
    let DeValue::String(text) = value.get_ref() else {
        return Err(wrong());
    };
    quantity(text, &UNITS).filter(|rate| *rate > 0).ok_or_else(wrong)
}

fn quantity(text: &str, units: &[(&str, f64)]) -> Option<u64> {
    let text = text.trim();
    let (number, unit) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?.trim_end(), *factor)))?;
    // Of the units some end like others: what is in front must be a number.
    let number: f64 = number.parse().ok()?;
    let amount = number * unit;
    (amount.is_finite() && (0.0..1e18).contains(&amount)).then_some(amount as u64)
}

pub(super) fn address(value: &Value<'_>) -> Result<IpAddr, Fault> {
    let wrong = || {
        Fault::wrong(
            value,
            "it is an IP address in quotation marks, such as \"127.0.0.2\" or \"::1\"",
        )
    };
    let DeValue::String(text) = value.get_ref() else {
        return Err(wrong());
    };
    text.parse::<IpAddr>()
        .map(|address| address.to_canonical())
        .map_err(|_| wrong())
}

/// A name, a class, or a list of both.
pub(super) fn opcodes(value: &Value<'_>) -> Result<OpcodeSet, Fault> {
    let read = |value: &Value<'_>| -> Result<OpcodeSet, Fault> {
        let text = string(value)?;
        OpcodeSet::named(&text).map_err(|_| {
            let word = text
                .split_whitespace()
                .find(|word| OpcodeSet::named(word).is_err())
                .unwrap_or(&text);
            let help = match word == text && text.contains(' ') || word.is_empty() {
                true => "no opcode is all of this at once".to_owned(),
                false => format!(
                    "{} (or a name such as RC_SEND_ONLY)",
                    suggestion(word, OpcodeSet::classes())
                ),
            };
            Fault::wrong(value, help)
        })
    };
    match value.get_ref() {
        DeValue::Array(items) if !items.is_empty() => {
            let mut all = OpcodeSet::NONE;
            for item in items.iter() {
                all = all.or(&read(item)?);
            }
            Ok(all)
        }
        _ => read(value),
    }
}

/// One of these words.
pub(super) fn word<T: Copy>(words: &[(&str, T)]) -> impl Fn(&Value<'_>) -> Result<T, Fault> {
    move |value| {
        let help = |text: &str| suggestion(text, words.iter().map(|(word, _)| *word));
        match value.get_ref() {
            DeValue::String(text) => words
                .iter()
                .find(|(word, _)| word == text)
                .map(|(_, meaning)| *meaning)
                .ok_or_else(|| Fault::wrong(value, help(text))),
            _ => Err(Fault::wrong(value, help(""))),
        }
    }
}
