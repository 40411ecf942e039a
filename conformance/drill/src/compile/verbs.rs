//! Calls of the device under test.

use verbs_api::{Access, QpState};

use super::scope::{self, Kind, Scope};
use crate::arguments::Arguments;
use crate::call::Service;
use crate::expression::Expression;
use crate::line::{Line, Named, Placed, Slice};
use crate::names;
use crate::script::{Action, ChangeStep, Content, Outcome, QP_NUMBERS, QpStep, SendKind, SendStep};
use crate::source::Problem;

/// The action of a line that calls a verb; `None` when its head is no verb.
pub(super) fn verb(
    scope: &mut Scope,
    line: &Line,
    arguments: Arguments<'_>,
) -> Result<Option<Action>, Problem> {
    let action = match line.head.item.as_str() {
        "qp" => create_qp(scope, arguments)?,
        "mr" => {
            let name = arguments.word("a name, as in `mr M 4096`")?;
            let length = arguments.value("its bytes, as in `mr M 4096`")?;
            scope.check(&length, false)?;
            let access = arguments.access()?.unwrap_or(all());
            arguments.finish()?;
            scope.declare(&name, Kind::Region)?;
            Action::CreateMr {
                name: name.item.to_owned(),
                length,
                access: access.bits(),
            }
        }
        "mw" => {
            let name = arguments.word("a name, as in `mw W`")?;
            arguments.finish()?;
            scope.declare(&name, Kind::Window)?;
            Action::CreateMw {
                name: name.item.to_owned(),
            }
        }
        "srq" => {
            let name = arguments.word("a name, as in `srq Q wr=8`")?;
            let max_wr = arguments.number("wr")?.unwrap_or(Expression::Number(64));
            let limit = arguments.number("limit")?.unwrap_or(Expression::Number(0));
            scope.check(&max_wr, false)?;
            scope.check(&limit, false)?;
            arguments.finish()?;
            scope.declare(&name, Kind::SharedQueue)?;
            Action::CreateSrq {
                name: name.item.to_owned(),
                max_wr,
                limit,
            }
        }
        "recv" => receive(scope, line, arguments)?,
        "modify" => modify(scope, line, arguments)?,
        "destroy" => {
            let word = arguments.word("the name of what goes")?;
            let kinds = [Service::Rc, Service::Uc, Service::Ud].map(Kind::QueuePair);
            let others = [Kind::Region, Kind::Window, Kind::SharedQueue];
            let name = scope.object(&word, &[&kinds[..], &others[..]].concat())?;
            let result = outcome(line)?;
            arguments.finish_with_result()?;
            Action::Destroy { name, result }
        }
        "send" | "write" | "read" | "cas" | "add" | "atomic_write" | "invalidate" | "bind" => {
            send(scope, line, arguments)?
        }
        _ => return Ok(None),
    };
    Ok(Some(action))
}

fn all() -> Access {
    let remote = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    Access::LOCAL_WRITE | remote | Access::MW_BIND
}

/// ` = ok` or ` = EINVAL`.
fn outcome(line: &Line) -> Result<Outcome, Problem> {
    let Some(result) = &line.result else {
        return Ok(Outcome(None));
    };
    let name = match &result.item {
        Named::Value(value) => value.as_name(),
        _ => None,
    };
    match name {
        Some("ok") => Ok(Outcome(None)),
        Some(name) if names::errno(name).is_some() => Ok(Outcome(names::errno(name))),
        _ => Err(Problem::new(
            result.span,
            "a verb's result is ok or the name of an error, as in `= EINVAL`",
        )),
    }
}

