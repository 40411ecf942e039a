//! The names that scripts use: statuses, events, states, errors, rights, opcodes.

use roce_wire::{NakCode, Opcode, Transport};
use verbs_api::{Access, EventKind, QpState, WcOpcode, WcStatus};

use crate::expression::Expression;
use crate::source::{Problem, Span};

/// `LocLenErr` as LOC_LEN_ERR.
pub fn shout(camel: &str) -> String {
    let mut name = String::new();
    for (n, c) in camel.chars().enumerate() {
        if n > 0 && c.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(c.to_ascii_uppercase());
    }
    name
}

macro_rules! named {
    ($($find:ident $list:ident $kind:ty;)*) => {$(
        /// From its name in capitals.
        pub fn $find(name: &str) -> Option<$kind> {
            <$kind>::ALL.into_iter().find(|each| shout(&format!("{each:?}")) == name)
        }

        /// All names, for messages.
        pub fn $list() -> String {
            <$kind>::ALL.map(|each| shout(&format!("{each:?}"))).join(", ")
        }
    )*};
}

named! {
    status statuses WcStatus;
    wc_opcode wc_opcodes WcOpcode;
    event events EventKind;
    state states QpState;
}

/// Error numbers by name; those that verbs give.
const ERRORS: [(&str, i32); 14] = [
    ("EPERM", 1),
    ("ENOENT", 2),
    ("EIO", 5),
    ("EAGAIN", 11),
    ("ENOMEM", 12),
    ("EACCES", 13),
    ("EFAULT", 14),
    ("EBUSY", 16),
    ("ENODEV", 19),
    ("EINVAL", 22),
    ("EMSGSIZE", 90),
    ("EOPNOTSUPP", 95),
    ("EADDRINUSE", 98),
    ("ETIMEDOUT", 110),
];

/// An error number from its name.
pub fn errno(name: &str) -> Option<i32> {
    ERRORS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, number)| *number)
}

/// The name of an error number, or the number.
pub fn errno_name(number: i32) -> String {
    ERRORS
        .iter()
        .find(|(_, known)| *known == number)
        .map_or_else(|| format!("errno {number}"), |(name, _)| (*name).to_owned())
}

/// Reasons of a NAK.
const NAKS: [(&str, NakCode); 5] = [
    ("sequence", NakCode::PsnSequence),
    ("invalid_request", NakCode::InvalidRequest),
    ("access", NakCode::RemoteAccess),
    ("operational", NakCode::RemoteOperational),
    ("invalid_rd", NakCode::InvalidRd),
];

/// The reason of a NAK from its name.
pub fn nak(name: &str) -> Option<NakCode> {
    NAKS.iter()
        .find(|(known, _)| *known == name)
        .map(|(_, code)| *code)
}

/// All reasons, for messages.
pub fn naks() -> String {
    NAKS.map(|(name, _)| name).join(", ")
}

/// A packet's opcode from its name in a service. `_IMM` and `_INV` are short for `_WITH_IMMEDIATE` and
/// `_WITH_INVALIDATE`.
pub fn opcode(name: &str, transport: Transport) -> Option<Opcode> {
    let long = if let Some(stem) = name.strip_suffix("_IMM") {
        format!("{stem}_WITH_IMMEDIATE")
    } else if let Some(stem) = name.strip_suffix("_INV") {
        format!("{stem}_WITH_INVALIDATE")
    } else {
        name.to_owned()
    };
    let belongs = |opcode: &Opcode| opcode.transport() == transport || opcode.transport() == Transport::Cnp;
    (0..=u8::MAX)
        .map(Opcode::new)
        .filter(belongs)
        .find(|opcode| opcode.info().is_some_and(|info| info.name == long))
}

/// Bytes from pairs of hexadecimal digits; spaces between pairs are allowed.
pub fn hex(digits: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = digits
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(
        digits
            .chunks(2)
            .map(|pair| (pair[0] << 4 | pair[1]) as u8)
            .collect(),
    )
}

/// Access rights from a sum of names.
pub fn access(value: &Expression) -> Result<Access, Problem> {
    let mut rights = Access::empty();
    let mut problem = None;
    value.names(&mut |name, span| match right(name) {
        Some(right) => rights |= right,
        None => problem = problem.take().or(Some(no_right(name, span))),
    });
    match problem {
        Some(problem) => Err(problem),
        None => Ok(rights),
    }
}

fn right(name: &str) -> Option<Access> {
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    Some(match name {
        "none" => Access::empty(),
        "local" => Access::LOCAL_WRITE,
        "write" => Access::REMOTE_WRITE,
        "read" => Access::REMOTE_READ,
        "atomic" => Access::REMOTE_ATOMIC,
        "bind" => Access::MW_BIND,
        "all" => Access::LOCAL_WRITE | remote | Access::MW_BIND,
        _ => return None,
    })
}

fn no_right(name: &str, span: Span) -> Problem {
    Problem::new(
        span,
        format!("no right `{name}`; rights are local, write, read, atomic, bind, all, none, joined by +"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_c_without_their_prefix() {
        assert_eq!(status("RETRY_EXC_ERR"), Some(WcStatus::RetryExcErr));
        assert_eq!(event("COMM_EST"), Some(EventKind::CommEst));
        assert_eq!(state("RTS"), Some(QpState::Rts));
        assert_eq!(wc_opcode("RECV_RDMA_WITH_IMM"), Some(WcOpcode::RecvRdmaWithImm));
        assert_eq!(errno_name(errno("EINVAL").unwrap()), "EINVAL");
        assert_eq!(status("BAD"), None);
    }

    #[test]
    fn opcodes_belong_to_a_service_and_have_short_names() {
        assert_eq!(
            opcode("SEND_ONLY_IMM", Transport::Rc),
            Some(Opcode::RC_SEND_ONLY_WITH_IMMEDIATE)
        );
        assert_eq!(opcode("SEND_ONLY", Transport::Ud), Some(Opcode::UD_SEND_ONLY));
        assert_eq!(opcode("READ_REQUEST", Transport::Uc), None);
        assert_eq!(opcode("CNP", Transport::Rc), Some(Opcode::CNP));
    }
}
