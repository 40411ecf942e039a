//! What each state of each type does with each event: run, and compared with a snapshot.
//!
//! A queue pair is found so: from INIT on a receive request waits (1); in RTS a send request (10) is under way, and so it
//! is in SQD, which was entered afterwards and has a further request (11) queued since. Where sends complete at once
//! nothing is under way. In SQE a send has failed.

use std::fmt::Write;

use softroce_engine::EngineEvent;
use verbs_api::{QpState, Result, WcOpcode, WcStatus};

use super::subject::{Subject, TYPES};

/// How long nothing happens when time passes, ns.
const A_WHILE_NS: u64 = 10_000_000_000;

const EVENTS: [Event; 15] = [
    Event::PostSend,
    Event::PostRecv,
    Event::Request,
    Event::Response,
    Event::Congestion,
    Event::TimePasses,
    Event::Query,
    Event::Modify(QpState::Reset),
    Event::Modify(QpState::Init),
    Event::Modify(QpState::Rtr),
    Event::Modify(QpState::Rts),
    Event::Modify(QpState::Sqd),
    Event::Modify(QpState::Sqe),
    Event::Modify(QpState::Err),
    Event::Destroy,
];

#[derive(Clone, Copy, Debug)]
enum Event {
    PostSend,
    PostRecv,
    Request,
    Response,
    Congestion,
    TimePasses,
    Query,
    Modify(QpState),
    Destroy,
}

impl Event {
    fn name(self) -> String {
        match self {
            Event::PostSend => "post_send".to_owned(),
            Event::PostRecv => "post_recv".to_owned(),
            Event::Request => "a request arrives".to_owned(),
            Event::Response => "a response arrives".to_owned(),
            Event::Congestion => "a CNP arrives".to_owned(),
            Event::TimePasses => "time passes".to_owned(),
            Event::Query => "query".to_owned(),
            Event::Modify(state) => format!("modify to {}", name(state)),
            Event::Destroy => "destroy".to_owned(),
        }
    }
}

fn name(state: QpState) -> String {
    format!("{state:?}").to_uppercase()
}

/// A queue pair in `state`, as the head of this file says. `None` where this type cannot be there.
fn found(subject: &mut Subject, state: QpState) -> Option<()> {
    subject.bring_to(QpState::Reset);
    let has_begun = matches!(state, QpState::Rts | QpState::Sqd);
    let start = if has_begun { QpState::Rts } else { state };
    if !subject.bring_to(start) {
        return None;
    }
    if !matches!(state, QpState::Reset | QpState::Err) {
        // Refused by those that have no receive queue.
        let _ = subject.post_recv(1);
    }
    if has_begun {
        let _ = subject.post_send(10);
        subject.sent();
    }
    if state == QpState::Sqd {
        subject.step(QpState::Sqd).unwrap();
        let _ = subject.post_send(11);
    }
    subject.sent();
    subject.node.completions();
    subject.events();
    Some(())
}

/// What happened, in words.
struct Effects {
    words: Vec<String>,
    drops: Vec<(String, u64)>,
}

impl Effects {
    fn new(subject: &Subject) -> Effects {
        Effects {
            words: Vec::new(),
            drops: drops(subject),
        }
    }

    fn note_result(&mut self, result: &Result<()>) {
        self.words.push(match result {
            Ok(()) => "ok".to_owned(),
            Err(error) => format!("{:?}", error.kind()),
        });
    }

    /// Packets, completions and events up to now.
    fn gather(&mut self, subject: &mut Subject) {
        for opcode in subject.sent() {
            self.words.push(format!("sends {opcode}"));
        }
        for wc in subject.node.completions() {
            let what = match (wc.status, wc.opcode) {
                (WcStatus::Success, WcOpcode::Recv) => "received".to_owned(),
                (WcStatus::Success, _) => "sent".to_owned(),
                (status, _) => format!("{status:?}"),
            };
            self.words.push(format!("{} {what}", wc.wr_id));
        }
        for event in subject.events() {
            self.words.push(match event {
                EngineEvent::Qp(_, kind) => format!("event {kind:?}"),
                EngineEvent::CqNotify(_) => "event of the CQ".to_owned(),
                EngineEvent::Cq(_, kind) | EngineEvent::Srq(_, kind) | EngineEvent::Port(kind) => {
                    format!("event {kind:?}")
                }
            });
        }
        let now = drops(subject);
        for ((name, before), (_, after)) in self.drops.iter().zip(&now) {
            if after > before {
                self.words.push(format!("dropped ({name})"));
            }
        }
        self.drops = now;
    }

