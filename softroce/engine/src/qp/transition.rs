//! Which attributes `modify_qp` takes on which way from state to state (IBA 11.2.4.2), for all kinds of queue pairs.
//!
//! From every state the way to RESET is open, and from every state but RESET the way to ERR; neither takes another
//! attribute. All other ways stand in one table. A call without a state is one that stays where it is.
#![forbid(unsafe_code)]

use verbs_api::{Error, QpAttr, QpAttrMask, QpState, QpType, Result};

use QpAttrMask as M;
use QpState::{Err as Error_, Init, Reset, Rtr, Rts, Sqd, Sqe};

/// What a way from one state to another takes besides the state itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Without them the call is refused.
    pub(crate) required: QpAttrMask,
    /// They may come along.
    pub(crate) optional: QpAttrMask,
}

const fn take(required: &[QpAttrMask], optional: &[QpAttrMask]) -> Option<Attributes> {
    Some(Attributes {
        required: union(required),
        optional: union(optional),
    })
}

const fn union(attributes: &[QpAttrMask]) -> QpAttrMask {
    let mut all = QpAttrMask::empty();
    let mut next = 0;
    while next < attributes.len() {
        all = all.union(attributes[next]);
        next += 1;
    }
    all
}

/// The kinds of queue pairs that the table tells apart.
const COLUMNS: usize = 7;
const fn column(qp_type: QpType) -> usize {
    match qp_type {
        QpType::Rc => 0,
        QpType::Uc => 1,
        QpType::Ud => 2,
        QpType::Gsi => 3,
        QpType::XrcInitiator => 4,
        QpType::XrcTarget => 5,
        QpType::RawPacket => 6,
    }
}

struct Way {
    from: QpState,
    to: QpState,
    /// By [`column()`]; `None` where this kind cannot go this way.
    by_type: [Option<Attributes>; COLUMNS],
}

const NOTHING: Option<Attributes> = take(&[], &[]);
/// Datagram services may change these at almost any time.
const DATAGRAM: Option<Attributes> = take(&[], &[M::PKEY_INDEX, M::QKEY]);
const DATAGRAM_RUNNING: Option<Attributes> = take(&[], &[M::CUR_STATE, M::QKEY]);
const CONNECTED_INIT: Option<Attributes> = take(&[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS], &[]);
const CONNECTED_INIT_AGAIN: Option<Attributes> = take(&[], &[M::PKEY_INDEX, M::PORT, M::ACCESS_FLAGS]);
/// A running connection whose responder sends RNR NAKs (RC, XRC target).
const RESPONDER_RUNNING: Option<Attributes> = take(
    &[],
    &[
        M::CUR_STATE,
        M::ACCESS_FLAGS,
        M::ALT_PATH,
        M::PATH_MIG_STATE,
        M::MIN_RNR_TIMER,
    ],
);
/// A running connection without (UC, XRC initiator).
const CONNECTED_RUNNING: Option<Attributes> = take(
    &[],
    &[M::CUR_STATE, M::ACCESS_FLAGS, M::ALT_PATH, M::PATH_MIG_STATE],
);
const DRAIN: Option<Attributes> = take(&[], &[M::EN_SQD_ASYNC_NOTIFY]);

const RESPONDER_CONNECT: Option<Attributes> = take(
    &[
        M::AV,
        M::PATH_MTU,
        M::DEST_QPN,
        M::RQ_PSN,
        M::MAX_DEST_RD_ATOMIC,
        M::MIN_RNR_TIMER,
    ],
    &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX],
);
const CONNECT: Option<Attributes> = take(
    &[M::AV, M::PATH_MTU, M::DEST_QPN, M::RQ_PSN],
    &[M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX],
);

