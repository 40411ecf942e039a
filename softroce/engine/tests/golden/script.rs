//! What `tests/rxe-vm/golden.py` did in each case, as far as reliable connections are concerned.

use softroce_engine::SendOperation;
use verbs_api::{Access, RKey, RemoteAddr, SendFlags};

use super::capture::{Case, hexadecimal};

/// Bytes of registered memory on either side.
pub const MEMORY_BYTES: usize = 16_384;
/// Receives land in the upper half.
pub const RECEIVE_OFFSET: usize = 8192;
/// WRITEs and READs are this far into the server's memory.
const REMOTE_OFFSET: u64 = 64;
/// `imm_data` was this number in the host's (little-endian) order; the wire has its bytes as they lay in memory.
pub const IMM_HOST_ORDER: u32 = 0x1234_5678;
/// The word that atomics find.
const ATOMIC_BEFORE: u64 = 0x1122_3344_5566_7788;

/// One send request of the client.
#[derive(Clone, Copy, Debug)]
pub struct Send {
    pub op: SendOperation,
    /// Where in the client's memory, and how many bytes.
    pub offset: usize,
    pub len: usize,
    pub flags: SendFlags,
}

/// When the client posts its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    AllAtOnce,
    /// Each one when the one before has completed.
    OneByOne,
}

/// What the server posts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receives {
    None,
    /// So many before the client begins, each of so many bytes.
    Before {
        count: usize,
        len: usize,
    },
    /// One, after it has refused all requests but the last.
    BeforeLastRequest,
}

/// A case.
#[derive(Debug)]
pub struct Script {
    pub sends: Vec<Send>,
    pub pace: Pace,
    pub receives: Receives,
    pub server_access: Access,
    pub rnr_retry: u8,
    /// What the server's first word holds at the start, if not the pattern.
    pub server_word: Option<u64>,
    /// The case has a memory window of the server's.
    pub needs_window: bool,
}

/// The rights of the regions, and of queue pairs where a case does not say otherwise.
pub fn all_access() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC
}

impl Script {
    fn of_one(op: SendOperation, len: usize, receives: Receives) -> Script {
        let send = Send {
            op,
            offset: 0,
            len,
            flags: SendFlags::SIGNALED,
        };
        Script {
            sends: vec![send],
            pace: Pace::OneByOne,
            receives,
            server_access: all_access(),
            rnr_retry: 3,
            server_word: None,
            needs_window: false,
        }
    }

    /// What happened in `case`, or why it is not one for this test.
    pub fn of(case: &Case) -> Result<Script, &'static str> {
        let name = case.name.trim_start_matches("v6_");
        let Some(name) = name.strip_prefix("rc_") else {
            return Err(if name.starts_with("uc_") {
                "unreliable connections"
            } else {
                "datagrams"
            });
        };
        if let Some(special) = special(case, name) {
            return special;
        }
        let (what, len) = name.rsplit_once('_').unwrap();
        let len: usize = len.parse().unwrap_or_else(|_| panic!("case {name}"));
        let imm = Some(IMM_HOST_ORDER.swap_bytes());
        let remote = remote(case, REMOTE_OFFSET);
        let one = Receives::Before {
            count: 1,
            len: MEMORY_BYTES - RECEIVE_OFFSET,
        };
        Ok(match what {
            "send" => Script::of_one(SendOperation::Send { imm: None }, len, one),
            "send_imm" => Script::of_one(SendOperation::Send { imm }, len, one),
            "write" => Script::of_one(SendOperation::Write { remote, imm: None }, len, Receives::None),
            "write_imm" => Script::of_one(SendOperation::Write { remote, imm }, len, one),
            "read" => Script::of_one(SendOperation::Read { remote }, len, Receives::None),
            _ => panic!("case {name} is unknown"),
        })
    }

    /// The server's memory when all is done: what its client's requests made of `before`.
    pub fn apply_to_server(&self, case: &Case, client: &[u8], server: &mut [u8]) {
        let accepted = case
            .completions(super::capture::Side::Client)
            .iter()
            .filter(|wc| wc["status"] == "IBV_WC_SUCCESS")
            .count();
        for send in &self.sends[..accepted] {
            let data = &client[send.offset..send.offset + send.len];
            let at = match send.op {
                SendOperation::Send { .. } => RECEIVE_OFFSET,
                SendOperation::Write { remote, .. } => (remote.addr - case.server_va) as usize,
                SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } => {
                    server[..8].copy_from_slice(&word(case, "target_after").to_le_bytes());
                    continue;
                }
                _ => continue,
            };
            server[at..at + send.len].copy_from_slice(data);
        }
        if let (Receives::Before { len, .. }, Some(refused)) = (self.receives, self.sends.get(accepted)) {
            // Packets that fitted stay where they are, the receive request is lost.
            let kept = len / case.mtu_bytes * case.mtu_bytes;
            let data = &client[refused.offset..refused.offset + kept.min(refused.len)];
            server[RECEIVE_OFFSET..RECEIVE_OFFSET + data.len()].copy_from_slice(data);
        }
    }

    /// The client's memory when all is done.
    pub fn apply_to_client(&self, case: &Case, server: &[u8], client: &mut [u8]) {
        for send in &self.sends {
            match send.op {
                SendOperation::Read { remote } if send.len > 0 && remote.rkey.0 == case.server_rkey => {
                    let at = (remote.addr - case.server_va) as usize;
                    client[..send.len].copy_from_slice(&server[at..at + send.len]);
                }
                SendOperation::CompareSwap { .. } | SendOperation::FetchAdd { .. } => {
                    client[..8].copy_from_slice(&word(case, "returned").to_le_bytes());
                }
                _ => {}
            }
        }
    }
}