    /// The same word many times becomes one.
    fn finish(self) -> String {
        let mut text = String::new();
        for run in self.words.chunk_by(|a, b| a == b) {
            if !text.is_empty() {
                text.push_str("; ");
            }
            text.push_str(&run[0]);
            if run.len() > 1 {
                write!(text, " x{}", run.len()).unwrap();
            }
        }
        if text.is_empty() {
            "nothing".to_owned()
        } else {
            text
        }
    }
}

/// Counters of what is dropped, and why.
fn drops(subject: &Subject) -> Vec<(String, u64)> {
    let text = format!("{:?}", subject.node.engine.counters());
    text.split([',', '{', '}'])
        .filter_map(|field| field.trim().strip_prefix("dropped_")?.split_once(": "))
        .map(|(name, value)| (name.replace('_', " "), value.parse().unwrap()))
        .collect()
}

fn run(subject: &mut Subject, event: Event) -> String {
    let mut effects = Effects::new(subject);
    let before = subject.state();
    match event {
        Event::PostSend => effects.note_result(&subject.post_send(20)),
        Event::PostRecv => effects.note_result(&subject.post_recv(2)),
        Event::Request => subject.receive_request(),
        Event::Response => subject.receive_response(),
        Event::Congestion => subject.receive_congestion_notification(),
        Event::TimePasses => {
            let end = subject.now + A_WHILE_NS;
            while let Some(due) = subject.node.engine.poll_timeout().filter(|due| *due <= end) {
                subject.now = subject.now.max(due);
                subject.node.engine.handle_timeout(subject.now);
                effects.gather(subject);
            }
        }
        Event::Query => {
            let attr = subject.query();
            let draining = if attr.sq_draining { ", draining" } else { "" };
            effects
                .words
                .push(format!("{}{draining}", name(attr.state.unwrap())));
        }
        Event::Modify(to) => effects.note_result(&subject.step(to)),
        Event::Destroy => {
            let result = subject.node.engine.destroy_qp(subject.now, subject.qpn);
            effects.note_result(&result);
            effects.gather(subject);
            return effects.finish();
        }
    }
    effects.gather(subject);
    let after = subject.state();
    if after != before {
        effects.words.push(format!("-> {}", name(after)));
    }
    effects.finish()
}

fn matrix() -> String {
    let mut text = String::from(
        "What each state does with each event. Receive request 1 waits from INIT on; in RTS and SQD send request 10 is\n\
         under way, unless it completed at once, and in SQD 11 is queued. What is posted is 2 or 20.\n",
    );
    for qp_type in TYPES {
        writeln!(text, "\n{qp_type:?}").unwrap();
        for event in EVENTS {
            writeln!(text, "  {}", event.name()).unwrap();
            for state in QpState::ALL {
                let mut subject = Subject::new(qp_type);
                if found(&mut subject, state).is_some() {
                    writeln!(text, "    {:5}  {}", name(state), run(&mut subject, event)).unwrap();
                }
            }
        }
    }
    text
}

#[test]
fn what_each_state_does_with_each_event_is_as_it_was_reviewed() {
    let now = matrix();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/state/matrix.txt");
        std::fs::write(path, &now).unwrap();
        return;
    }
    for (line, (now, reviewed)) in now.lines().zip(include_str!("matrix.txt").lines()).enumerate() {
        assert_eq!(
            now,
            reviewed,
            "line {} of matrix.txt; UPDATE_SNAPSHOTS=1 writes it anew",
            line + 1
        );
    }
    assert_eq!(now.len(), include_str!("matrix.txt").len());
}
