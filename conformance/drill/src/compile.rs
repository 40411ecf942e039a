//! Lines into steps. Everything that can be known without running is checked here, for all lines at once.

mod packets;
mod scope;
mod verbs;

use std::collections::VecDeque;

use crate::arguments::{self, Arguments};
use crate::expression::Expression;
use crate::line::{self, Line, Named, Placed, Slice};
use crate::names;
use crate::script::{Action, CompletionStep, Content, Script, Step};
use crate::source::{Problem, Source};
use scope::Scope;

/// The words that lines begin with, for the message about others.
const HEADS: &str = "title, shows, only_sim, qp, mr, mw, srq, send, write, read, cas, add, atomic_write, invalidate, bind, recv, modify, \
     destroy, < (inject a packet), > (expect a packet), cqe, event, state, memory, fill, silence, quiet, wait, drain, let, \
     repeat, end";

/// Nested `repeat`s.
const DEEPEST: usize = 4;

pub(crate) fn compile(source: &Source) -> Result<Script, Vec<Problem>> {
    let mut problems = Vec::new();
    let mut lines = VecDeque::new();
    for (number, text) in source.lines().iter().enumerate() {
        match line::parse(number, text) {
            Ok(line) => lines.extend(line),
            Err(problem) => problems.push(problem),
        }
    }
    let mut compiler = Compiler {
        scope: Scope::default(),
        problems,
        title: None,
        shows: Vec::new(),
        only_sim: None,
    };
    let steps = compiler.block(&mut lines, None, 0);
    let Compiler {
        mut problems,
        title,
        shows,
        only_sim,
        ..
    } = compiler;
    if problems.is_empty() && steps.is_empty() {
        problems.push(Problem::new(
            Default::default(),
            "nothing happens in this script; begin with `qp A rc`",
        ));
    }
    problems.sort_by_key(|problem| (problem.span.line, problem.span.column));
    if !problems.is_empty() {
        return Err(problems);
    }
    let title = title.unwrap_or_else(|| source.name().to_owned());
    Ok(Script {
        source: source.clone(),
        title,
        shows,
        only_sim,
        steps,
    })
}

struct Compiler {
    scope: Scope,
    problems: Vec<Problem>,
    title: Option<String>,
    shows: Vec<String>,
    only_sim: Option<String>,
}

impl Compiler {
    /// Lines up to the `end` that closes the block opened by `opener`.
    fn block(&mut self, lines: &mut VecDeque<Line>, opener: Option<&Line>, depth: usize) -> Vec<Step> {
        let mut steps = Vec::new();
        while let Some(line) = lines.pop_front() {
            let done = match line.head.item.as_str() {
                "end" if opener.is_some() => return steps,
                "end" => Err(Problem::new(line.span(), "`end` without `repeat`")),
                "repeat" => self.repeat(&line, lines, depth).map(Some),
                _ => self.line(&line),
            };
            match done {
                Ok(action) => steps.extend(action.map(|action| Step {
                    when: line.when.clone(),
                    action,
                    span: line.span(),
                })),
                Err(problem) => self.problems.push(problem),
            }
        }
        if let Some(opener) = opener {
            self.problems
                .push(Problem::new(opener.span(), "this `repeat` has no `end`"));
        }
        steps
    }

    fn repeat(&mut self, line: &Line, lines: &mut VecDeque<Line>, depth: usize) -> Result<Action, Problem> {
        if depth == DEEPEST {
            return Err(Problem::new(line.span(), "`repeat` within too many others"));
        }
        let arguments = Arguments::new(line);
        let count = arguments.value("a number of times, as in `repeat 3`")?;
        self.scope.check(&count, false)?;
        arguments.finish()?;
        // The lines within may use n, the number of the round, from 0.
        self.scope.declare_value("n");
        let body = self.block(lines, Some(line), depth + 1);
        Ok(Action::Repeat { count, body })
    }

    fn line(&mut self, line: &Line) -> Result<Option<Action>, Problem> {
        self.check_time(line)?;
        let arguments = Arguments::new(line);
        let action = match line.head.item.as_str() {
            "title" | "shows" | "only_sim" => return self.about(line, arguments).map(|()| None),
            "<" | ">" => packets::packet(&self.scope, line, arguments)?,
            "cqe" => self.completion(arguments)?,
            "event" => self.event(arguments)?,
            "state" => {
                let qp = self.scope.queue_pair(&arguments)?;
                let state = arguments.word("a state, as in `state A RTS`")?;
                let state = scope::state(&state)?;
                arguments.finish()?;
                Action::State { qp, state }
            }
            "memory" | "fill" => self.memory(line, arguments)?,
            head @ ("silence" | "quiet" | "wait") => {
                let time = arguments.value("a time, as in `silence 5ms`")?;
                self.scope.check(&time, true)?;
                arguments.finish()?;
                match head {
                    "silence" => Action::Silence(time),
                    "quiet" => Action::Quiet(time),
                    _ => Action::Wait(time),
                }
            }
            "drain" => {
                arguments.finish()?;
                Action::Drain
            }
            "let" => self.definition(line, arguments)?,
            head => match verbs::verb(&mut self.scope, line, arguments)? {
                Some(action) => action,
                None => {
                    return Err(Problem::new(
                        line.head.span,
                        format!("no line begins with `{head}`; lines begin with {HEADS}"),
                    ));
                }
            },
        };
        Ok(Some(action))
    }