#[rustfmt::skip]
const WAYS: [Way; 10] = [
    Way { from: Reset, to: Init, by_type: [
        /* RC  */ CONNECTED_INIT,
        /* UC  */ CONNECTED_INIT,
        /* UD  */ take(&[M::PKEY_INDEX, M::PORT, M::QKEY], &[]),
        /* GSI */ take(&[M::PKEY_INDEX, M::QKEY], &[]),
        /* INI */ CONNECTED_INIT,
        /* TGT */ CONNECTED_INIT,
        /* RAW */ take(&[M::PORT], &[]),
    ]},
    Way { from: Init, to: Init, by_type: [
        /* RC  */ CONNECTED_INIT_AGAIN,
        /* UC  */ CONNECTED_INIT_AGAIN,
        /* UD  */ take(&[], &[M::PKEY_INDEX, M::PORT, M::QKEY]),
        /* GSI */ DATAGRAM,
        /* INI */ CONNECTED_INIT_AGAIN,
        /* TGT */ CONNECTED_INIT_AGAIN,
        /* RAW */ NOTHING,
    ]},
    Way { from: Init, to: Rtr, by_type: [
        /* RC  */ RESPONDER_CONNECT,
        /* UC  */ CONNECT,
        /* UD  */ DATAGRAM,
        /* GSI */ DATAGRAM,
        /* INI */ CONNECT,
        /* TGT */ RESPONDER_CONNECT,
        /* RAW */ NOTHING,
    ]},
    Way { from: Rtr, to: Rts, by_type: [
        /* RC  */ take(&[M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::SQ_PSN, M::MAX_QP_RD_ATOMIC],
                       &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE, M::MIN_RNR_TIMER]),
        /* UC  */ take(&[M::SQ_PSN], &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE]),
        /* UD  */ take(&[M::SQ_PSN], &[M::CUR_STATE, M::QKEY]),
        /* GSI */ take(&[M::SQ_PSN], &[M::CUR_STATE, M::QKEY]),
        /* INI */ take(&[M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::SQ_PSN, M::MAX_QP_RD_ATOMIC],
                       &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE]),
        /* TGT */ take(&[M::TIMEOUT, M::SQ_PSN],
                       &[M::CUR_STATE, M::ALT_PATH, M::ACCESS_FLAGS, M::PATH_MIG_STATE, M::MIN_RNR_TIMER]),
        /* RAW */ take(&[], &[M::RATE_LIMIT]),
    ]},
    Way { from: Rts, to: Rts, by_type: [
        /* RC  */ RESPONDER_RUNNING,
        /* UC  */ CONNECTED_RUNNING,
        /* UD  */ DATAGRAM_RUNNING,
        /* GSI */ DATAGRAM_RUNNING,
        /* INI */ CONNECTED_RUNNING,
        /* TGT */ RESPONDER_RUNNING,
        /* RAW */ take(&[], &[M::RATE_LIMIT]),
    ]},
    Way { from: Rts, to: Sqd, by_type: [DRAIN, DRAIN, DRAIN, DRAIN, DRAIN, DRAIN, /* RAW */ None] },
    Way { from: Sqd, to: Rts, by_type: [
        /* RC  */ RESPONDER_RUNNING,
        /* UC  */ CONNECTED_RUNNING,
        /* UD  */ DATAGRAM_RUNNING,
        /* GSI */ DATAGRAM_RUNNING,
        /* INI */ CONNECTED_RUNNING,
        /* TGT */ RESPONDER_RUNNING,
        /* RAW */ None,
    ]},
    Way { from: Sqd, to: Sqd, by_type: [
        /* RC  */ take(&[], &[M::PORT, M::AV, M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC,
                              M::MAX_DEST_RD_ATOMIC, M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX,
                              M::MIN_RNR_TIMER, M::PATH_MIG_STATE]),
        /* UC  */ take(&[], &[M::AV, M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX, M::PATH_MIG_STATE]),
        /* UD  */ DATAGRAM,
        /* GSI */ DATAGRAM,
        /* INI */ take(&[], &[M::PORT, M::AV, M::TIMEOUT, M::RETRY_CNT, M::RNR_RETRY, M::MAX_QP_RD_ATOMIC,
                              M::ALT_PATH, M::ACCESS_FLAGS, M::PKEY_INDEX, M::PATH_MIG_STATE]),
        /* TGT */ take(&[], &[M::PORT, M::AV, M::TIMEOUT, M::MAX_DEST_RD_ATOMIC, M::ALT_PATH, M::ACCESS_FLAGS,
                              M::PKEY_INDEX, M::MIN_RNR_TIMER, M::PATH_MIG_STATE]),
        /* RAW */ None,
    ]},
    Way { from: Sqe, to: Rts, by_type: [
        /* RC: no SQE */ None,
        /* UC  */ take(&[], &[M::CUR_STATE, M::ACCESS_FLAGS]),
        /* UD  */ DATAGRAM_RUNNING,
        /* GSI */ DATAGRAM_RUNNING,
        /* INI: as RC */ None,
        /* TGT: as RC */ None,
        /* RAW */ NOTHING,
    ]},
    Way { from: Error_, to: Error_, by_type: [NOTHING; COLUMNS] },
];

