//! Calls of the device under test, and their results.

use roce_wire::Qpn;
use verbs_api::QpState;

use super::{Done, QpInfo, Runner};
use crate::call::{Call, Change, Operation, Part, QpPlan, Reply, SendPlan, Service};
use crate::dut::{OUTBOX, OUTBOX_LEN};
use crate::expression::Expression;
use crate::line::Slice;
use crate::names;
use crate::script::{Action, ChangeStep, Outcome, QP_NUMBERS, QpStep, SendKind, SendStep, Step};
use crate::source::{Problem, Span};

/// The number of the first played queue pair: no device gives out numbers so low.
const FIRST_PLAYED: u32 = 0xf42;

impl Runner<'_> {
    pub(super) fn call_verb(&mut self, step: &Step) -> Done {
        let span = step.span;
        match &step.action {
            Action::CreateQp(qp) => self.create_qp(span, qp),
            Action::CreateMr { name, length, access } => {
                let length = self.value(length, None)?;
                let call = Call::CreateMr {
                    name: name.clone(),
                    length,
                    access: *access,
                };
                if let Reply::Mr { addr, lkey, rkey } = self.must(span, &call)? {
                    self.regions.insert(name.clone(), length);
                    self.values.insert(format!("{name}.addr"), addr);
                    self.values.insert(format!("{name}.lkey"), lkey.into());
                    self.values.insert(format!("{name}.rkey"), rkey.into());
                }
                Ok(())
            }
            Action::CreateMw { name } => {
                let call = Call::CreateMw { name: name.clone() };
                if let Reply::Mw { rkey } = self.must(span, &call)? {
                    self.values.insert(format!("{name}.rkey"), rkey.into());
                }
                Ok(())
            }
            Action::CreateSrq { name, max_wr, limit } => {
                let call = Call::CreateSrq {
                    name: name.clone(),
                    max_wr: self.bounded(max_wr, None, u32::MAX.into(), span)? as u32,
                    limit: self.bounded(limit, None, u32::MAX.into(), span)? as u32,
                };
                self.must(span, &call).map(|_| ())
            }
            Action::Send { step, result } => self.send(span, step, *result),
            Action::Receive {
                queue,
                id,
                parts,
                result,
            } => {
                let call = Call::Receive {
                    queue: queue.clone(),
                    id: self.value(id, None)?,
                    parts: self.parts(parts)?,
                };
                self.verb(span, &call, *result)
            }
            Action::Modify { qp, change, result } => self.modify(span, qp, change, *result),
            Action::Destroy { name, result } => {
                let call = Call::Destroy { name: name.clone() };
                self.verb(span, &call, *result)
            }
            Action::Fill { slice, content } => {
                let (from, to) = self.range(slice)?;
                let length = to.saturating_sub(from) as usize;
                let call = Call::WriteMemory {
                    region: slice.region.clone(),
                    from,
                    bytes: self.bytes(content, None, Some(length), span)?,
                };
                self.must(span, &call).map(|_| ())
            }
            _ => unreachable!("the lines that call no verb are done elsewhere"),
        }
    }

    /// A verb that must succeed; its answer.
    fn must(&mut self, span: Span, call: &Call) -> Done<Reply> {
        match self.call(span, call)? {
            Reply::Refused { errno, message } => Err(Problem::new(
                span,
                format!("refused with {}: {message}", names::errno_name(errno)),
            )),
            reply => Ok(reply),
        }
    }

    /// A verb that must end as the line says.
    fn verb(&mut self, span: Span, call: &Call, Outcome(wanted): Outcome) -> Done {
        let reply = self.call(span, call)?;
        let seen = match &reply {
            Reply::Refused { errno, .. } => Some(*errno),
            _ => None,
        };
        if seen == wanted {
            return Ok(());
        }
        let told = |errno: Option<i32>| errno.map_or("ok".into(), names::errno_name);
        let why = match reply {
            Reply::Refused { message, .. } => format!(": {message}"),
            _ => String::new(),
        };
        Err(Problem::new(
            span,
            format!("result: expected {}, seen {}{why}", told(wanted), told(seen)),
        ))
    }

    fn number(&self, given: &[(&'static str, Expression)], name: &str, span: Span) -> Done<u64> {
        let (_, most, usual) = QP_NUMBERS
            .into_iter()
            .find(|(known, ..)| *known == name)
            .expect("only names of the table are asked for");
        match given.iter().find(|(known, _)| *known == name) {
            None => Ok(usual),
            Some((_, value)) => self.bounded(value, None, most, span),
        }
    }

    fn create_qp(&mut self, span: Span, step: &QpStep) -> Done {
        let number = |name| self.number(&step.numbers, name, span);
        let played = FIRST_PLAYED + self.qps.len() as u32;
        let plan = QpPlan {
            service: step.service,
            mtu: number("mtu")? as u32,
            timeout: number("timeout")? as u8,
            retry_cnt: number("retry")? as u8,
            rnr_retry: number("rnr")? as u8,
            min_rnr_timer: number("rnr_timer")? as u8,
            max_rd_atomic: number("rd")? as u8,
            max_dest_rd_atomic: number("dest_rd")? as u8,
            sq_psn: number("s")? as u32,
            rq_psn: number("p")? as u32,
            access: step.access.unwrap_or_else(all_remote),
            max_send_wr: number("sq")? as u32,
            max_recv_wr: number("rq")? as u32,
            qkey: number("qkey")? as u32,
            traffic_class: number("tclass")? as u8,
            hop_limit: number("hops")? as u8,
            srq: step.srq.clone(),
            dest_qpn: played,
            dgid: self.bench.played_gid(),
        };
        let name = &step.name;
        let call = Call::CreateQp {
            name: name.clone(),
            plan: plan.clone(),
        };
        let Reply::Qp { qpn, .. } = self.must(span, &call)? else {
            return Err(Problem::new(span, "no queue pair was made"));
        };
        // 2^timeout times 4.096 µs (IBA 9.9.2.1.1); code 0 waits for ever.
        let wait = if plan.timeout == 0 {
            u64::MAX >> 8
        } else {
            4096 << plan.timeout
        };
        for (member, value) in [
            ("s", plan.sq_psn.into()),
            ("p", plan.rq_psn.into()),
            ("T", wait),
            ("qpn", qpn.into()),
            ("played", played.into()),
        ] {
            self.values.insert(format!("{name}.{member}"), value);
        }
        self.only_qp = self.qps.is_empty().then(|| name.clone());
        let info = QpInfo {
            qpn,
            played: Qpn::new(played).expect("played numbers are small"),
            plan,
        };
        self.qps.insert(name.clone(), info);
        for state in [QpState::Init, QpState::Rtr, QpState::Rts] {
            if state.code() > step.state.code() {
                break;
            }
            self.must(span, &to_state(name, state))?;
        }
        Ok(())
    }

    fn modify(&mut self, span: Span, qp: &str, step: &ChangeStep, result: Outcome) -> Done {
        let given = |name: &str| -> Done<Option<u64>> {
            let is_given = step.numbers.iter().any(|(known, _)| *known == name);
            is_given
                .then(|| self.number(&step.numbers, name, span))
                .transpose()
        };
        let small = |name: &str| -> Done<Option<u8>> { Ok(given(name)?.map(|value| value as u8)) };
        let change = Change {
            state: step.state.map(QpState::code),
            timeout: small("timeout")?,
            retry_cnt: small("retry")?,
            rnr_retry: small("rnr")?,
            min_rnr_timer: small("rnr_timer")?,
            access: step.access,
            sq_psn: given("s")?.map(|value| value as u32),
            rq_psn: given("p")?.map(|value| value as u32),
        };
        for (member, psn) in [("s", change.sq_psn), ("p", change.rq_psn)] {
            if let Some(psn) = psn {
                self.values.insert(format!("{qp}.{member}"), psn.into());
            }
        }
        let call = Call::Modify {
            qp: qp.to_owned(),
            change,
        };
        self.verb(span, &call, result)
    }

    fn parts(&self, slices: &[Slice]) -> Done<Vec<Part>> {
        let part = |slice: &Slice| -> Done<Part> {
            let (from, to) = self.range(slice)?;
            Ok(Part {
                region: slice.region.clone(),
                from,
                to,
            })
        };
        slices.iter().map(part).collect()
    }

    fn send(&mut self, span: Span, step: &SendStep, result: Outcome) -> Done {
        let qp = Some(step.qp.as_str());
        let mut parts = self.parts(&step.parts)?;
        if let SendKind::Bind { .. } = step.kind {
            parts.clear();
        }
        if let Some(length) = &step.length {
            parts.push(Part {
                region: OUTBOX.into(),
                from: 0,
                to: self.bounded(length, qp, OUTBOX_LEN, span)?,
            });
        }
        let plan = SendPlan {
            id: self.value(&step.id, qp)?,
            operation: self.operation(span, step)?,
            parts,
            inline: step.inline.clone(),
            signaled: step.signaled,
            fence: step.fence,
            solicited: step.solicited,
        };
        let call = Call::Send {
            qp: step.qp.clone(),
            plan,
        };
        self.verb(span, &call, result)
    }

    fn operation(&self, span: Span, step: &SendStep) -> Done<Operation> {
        let qp = Some(step.qp.as_str());
        let long = |value: &Expression| self.value(value, qp);
        let word = |value: &Expression| -> Done<u32> {
            self.bounded(value, qp, u32::MAX.into(), span)
                .map(|value| value as u32)
        };
        let optional = |value: &Option<Expression>| value.as_ref().map(word).transpose();
        Ok(match &step.kind {
            SendKind::Send { imm, inv, qkey } => {
                let info = self.qp(&step.qp, span)?;
                match (info.plan.service, inv) {
                    (Service::Ud, _) => Operation::SendTo {
                        qpn: info.played.value(),
                        qkey: optional(qkey)?.unwrap_or(info.plan.qkey),
                        imm: optional(imm)?,
                    },
                    (_, Some(rkey)) => Operation::SendWithInvalidate { rkey: word(rkey)? },
                    (_, None) => Operation::Send { imm: optional(imm)? },
                }
            }
            SendKind::Write { at, rkey, imm } => Operation::Write {
                addr: long(at)?,
                rkey: word(rkey)?,
                imm: optional(imm)?,
            },
            SendKind::Read { at, rkey } => Operation::Read {
                addr: long(at)?,
                rkey: word(rkey)?,
            },
            SendKind::CompareSwap {
                at,
                rkey,
                compare,
                swap,
            } => Operation::CompareSwap {
                addr: long(at)?,
                rkey: word(rkey)?,
                compare: long(compare)?,
                swap: long(swap)?,
            },
            SendKind::FetchAdd { at, rkey, add } => Operation::FetchAdd {
                addr: long(at)?,
                rkey: word(rkey)?,
                add: long(add)?,
            },
            SendKind::AtomicWrite { at, rkey } => Operation::AtomicWrite {
                addr: long(at)?,
                rkey: word(rkey)?,
            },
            SendKind::LocalInvalidate { rkey } => Operation::LocalInvalidate { rkey: word(rkey)? },
            SendKind::Bind { window, rkey, access } => {
                let mut parts = self.parts(&step.parts)?;
                let Some(part) = parts.pop().filter(|_| parts.is_empty()) else {
                    return Err(Problem::new(
                        span,
                        "`bind` needs one part of a region, as in `bind A 1 W M[] rkey=W.rkey+1`",
                    ));
                };
                Operation::BindMw {
                    window: window.clone(),
                    rkey: word(rkey)?,
                    part,
                    access: *access,
                }
            }
        })
    }
}

fn to_state(qp: &str, state: QpState) -> Call {
    Call::Modify {
        qp: qp.to_owned(),
        change: Change {
            state: Some(state.code()),
            ..Change::default()
        },
    }
}

/// What a peer may do with a queue pair, where a script says nothing.
fn all_remote() -> u32 {
    use verbs_api::Access;
    (Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC).bits()
}
