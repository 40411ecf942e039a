//! `<` and `>`: packets to inject and to expect.

use roce_wire::{NakCode, Opcode, RnrTimer, Syndrome, Transport};

use super::scope::Scope;
use crate::arguments::Arguments;
use crate::call::Service;
use crate::line::{Line, Named, Placed};
use crate::names;
use crate::script::{Action, Content, FIELDS, FLAGS, PacketStep, SyndromeStep};
use crate::source::Problem;

pub(super) fn packet(scope: &Scope, line: &Line, arguments: Arguments<'_>) -> Result<Action, Problem> {
    let qp = scope.queue_pair(&arguments)?;
    let name = arguments.word("a packet, as in `> SEND_ONLY psn=s`")?;
    let (opcode, syndrome) = what(&name, &arguments, scope.service(&qp))?;
    let expects = line.head.item == ">";
    let psn = match arguments.named("psn") {
        None => {
            return Err(Problem::new(
                line.span(),
                "a packet needs psn=…, as in psn=s+1 (s: the device's first, p: the played peer's); psn=* expects any",
            ));
        }
        Some(Placed { item: Named::Any, .. }) if expects => None,
        Some(Placed {
            item: Named::Value(value),
            ..
        }) => {
            scope.check(&value, true)?;
            Some(value)
        }
        Some(placed) => return Err(Problem::new(placed.span, "psn is a number, as in psn=s+1")),
    };
    let length = arguments.number("len")?;
    if let Some(length) = &length {
        scope.check(length, true)?;
    }
    let data = arguments.content("data")?.map(|placed| placed.item);
    if let Some(Content::Pattern(value) | Content::Word(value)) = &data {
        scope.check(value, true)?;
    }
    let mut fields = Vec::new();
    for (field, _) in FIELDS {
        let Some(placed) = arguments.named(field) else {
            continue;
        };
        let Named::Value(value) = placed.item else {
            return Err(Problem::new(placed.span, format!("`{field}` is a number")));
        };
        scope.check(&value, true)?;
        fields.push((field, value, placed.span));
    }
    let mut flags = Vec::new();
    for flag in FLAGS {
        if let Some(is_set) = arguments.flag(flag) {
            flags.push((flag, is_set, line.span()));
        }
    }
    arguments.finish()?;
    let step = Box::new(PacketStep {
        qp,
        opcode,
        syndrome,
        psn,
        length,
        data,
        fields,
        flags,
    });
    Ok(if expects {
        Action::Expect(step)
    } else {
        Action::Inject(step)
    })
}

/// The opcode that a packet's name stands for, and its syndrome where the name says one.
fn what(
    name: &Placed<&str>,
    arguments: &Arguments<'_>,
    service: Service,
) -> Result<(Opcode, Option<SyndromeStep>), Problem> {
    let transport = match service {
        Service::Rc => Transport::Rc,
        Service::Uc => Transport::Uc,
        Service::Ud => Transport::Ud,
    };
    let acknowledge = |syndrome| Ok((Opcode::RC_ACKNOWLEDGE, Some(syndrome)));
    match name.item {
        "ACK" => acknowledge(SyndromeStep::Ack),
        "NAK" => {
            let reason = arguments.word(&format!("a reason: {}", names::naks()))?;
            let code: NakCode = names::nak(reason.item).ok_or_else(|| {
                Problem::new(
                    reason.span,
                    format!("no reason `{}`; reasons are {}", reason.item, names::naks()),
                )
            })?;
            acknowledge(SyndromeStep::Exactly(Syndrome::Nak(code)))
        }
        "RNR" => {
            let timer = RnrTimer::new(0).expect("code 0 is a timer");
            acknowledge(SyndromeStep::Exactly(Syndrome::RnrNak(timer)))
        }
        "OPCODE" => match arguments.named("value") {
            Some(Placed {
                item: Named::Value(crate::expression::Expression::Number(value @ 0..=255)),
                ..
            }) => Ok((Opcode::new(value as u8), None)),
            _ => Err(Problem::new(
                name.span,
                "`OPCODE` needs value=…, 0 to 255, as in OPCODE value=0x15",
            )),
        },
        word => match names::opcode(word, transport) {
            Some(opcode) => {
                let has_aeth = opcode.info().is_some_and(|info| info.headers.aeth);
                Ok((opcode, has_aeth.then_some(SyndromeStep::Ack)))
            }
            None => Err(Problem::new(name.span, no_packet(word, transport))),
        },
    }
}

fn no_packet(word: &str, transport: Transport) -> String {
    let all: Vec<&str> = (0..=u8::MAX)
        .map(Opcode::new)
        .filter(|opcode| opcode.transport() == transport)
        .filter_map(|opcode| opcode.info().map(|info| info.name))
        .collect();
    format!(
        "no packet `{word}` in this service; there are ACK, NAK, RNR, CNP, OPCODE and {}",
        all.join(", ")
    )
}
