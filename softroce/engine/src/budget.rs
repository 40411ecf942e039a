//! How many bytes may be on their way: toward each peer's socket, and as READ responses toward us.
//!
//! The peer's socket buffer is the tightest place of the path, and it is shared by everything that we send there. So
//! all queue pairs toward one socket share a window. Processes on one address have a socket each, and the upper eight
//! bits of their QPNs tell them apart. Bytes are charged as the kernel charges a receiving socket: a
//! lone packet costs about twice its size, a packet that rides in a train little more than its own bytes.
//!
//! Charges are lent, not owed: a queue pair without progress for [`LEASE_NS`] gives its own back and sends no more for
//! now, so that one whose far end is gone never starves others. When no queue pair at all hears from a socket, its
//! process sleeps: then only single packets go there, lest it finds its buffer overrun when it wakes.

mod claim;
mod peer;
mod peers;
mod reads;

use claim::Claim;
pub(crate) use peer::Lease;
pub(crate) use peers::{PeerId, Peers};
pub(crate) use reads::ReadBudget;

/// Kernel overhead of a packet that travels alone, bytes, besides its size twice.
const LONE_OVERHEAD_BYTES: u32 = 768;
/// Overhead of one more packet of the same size behind another, bytes.
const TRAIN_OVERHEAD_BYTES: u32 = 64;
/// How long a charge outlives the last progress of its holder, ns.
pub(crate) const LEASE_NS: u64 = 10_000_000;

/// What a packet of `len` bytes costs the receiving socket, bytes; `in_train` when it follows one of the same size and path.
pub fn packet_cost(len: usize, in_train: bool) -> u32 {
    let len = len as u32;
    if in_train {
        len + TRAIN_OVERHEAD_BYTES
    } else {
        2 * len + LONE_OVERHEAD_BYTES
    }
}
