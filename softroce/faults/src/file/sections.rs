//! The kinds of rules.

use std::ops::RangeInclusive;

use toml::de::DeValue;
use verbs_api::WcStatus;

use super::action;
use super::reader::{Fault, Reader, Value, suggestion};
use super::text;
use crate::errno::{self, ERRNO_MAX, errno_named};
use crate::{
    Action, Direction, Event, EventRule, Numbers, OpcodeSet, Select, SyndromeKind, Verb, VerbSet, When, Work,
};

const MAX_24: u64 = 0xff_ffff;
/// What a packet may have from BTH to ICRC; an earlier rule may have cut it.
const PACKET_BYTES: RangeInclusive<u64> = 1..=65_535;

pub(super) fn packet(table: &mut Reader<'_>) -> Result<(Select, When, Action), Fault> {
    let directions = [("out", Direction::Out), ("in", Direction::In)];
    let syndromes = [
        ("ack", SyndromeKind::Ack),
        ("nak", SyndromeKind::Nak),
        ("rnr", SyndromeKind::Rnr),
    ];
    let any = Numbers::default;
    let select = Select {
        direction: table
            .optional("direction", text::word(&directions))?
            .unwrap_or_default(),
        peer: table.optional("peer", text::address)?,
        qpn: table
            .optional("qpn", text::numbers(0..=MAX_24))?
            .unwrap_or_else(any),
        opcode: table.optional("opcode", text::opcodes)?.unwrap_or(OpcodeSet::ANY),
        syndrome: table.optional("syndrome", text::word(&syndromes))?,
        psn: table
            .optional("psn", text::numbers(0..=MAX_24))?
            .unwrap_or_else(any),
        psn_from_start: table
            .optional("psn_from_start", text::numbers(0..=MAX_24))?
            .unwrap_or_else(any),
        psn_in_message: table
            .optional("psn_in_message", text::numbers(0..=MAX_24))?
            .unwrap_or_else(any),
        transmission: table
            .optional("transmission", text::numbers(1..=u32::MAX.into()))?
            .unwrap_or_else(any),
        size: table
            .optional("size", text::numbers(PACKET_BYTES))?
            .unwrap_or_else(any),
    };
    let when = when(table)?;
    let action = table.required(
        "do",
        "say what happens to the packet, such as do = \"drop\"",
        action::read,
    )?;
    Ok((select, when, action))
}

fn when(table: &mut Reader<'_>) -> Result<When, Fault> {
    let default = When::default();
    let from_ns = table.optional("from", text::time)?.unwrap_or(default.from_ns);
    let until_at = table.place_of("until");
    let until_ns = table.optional("until", text::time)?.unwrap_or(default.until_ns);
    if until_ns <= from_ns {
        return Err(Fault::new(
            until_at,
            "the time ends before it begins",
            "`until` is later than `from`",
        ));
    }
    let positive = || text::whole_in(1..=u64::MAX);
    Ok(When {
        nth: table
            .optional("nth", text::numbers(1..=u64::MAX))?
            .unwrap_or(default.nth),
        every: table.optional("every", positive())?.unwrap_or(default.every),
        probability: table
            .optional("probability", text::probability)?
            .unwrap_or(default.probability),
        from_ns,
        until_ns,
        hits_max: table.optional("hits", positive())?.unwrap_or(default.hits_max),
    })
}

pub(super) fn verb(table: &mut Reader<'_>) -> Result<(VerbSet, When, i32), Fault> {
    let calls = table.required("call", "name the call, such as call = \"reg_mr\"", calls)?;
    let when = when(table)?;
    let errno = table.required("errno", "name the error, such as errno = \"ENOMEM\"", errno)?;
    Ok((calls, when, errno))
}