fn word(case: &Case, key: &str) -> u64 {
    u64::from_str_radix(case.result[key].as_str().unwrap(), 16).unwrap()
}

fn remote(case: &Case, offset: u64) -> RemoteAddr {
    RemoteAddr {
        addr: case.server_va + offset,
        rkey: RKey(case.server_rkey),
    }
}

/// Cases whose name does not say everything; `None` for the others.
fn special(case: &Case, name: &str) -> Option<Result<Script, &'static str>> {
    let remote = |offset| remote(case, offset);
    let bad = RemoteAddr {
        addr: case.server_va,
        rkey: RKey(case.server_rkey ^ 0xff),
    };
    let send = SendOperation::Send { imm: None };
    let write = |remote| Script::of_one(SendOperation::Write { remote, imm: None }, 16, Receives::None);
    let whole = MEMORY_BYTES - RECEIVE_OFFSET;
    Some(Ok(match name {
        "cmp_swap" => Script {
            server_word: Some(ATOMIC_BEFORE),
            ..Script::of_one(
                SendOperation::CompareSwap {
                    remote: remote(0),
                    compare: ATOMIC_BEFORE,
                    swap: 0xcafe_babe_dead_beef,
                },
                8,
                Receives::None,
            )
        },
        "fetch_add" => Script {
            server_word: Some(ATOMIC_BEFORE),
            ..Script::of_one(
                SendOperation::FetchAdd {
                    remote: remote(0),
                    add: 5,
                },
                8,
                Receives::None,
            )
        },
        "send_x4" => {
            let mut script = Script::of_one(send, 16, Receives::Before { count: 4, len: whole });
            let first = script.sends[0];
            script.sends = (0..4)
                .map(|i| Send {
                    offset: 16 * i,
                    ..first
                })
                .collect();
            script.pace = Pace::AllAtOnce;
            script
        }
        "send_solicited" => {
            let mut script = Script::of_one(send, 8, Receives::Before { count: 1, len: whole });
            script.sends[0].flags |= SendFlags::SOLICITED;
            script
        }
        "nak_bad_rkey_write" => write(bad),
        "nak_bad_rkey_read" => Script::of_one(SendOperation::Read { remote: bad }, 16, Receives::None),
        "nak_out_of_bounds" => write(remote(MEMORY_BYTES as u64 - 8)),
        "nak_no_remote_write" => Script {
            server_access: Access::LOCAL_WRITE,
            ..write(remote(0))
        },
        "nak_recv_too_short" => Script::of_one(send, 16, Receives::Before { count: 1, len: 8 }),
        "nak_misaligned_atomic" => return Some(Err("the kernel refused to post the request")),
        "rnr_exhausted" => Script::of_one(send, 16, Receives::None),
        "rnr_then_ok" => Script {
            rnr_retry: 7,
            ..Script::of_one(send, 16, Receives::BeforeLastRequest)
        },
        "mw_write_then_send_inv" => window_script(case, write(remote(0))),
        _ => return None,
    }))
}

/// WRITE through a memory window, SEND that invalidates its key, WRITE again.
fn window_script(case: &Case, base: Script) -> Script {
    let rkey = RKey(u32::try_from(hexadecimal(&case.result["mw_rkey"])).unwrap());
    let remote = RemoteAddr {
        addr: case.server_va + 4096,
        rkey,
    };
    let first = Send {
        op: SendOperation::Write { remote, imm: None },
        ..base.sends[0]
    };
    let second = Send {
        op: SendOperation::SendWithInvalidate { rkey },
        ..first
    };
    Script {
        sends: vec![first, second, first],
        needs_window: true,
        ..base
    }
}
