//! What a script asks of the device under test, and its answers. Plain values, so that they travel over TCP too.

use serde::{Deserialize, Serialize};

/// The service of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
}

/// How to make a queue pair, and where its peer is. Codes and units are those of `verbs_api::QpAttr`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The names are those of ibv_modify_qp(3).
pub struct QpPlan {
    pub service: Service,
    pub mtu: u32,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub min_rnr_timer: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub sq_psn: u32,
    pub rq_psn: u32,
    pub access: u32,
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub qkey: u32,
    pub traffic_class: u8,
    pub hop_limit: u8,
    /// The shared receive queue, by name.
    pub srq: Option<String>,
    /// The peer's queue pair.
    pub dest_qpn: u32,
    /// The peer's GID.
    pub dgid: [u8; 16],
}

/// A part of a region of the device under test.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Part {
    pub region: String,
    pub from: u64,
    pub to: u64,
}

/// An operation of a send request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // The fields are those of verbs_api::SendOp.
pub enum Operation {
    Send {
        imm: Option<u32>,
    },
    SendWithInvalidate {
        rkey: u32,
    },
    SendTo {
        qpn: u32,
        qkey: u32,
        imm: Option<u32>,
    },
    Write {
        addr: u64,
        rkey: u32,
        imm: Option<u32>,
    },
    Read {
        addr: u64,
        rkey: u32,
    },
    CompareSwap {
        addr: u64,
        rkey: u32,
        compare: u64,
        swap: u64,
    },
    FetchAdd {
        addr: u64,
        rkey: u32,
        add: u64,
    },
    AtomicWrite {
        addr: u64,
        rkey: u32,
    },
    LocalInvalidate {
        rkey: u32,
    },
    BindMw {
        window: String,
        rkey: u32,
        part: Part,
        access: u32,
    },
}

/// A send request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct SendPlan {
    pub id: u64,
    pub operation: Operation,
    pub parts: Vec<Part>,
    pub inline: Option<Vec<u8>>,
    pub signaled: bool,
    pub fence: bool,
    pub solicited: bool,
}

/// Attributes to set; `state` by its number in C.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Change {
    pub state: Option<u32>,
    pub timeout: Option<u8>,
    pub retry_cnt: Option<u8>,
    pub rnr_retry: Option<u8>,
    pub min_rnr_timer: Option<u8>,
    pub access: Option<u32>,
    pub sq_psn: Option<u32>,
    pub rq_psn: Option<u32>,
}

/// A question or an order to the device under test. Objects have the names of the script.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Call {
    CreateQp {
        name: String,
        plan: QpPlan,
    },
    CreateMr {
        name: String,
        length: u64,
        access: u32,
    },
    CreateMw {
        name: String,
    },
    CreateSrq {
        name: String,
        max_wr: u32,
        limit: u32,
    },
    Send {
        qp: String,
        plan: SendPlan,
    },
    Receive {
        queue: String,
        id: u64,
        parts: Vec<Part>,
    },
    Modify {
        qp: String,
        change: Change,
    },
    Destroy {
        name: String,
    },
    State {
        qp: String,
    },
    Poll,
    Events,
    ReadMemory {
        part: Part,
    },
    WriteMemory {
        region: String,
        from: u64,
        bytes: Vec<u8>,
    },
}

/// A completion; status and opcode by their numbers in C.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Completion {
    pub id: u64,
    pub status: u32,
    pub opcode: u32,
    pub length: u32,
    pub imm: Option<u32>,
    pub inv: Option<u32>,
    pub qpn: u32,
    pub src_qp: u32,
}

/// An asynchronous event: kind by its number in C, and the queue pair's number or the SRQ's name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct Event {
    pub kind: u32,
    pub qpn: Option<u32>,
}

/// The answer to a [`Call`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum Reply {
    Done,
    Qp {
        qpn: u32,
        gid: [u8; 16],
    },
    Mr {
        addr: u64,
        lkey: u32,
        rkey: u32,
    },
    Mw {
        rkey: u32,
    },
    Completions(Vec<Completion>),
    Events(Vec<Event>),
    State(u32),
    Bytes(Vec<u8>),
    /// A verb said no.
    Refused {
        errno: i32,
        message: String,
    },
}