/// What the way takes; `None` where there is no such way for this kind.
pub(crate) fn attributes(qp_type: QpType, from: QpState, to: QpState) -> Option<Attributes> {
    match (from, to) {
        (_, Reset) => NOTHING,
        (Init | Rtr | Rts | Sqd | Sqe | Error_, Error_) => NOTHING,
        (from, to) => WAYS
            .iter()
            .find(|way| way.from == from && way.to == to)
            .and_then(|way| way.by_type[column(qp_type)]),
    }
}

/// Check a `modify_qp` call against the table and the ranges of the attributes; the state to go to comes back.
///
/// EINVAL with a sentence that names the way and the attribute. Nothing is changed here, so a refused call leaves the
/// queue pair as it was. What depends on the port or the device (MTU, GID index, limits) the caller checks.
pub(crate) fn check(qp_type: QpType, from: QpState, attr: &QpAttr) -> Result<QpState> {
    let to = attr.state.unwrap_or(from);
    let Some(attributes) = attributes(qp_type, from, to) else {
        return Err(no_way(qp_type, from, to));
    };
    let given = attr.mask().difference(M::STATE);
    let missing = attributes.required.difference(given);
    if !missing.is_empty() {
        return Err(Error::invalid(format!(
            "{} from {} to {} needs {} as well",
            type_name(qp_type),
            state_name(from),
            state_name(to),
            names(missing)
        )));
    }
    let forbidden = given.difference(attributes.required.union(attributes.optional));
    if !forbidden.is_empty() {
        return Err(Error::invalid(format!(
            "{} from {} to {} does not take {}",
            type_name(qp_type),
            state_name(from),
            state_name(to),
            names(forbidden)
        )));
    }
    if let Some(believed) = attr.cur_state
        && believed != from
    {
        return Err(Error::invalid(format!(
            "CUR_STATE says {}, but the queue pair is in {}; query it and decide again",
            state_name(believed),
            state_name(from)
        )));
    }
    check_ranges(attr)?;
    Ok(to)
}

fn no_way(qp_type: QpType, from: QpState, to: QpState) -> Error {
    let open: Vec<&str> = QpState::ALL
        .into_iter()
        .filter(|next| attributes(qp_type, from, *next).is_some())
        .map(state_name)
        .collect();
    Error::invalid(format!(
        "{} cannot go from {} to {}; from there it can go to {}",
        type_name(qp_type),
        state_name(from),
        state_name(to),
        open.join(", ")
    ))
}

/// The ranges that the wire gives to the attributes, whatever the device can do.
fn check_ranges(attr: &QpAttr) -> Result<()> {
    let limits = [
        ("TIMEOUT", attr.timeout.map(u32::from), 31),
        ("RETRY_CNT", attr.retry_cnt.map(u32::from), 7),
        ("RNR_RETRY", attr.rnr_retry.map(u32::from), 7),
        ("MIN_RNR_TIMER", attr.min_rnr_timer.map(u32::from), 31),
        ("RQ_PSN", attr.rq_psn, 0xff_ffff),
        ("SQ_PSN", attr.sq_psn, 0xff_ffff),
        ("DEST_QPN", attr.dest_qpn, 0xff_ffff),
        (
            "the timeout of ALT_PATH",
            attr.alt_path.map(|p| u32::from(p.timeout)),
            31,
        ),
        ("the flow label of AV", attr.av.map(|av| av.flow_label), 0xf_ffff),
        (
            "the flow label of ALT_PATH",
            attr.alt_path.map(|p| p.av.flow_label),
            0xf_ffff,
        ),
    ];
    for (name, value, max) in limits {
        if let Some(value) = value.filter(|v| *v > max) {
            return Err(Error::invalid(format!(
                "{name} is {value:#x}; it is at most {max:#x}"
            )));
        }
    }
    Ok(())
}

fn names(mask: QpAttrMask) -> String {
    let names: Vec<&str> = mask.iter_names().map(|(name, _)| name).collect();
    names.join(", ")
}

fn state_name(state: QpState) -> &'static str {
    match state {
        Reset => "RESET",
        Init => "INIT",
        Rtr => "RTR",
        Rts => "RTS",
        Sqd => "SQD",
        Sqe => "SQE",
        Error_ => "ERR",
    }
}

fn type_name(qp_type: QpType) -> &'static str {
    match qp_type {
        QpType::Rc => "an RC queue pair",
        QpType::Uc => "a UC queue pair",
        QpType::Ud => "a UD queue pair",
        QpType::Gsi => "a GSI queue pair",
        QpType::XrcInitiator => "an XRC initiator",
        QpType::XrcTarget => "an XRC target",
        QpType::RawPacket => "a raw packet queue pair",
    }
}

#[cfg(test)]
mod tests;