/// Those of [`QP_NUMBERS`] that are given.
fn numbers(
    scope: &Scope,
    arguments: &Arguments<'_>,
    wanted: &[&'static str],
) -> Result<Vec<(&'static str, Expression)>, Problem> {
    let mut given = Vec::new();
    for name in wanted {
        if let Some(value) = arguments.number(name)? {
            scope.check(&value, false)?;
            given.push((*name, value));
        }
    }
    Ok(given)
}

fn create_qp(scope: &mut Scope, arguments: Arguments<'_>) -> Result<Action, Problem> {
    let name = arguments.word("a name and a service, as in `qp A rc`")?;
    let word = arguments.word("a service: rc, uc or ud")?;
    let service = match word.item {
        "rc" => Service::Rc,
        "uc" => Service::Uc,
        "ud" => Service::Ud,
        other => {
            return Err(Problem::new(
                word.span,
                format!("no service `{other}`; services are rc, uc and ud"),
            ));
        }
    };
    let wanted = QP_NUMBERS.map(|(name, _, _)| name);
    let numbers = numbers(scope, &arguments, &wanted)?;
    let state = match arguments.name("state")? {
        None => QpState::Rts,
        Some(placed) => {
            let word = Placed {
                item: placed.item.as_str(),
                span: placed.span,
            };
            match scope::state(&word)? {
                state @ (QpState::Reset | QpState::Init | QpState::Rtr | QpState::Rts) => state,
                _ => {
                    return Err(Problem::new(
                        placed.span,
                        "a queue pair begins in RESET, INIT, RTR or RTS",
                    ));
                }
            }
        }
    };
    let access = arguments.access()?.map(|access| access.bits());
    let srq = match arguments.name("srq")? {
        None => None,
        Some(placed) => {
            let word = Placed {
                item: placed.item.as_str(),
                span: placed.span,
            };
            Some(scope.object(&word, &[Kind::SharedQueue])?)
        }
    };
    arguments.finish()?;
    scope.declare(&name, Kind::QueuePair(service))?;
    Ok(Action::CreateQp(Box::new(QpStep {
        name: name.item.to_owned(),
        service,
        state,
        access,
        srq,
        numbers,
    })))
}

fn receive(scope: &Scope, line: &Line, arguments: Arguments<'_>) -> Result<Action, Problem> {
    let is_shared = |word: &str| scope.object(&placed(word, line), &[Kind::SharedQueue]).ok();
    let queue = match arguments.word_among(is_shared) {
        Some(queue) => queue.item,
        None => scope.queue_pair(&arguments)?,
    };
    let id = arguments.value("the request's number, as in `recv A 1 M[]`")?;
    scope.check(&id, true)?;
    let parts = parts(scope, &arguments)?;
    let result = outcome(line)?;
    arguments.finish_with_result()?;
    Ok(Action::Receive {
        queue,
        id,
        parts,
        result,
    })
}

fn placed<'a>(word: &'a str, line: &Line) -> Placed<&'a str> {
    Placed {
        item: word,
        span: line.span(),
    }
}

fn parts(scope: &Scope, arguments: &Arguments<'_>) -> Result<Vec<Slice>, Problem> {
    let mut parts = Vec::new();
    for slice in arguments.slices() {
        scope.check_slice(&slice)?;
        parts.push(slice.item);
    }
    Ok(parts)
}

fn modify(scope: &Scope, line: &Line, arguments: Arguments<'_>) -> Result<Action, Problem> {
    let qp = scope.queue_pair(&arguments)?;
    let state = match arguments.optional_word() {
        None => None,
        Some(word) => Some(scope::state(&word)?),
    };
    let wanted = ["timeout", "retry", "rnr", "rnr_timer", "s", "p"];
    let numbers = numbers(scope, &arguments, &wanted)?;
    let access = arguments.access()?.map(|access| access.bits());
    let result = outcome(line)?;
    arguments.finish_with_result()?;
    let change = Box::new(ChangeStep {
        state,
        access,
        numbers,
    });
    Ok(Action::Modify { qp, change, result })
}

