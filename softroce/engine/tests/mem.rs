//! Memory beyond plain regions, in virtual time: windows, invalidation, device memory, re-registration, ATOMIC WRITE,
//! FLUSH.

mod atomic_write;
mod binding;
mod device;
mod flush;
mod invalidation;
mod order;
mod regions;
mod unreliable;
mod windows;

use softroce_engine::{BindRequest, MwId, SendOperation, Time};
use verbs_api::{Access, RKey, RemoteAddr, SendFlags};

use crate::node::Node;
use crate::pair::{Fate, Rule};

/// Of every `period` packets the one numbered `lost` is dropped, and the one numbered `twice` comes twice.
fn bad_wire(period: u32, lost: u32, twice: Option<u32>) -> Rule {
    let mut count = 0;
    Box::new(move |_| {
        count += 1;
        match count % period {
            number if number == lost => Fate::Drop,
            number if Some(number) == twice => Fate::Twice,
            _ => Fate::Pass,
        }
    })
}

/// What peers may do through the windows of these tests, unless a test is about that.
fn remote_access() -> Access {
    Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC
}

/// A request to bind a window of type 2 to `length` bytes of the node's region from `offset`.
fn bind_type2(
    node: &Node,
    mw: MwId,
    rkey: RKey,
    offset: usize,
    length: u64,
    access: Access,
) -> SendOperation {
    SendOperation::BindMw {
        mw,
        rkey,
        mr: node.mr.id,
        addr: node.address(offset),
        length,
        access,
    }
}

/// The same for a window of type 1.
fn bind_type1(node: &Node, wr_id: u64, offset: usize, length: u64, access: Access) -> BindRequest {
    BindRequest {
        wr_id,
        flags: SendFlags::SIGNALED,
        mr: Some(node.mr.id),
        addr: node.address(offset),
        length,
        access,
    }
}

/// `rkey` with another lowest byte.
fn with_tag(rkey: RKey, tag: u8) -> RKey {
    RKey(rkey.0 & !0xff | u32::from(tag))
}

fn at(node: &Node, offset: usize, rkey: RKey) -> RemoteAddr {
    RemoteAddr {
        addr: node.address(offset),
        rkey,
    }
}

/// Carry out what needs no packets.
fn settle(node: &mut Node, now: Time) {
    let sent = node.transmit(now, softroce_engine::Acks::Flush);
    assert!(sent.is_empty(), "{} packets", sent.len());
}