    fn check_time(&self, line: &Line) -> Result<(), Problem> {
        use crate::line::When;
        let check = |value: &Expression| self.scope.check(value, true);
        match &line.when.item {
            When::Unsaid => Ok(()),
            When::After(time, tolerance) | When::At(time, tolerance) => {
                check(time)?;
                tolerance.as_ref().map_or(Ok(()), check)
            }
            When::Within(from, to) => check(from).and_then(|()| check(to)),
        }
    }

    fn about(&mut self, line: &Line, arguments: Arguments<'_>) -> Result<(), Problem> {
        match line.head.item.as_str() {
            "title" => self.title = Some(arguments.text("a sentence in quotes")?),
            "only_sim" => self.only_sim = Some(arguments.text("the reason in quotes")?),
            _ => {
                // Requirements are called like NAK-1, which reads as a difference: text is taken as it stands.
                let mut next =
                    Some(arguments.text("requirements in quotes, as in `shows \"NAK-1 LOSS-1\"`")?);
                while let Some(text) = next {
                    self.shows.extend(text.split_whitespace().map(str::to_owned));
                    next = arguments.optional_text();
                }
            }
        }
        arguments.finish()
    }

    fn completion(&mut self, arguments: Arguments<'_>) -> Result<Action, Problem> {
        let qp = self.scope.queue_pair(&arguments)?;
        let id = arguments.value("the number of the request, as in `cqe A 1 SUCCESS`")?;
        let first = arguments.word("a status, as in `cqe A 1 SUCCESS`")?;
        let mut statuses = Vec::new();
        let mut next = Some(first);
        // Where the specification leaves a choice, several statuses stand there.
        while let Some(word) = next {
            statuses.push(names::status(word.item).ok_or_else(|| {
                Problem::new(
                    word.span,
                    format!("no status `{}`; there are {}", word.item, names::statuses()),
                )
            })?);
            next = arguments.optional_word();
        }
        let opcode = match arguments.name("op")? {
            None => None,
            Some(name) => Some(Placed {
                item: names::wc_opcode(&name.item).ok_or_else(|| {
                    Problem::new(
                        name.span,
                        format!("no opcode `{}`; there are {}", name.item, names::wc_opcodes()),
                    )
                })?,
                span: name.span,
            }),
        };
        let number = |name| -> Result<Option<Placed<Expression>>, Problem> {
            let Some(placed) = arguments.named(name) else {
                return Ok(None);
            };
            let Named::Value(item) = placed.item else {
                return Err(Problem::new(placed.span, format!("`{name}` is a number")));
            };
            self.scope.check(&item, true)?;
            Ok(Some(Placed {
                item,
                span: placed.span,
            }))
        };
        let (length, imm, inv) = (number("len")?, number("imm")?, number("inv")?);
        self.scope.check(&id, true)?;
        arguments.finish()?;
        Ok(Action::Completion(Box::new(CompletionStep {
            qp,
            id,
            statuses,
            opcode,
            length,
            imm,
            inv,
        })))
    }

    fn event(&mut self, arguments: Arguments<'_>) -> Result<Action, Problem> {
        let qp = arguments.word_among(|word| self.scope.is_queue_pair(word).then(|| word.to_owned()));
        let name = arguments.word("an event, as in `event A COMM_EST`")?;
        let kind = names::event(name.item).ok_or_else(|| {
            Problem::new(
                name.span,
                format!("no event `{}`; there are {}", name.item, names::events()),
            )
        })?;
        arguments.finish()?;
        Ok(Action::Event {
            kind,
            qp: qp.map(|placed| placed.item),
        })
    }

    fn memory(&mut self, line: &Line, arguments: Arguments<'_>) -> Result<Action, Problem> {
        let head = line.head.item.as_str();
        let slice = self.one_slice(line, &arguments)?;
        let Some(result) = &line.result else {
            return Err(Problem::new(
                line.span(),
                format!("`{head}` needs bytes, as in `{head} M[0..8] = zero`"),
            ));
        };
        let content = arguments::content(result)?;
        if let Content::Pattern(value) | Content::Word(value) = &content {
            self.scope.check(value, false)?;
        }
        arguments.finish_with_result()?;
        Ok(match head {
            "memory" => Action::Memory { slice, content },
            _ => Action::Fill { slice, content },
        })
    }

    fn one_slice(&self, line: &Line, arguments: &Arguments<'_>) -> Result<Slice, Problem> {
        let mut slices = arguments.slices();
        let Some(slice) = slices.pop().filter(|_| slices.is_empty()) else {
            return Err(Problem::new(
                line.span(),
                "one part of a region is needed, as in M[0..8]",
            ));
        };
        self.scope.check_slice(&slice)?;
        Ok(slice.item)
    }

    fn definition(&mut self, line: &Line, arguments: Arguments<'_>) -> Result<Action, Problem> {
        let name = arguments.word("a name, as in `let x = s+3`")?;
        let Some(Placed {
            item: Named::Value(value),
            ..
        }) = &line.result
        else {
            return Err(Problem::new(
                line.span(),
                "`let` needs a value, as in `let x = s+3`",
            ));
        };
        self.scope.check(value, true)?;
        arguments.finish_with_result()?;
        self.scope.declare_value(name.item);
        Ok(Action::Let {
            name: name.item.to_owned(),
            value: value.clone(),
        })
    }
}