/// A call, a list of calls, or "any".
fn calls(value: &Value<'_>) -> Result<VerbSet, Fault> {
    let one = |value: &Value<'_>| -> Result<Verb, Fault> {
        let name = text::string(value)?;
        Verb::named(&name).ok_or_else(|| {
            let help = suggestion(&name, Verb::ALL.iter().map(|verb| verb.name()));
            Fault::wrong(value, help)
        })
    };
    match value.get_ref() {
        DeValue::String(word) if word == "any" => Ok(VerbSet::ANY),
        DeValue::Array(items) if !items.is_empty() => {
            let mut all = VerbSet::default();
            for item in items.iter() {
                all = all.and(one(item)?);
            }
            Ok(all)
        }
        _ => one(value).map(VerbSet::one),
    }
}

fn errno(value: &Value<'_>) -> Result<i32, Fault> {
    match value.get_ref() {
        DeValue::String(name) => errno_named(name).ok_or_else(|| {
            let help = suggestion(name, errno::names());
            Fault::wrong(value, format!("{help} (or a number from 1 to {ERRNO_MAX})"))
        }),
        _ => text::whole_in(1..=ERRNO_MAX as u64)(value).map(|errno| errno as i32),
    }
}

/// Statuses that a completion may be turned into, by the names of C without `IBV_WC_`.
pub(super) const STATUSES: &[(&str, WcStatus)] = &[
    ("LOC_LEN_ERR", WcStatus::LocLenErr),
    ("LOC_QP_OP_ERR", WcStatus::LocQpOpErr),
    ("LOC_PROT_ERR", WcStatus::LocProtErr),
    ("WR_FLUSH_ERR", WcStatus::WrFlushErr),
    ("MW_BIND_ERR", WcStatus::MwBindErr),
    ("BAD_RESP_ERR", WcStatus::BadRespErr),
    ("LOC_ACCESS_ERR", WcStatus::LocAccessErr),
    ("REM_INV_REQ_ERR", WcStatus::RemInvReqErr),
    ("REM_ACCESS_ERR", WcStatus::RemAccessErr),
    ("REM_OP_ERR", WcStatus::RemOpErr),
    ("RETRY_EXC_ERR", WcStatus::RetryExcErr),
    ("RNR_RETRY_EXC_ERR", WcStatus::RnrRetryExcErr),
    ("REM_ABORT_ERR", WcStatus::RemAbortErr),
    ("FATAL_ERR", WcStatus::FatalErr),
    ("RESP_TIMEOUT_ERR", WcStatus::RespTimeoutErr),
    ("GENERAL_ERR", WcStatus::GeneralErr),
];

pub(super) fn completion(table: &mut Reader<'_>) -> Result<(Numbers, Option<Work>, When, WcStatus), Fault> {
    let works = [("send", Work::Send), ("receive", Work::Receive)];
    let qpn = table
        .optional("qpn", text::numbers(0..=MAX_24))?
        .unwrap_or_default();
    let work = table.optional("of", text::word(&works))?;
    let when = when(table)?;
    let help = "name the status, such as status = \"RETRY_EXC_ERR\"";
    let status = table.required("status", help, text::word(STATUSES))?;
    Ok((qpn, work, when, status))
}

pub(super) fn event(table: &mut Reader<'_>) -> Result<EventRule, Fault> {
    let help = "say what happens, such as do = \"port-down\"";
    let event = table.required("do", help, event_word)?;
    let at_ns = table.required("at", "say when, such as at = \"1s\"", text::time)?;
    let lasts_at = table.place_of("for");
    let lasts_ns = table.optional("for", text::duration)?;
    if lasts_ns.is_some() && event.end().is_none() {
        return Err(Fault::new(
            lasts_at,
            format!("{} does not end by itself", event.name()),
            "leave out `for`",
        ));
    }
    Ok(EventRule {
        name: String::new(),
        event,
        at_ns,
        lasts_ns,
        qpn: table
            .optional("qpn", text::numbers(0..=MAX_24))?
            .unwrap_or_default(),
    })
}

pub(super) fn event_word(value: &Value<'_>) -> Result<Event, Fault> {
    text::word(&Event::ALL.map(|event| (event.name(), event)))(value)
}
