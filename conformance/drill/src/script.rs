//! A script, understood: steps whose values are still expressions.

use roce_wire::{Opcode, Syndrome};
use verbs_api::{EventKind, QpState, WcOpcode, WcStatus};

use crate::call::Service;
use crate::expression::Expression;
use crate::line::{Placed, Slice, When};
use crate::source::{Problem, Source, Span};

/// A script.
#[derive(Clone, Debug)]
pub struct Script {
    /// Its text, for messages.
    pub source: Source,
    /// The story in one sentence.
    pub title: String,
    /// The requirements that it shows.
    pub shows: Vec<String>,
    /// Why it needs virtual time, if so: it cannot run against another device.
    pub only_sim: Option<String>,
    /// What happens.
    pub steps: Vec<Step>,
}

impl Script {
    /// Reads a script. Every line is checked before any runs; all that is wrong comes back, in order.
    pub fn parse(name: impl Into<String>, text: &str) -> Result<Script, (Source, Vec<Problem>)> {
        let source = Source::new(name, text);
        crate::compile::compile(&source).map_err(|problems| (source, problems))
    }
}

/// One line.
#[derive(Clone, Debug)]
pub struct Step {
    /// When.
    pub when: Placed<When>,
    /// What.
    pub action: Action,
    /// Where.
    pub span: Span,
}

/// What a line does or expects.
#[derive(Clone, Debug)]
#[allow(missing_docs)] // The chapter on scripts in docs/ has them all.
pub enum Action {
    CreateQp(Box<QpStep>),
    CreateMr {
        name: String,
        length: Expression,
        access: u32,
    },
    CreateMw {
        name: String,
    },
    CreateSrq {
        name: String,
        max_wr: Expression,
        limit: Expression,
    },
    Send {
        step: Box<SendStep>,
        result: Outcome,
    },
    Receive {
        queue: String,
        id: Expression,
        parts: Vec<Slice>,
        result: Outcome,
    },
    Modify {
        qp: String,
        change: Box<ChangeStep>,
        result: Outcome,
    },
    Destroy {
        name: String,
        result: Outcome,
    },
    Inject(Box<PacketStep>),
    Expect(Box<PacketStep>),
    Completion(Box<CompletionStep>),
    Event {
        kind: EventKind,
        qp: Option<String>,
    },
    State {
        qp: String,
        state: QpState,
    },
    Memory {
        slice: Slice,
        content: Content,
    },
    Fill {
        slice: Slice,
        content: Content,
    },
    Silence(Expression),
    Quiet(Expression),
    Wait(Expression),
    Drain,
    Let {
        name: String,
        value: Expression,
    },
    Repeat {
        count: Expression,
        body: Vec<Step>,
    },
}

/// What a verb must answer: success, or this error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(pub Option<i32>);

/// Bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Content {
    Zero,
    Pattern(Expression),
    /// Eight bytes, in the machine's order (little endian).
    Word(Expression),
    Bytes(Vec<u8>),
}

/// `qp`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct QpStep {
    pub name: String,
    pub service: Service,
    pub state: QpState,
    pub access: Option<u32>,
    pub srq: Option<String>,
    /// Attributes that were given, by the names of [`QP_NUMBERS`].
    pub numbers: Vec<(&'static str, Expression)>,
}

/// The numbers that `qp` takes, with the largest value of each and what it is without being said.
pub const QP_NUMBERS: [(&str, u64, u64); 14] = [
    ("mtu", 4096, 1024),
    ("timeout", 31, 16),
    ("retry", 7, 3),
    ("rnr", 7, 3),
    ("rnr_timer", 31, 12),
    ("rd", 255, 4),
    ("dest_rd", 255, 4),
    ("s", 0xff_ffff, 100),
    ("p", 0xff_ffff, 5000),
    ("sq", 1 << 16, 64),
    ("rq", 1 << 16, 64),
    ("qkey", 0xffff_ffff, 0x1111_2222),
    ("tclass", 255, 0),
    ("hops", 255, 64),
];

/// A send request.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct SendStep {
    pub qp: String,
    pub id: Expression,
    pub kind: SendKind,
    pub parts: Vec<Slice>,
    /// Bytes from the device's own outbox, where no part is given.
    pub length: Option<Expression>,
    pub inline: Option<Vec<u8>>,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
}

/// Its operation.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum SendKind {
    Send {
        imm: Option<Expression>,
        inv: Option<Expression>,
        qkey: Option<Expression>,
    },
    Write {
        at: Expression,
        rkey: Expression,
        imm: Option<Expression>,
    },
    Read {
        at: Expression,
        rkey: Expression,
    },
    CompareSwap {
        at: Expression,
        rkey: Expression,
        compare: Expression,
        swap: Expression,
    },
    FetchAdd {
        at: Expression,
        rkey: Expression,
        add: Expression,
    },
    AtomicWrite {
        at: Expression,
        rkey: Expression,
    },
    LocalInvalidate {
        rkey: Expression,
    },
    Bind {
        window: String,
        rkey: Expression,
        access: u32,
    },
}

/// `modify`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct ChangeStep {
    pub state: Option<QpState>,
    pub access: Option<u32>,
    /// By the names of [`QP_NUMBERS`].
    pub numbers: Vec<(&'static str, Expression)>,
}

/// A packet, to inject or to expect.
#[derive(Clone, Debug)]
pub struct PacketStep {
    /// The queue pair of the device under test.
    pub qp: String,
    /// Its opcode.
    pub opcode: Opcode,
    /// What its AETH says, as far as the name of the packet tells.
    pub syndrome: Option<SyndromeStep>,
    /// The packet number; `None` is any.
    pub psn: Option<Expression>,
    /// Payload bytes.
    pub length: Option<Expression>,
    /// The payload.
    pub data: Option<Content>,
    /// Fields by the names of [`FIELDS`].
    pub fields: Vec<(&'static str, Expression, Span)>,
    /// Flags by the names of [`FLAGS`].
    pub flags: Vec<(&'static str, bool, Span)>,
}

/// What an AETH says.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum SyndromeStep {
    /// An ACK, whatever its credits.
    Ack,
    /// Exactly this.
    Exactly(Syndrome),
}

/// The fields of a packet that lines may set and compare, with the largest value of each.
pub const FIELDS: [(&str, u64); 20] = [
    ("va", u64::MAX),
    ("rkey", 0xffff_ffff),
    ("dma", 0xffff_ffff),
    ("imm", 0xffff_ffff),
    ("inv", 0xffff_ffff),
    ("swap", u64::MAX),
    ("add", u64::MAX),
    ("compare", u64::MAX),
    ("original", u64::MAX),
    ("msn", 0xff_ffff),
    ("credits", 31),
    ("timer", 31),
    ("syndrome", 255),
    ("qkey", 0xffff_ffff),
    ("srcqp", 0xff_ffff),
    ("pkey", 0xffff),
    ("tver", 15),
    ("pad", 3),
    ("dqp", 0xff_ffff),
    ("cut", 0xffff),
];

/// The flags of a packet.
pub const FLAGS: [&str; 6] = ["ackreq", "se", "mig", "fecn", "becn", "icrc"];

/// `cqe`.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub struct CompletionStep {
    pub qp: String,
    pub id: Expression,
    /// One of these.
    pub statuses: Vec<WcStatus>,
    pub opcode: Option<Placed<WcOpcode>>,
    pub length: Option<Placed<Expression>>,
    pub imm: Option<Placed<Expression>>,
    pub inv: Option<Placed<Expression>>,
}