fn send(scope: &Scope, line: &Line, arguments: Arguments<'_>) -> Result<Action, Problem> {
    let head = line.head.item.as_str();
    let window = if head == "bind" {
        arguments.word_among(|word| scope.object(&placed(word, line), &[Kind::Window]).ok())
    } else {
        None
    };
    let qp = scope.queue_pair(&arguments)?;
    let id = arguments.value("the request's number, as in `send A 1 len=64`")?;
    scope.check(&id, true)?;
    let kind = kind(scope, line, &arguments, window)?;
    let parts = parts(scope, &arguments)?;
    let length = arguments.number("len")?;
    if let Some(length) = &length {
        scope.check(length, true)?;
    }
    let inline = match arguments.content("inline")? {
        None => None,
        Some(Placed {
            item: Content::Bytes(bytes),
            ..
        }) => Some(bytes),
        Some(placed) => {
            return Err(Problem::new(
                placed.span,
                "inline bytes are \"text\" or hex(\"…\")",
            ));
        }
    };
    let given =
        usize::from(!parts.is_empty()) + usize::from(length.is_some()) + usize::from(inline.is_some());
    if given > 1 {
        return Err(Problem::new(
            line.span(),
            "give the data once: as parts of regions, as len=… or as inline=…",
        ));
    }
    let step = SendStep {
        qp,
        id,
        kind,
        parts,
        length,
        inline,
        signaled: arguments.flag("signaled").unwrap_or(true),
        fence: arguments.flag("fence").unwrap_or(false),
        solicited: arguments.flag("se").unwrap_or(false),
    };
    let result = outcome(line)?;
    arguments.finish_with_result()?;
    Ok(Action::Send {
        step: Box::new(step),
        result,
    })
}

fn kind(
    scope: &Scope,
    line: &Line,
    arguments: &Arguments<'_>,
    window: Option<Placed<String>>,
) -> Result<SendKind, Problem> {
    let checked = |name: &'static str| -> Result<Option<Expression>, Problem> {
        let value = arguments.number(name)?;
        value.as_ref().map_or(Ok(()), |value| scope.check(value, true))?;
        Ok(value)
    };
    // The played peer checks no address and no key, so any will do.
    let at = || checked("at").map(|v| v.unwrap_or(Expression::Number(0x1_0000)));
    let rkey = || checked("rkey").map(|v| v.unwrap_or(Expression::Number(0x1234_5600)));
    let or_zero = |name| checked(name).map(|v| v.unwrap_or(Expression::Number(0)));
    let (head, missing) = (line.head.item.as_str(), |what: &str| {
        Problem::new(line.span(), format!("`{}` needs {what}", line.head.item))
    });
    Ok(match head {
        "send" => SendKind::Send {
            imm: checked("imm")?,
            inv: checked("inv")?,
            qkey: checked("qkey")?,
        },
        "write" => SendKind::Write {
            at: at()?,
            rkey: rkey()?,
            imm: checked("imm")?,
        },
        "read" => SendKind::Read {
            at: at()?,
            rkey: rkey()?,
        },
        "cas" => SendKind::CompareSwap {
            at: at()?,
            rkey: rkey()?,
            compare: or_zero("compare")?,
            swap: or_zero("swap")?,
        },
        "add" => SendKind::FetchAdd {
            at: at()?,
            rkey: rkey()?,
            add: or_zero("add")?,
        },
        "atomic_write" => SendKind::AtomicWrite {
            at: at()?,
            rkey: rkey()?,
        },
        "invalidate" => SendKind::LocalInvalidate {
            rkey: checked("rkey")?.ok_or_else(|| missing("rkey=…"))?,
        },
        _ => SendKind::Bind {
            window: window
                .ok_or_else(|| missing("a window, as in `bind A 1 W M[]`"))?
                .item,
            rkey: checked("rkey")?.ok_or_else(|| missing("rkey=…, as in rkey=W.rkey+1"))?,
            access: arguments.access()?.unwrap_or(all()).bits(),
        },
    })
}
