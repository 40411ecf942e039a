//! An attacker who does not know the peer's address, or the queue pair's number, guesses in vain.
//!
//! The PSN protects nobody here: any message may begin with any. He knows keys, addresses, lengths and path MTU, and may
//! send with a valid ICRC. Whatever he sends, no memory is written, nothing completes, no event is raised, nothing
//! changes, and no packet leaves.

use std::net::{IpAddr, Ipv4Addr};

use roce_wire::{Bth, Headers, ImmDt, Opcode, Psn, Qpn, RKey, Reth};

use super::unreliable;
use crate::node::{MEMORY_BYTES, pattern};
use crate::raw::Raw;

const PACKETS: usize = 200_000;

/// Small and reproducible (splitmix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn without_the_peers_address_or_the_number_nothing_is_written_and_nothing_completes() {
    let mut raw = Raw::with(unreliable());
    for wr_id in 0..4 {
        let sge = raw.node.sge(0, 8192);
        raw.node.recv(raw.now, raw.qpn, wr_id, &[sge]);
    }
    raw.node.write(0, &pattern(MEMORY_BYTES, 9));
    let before = raw.node.engine.query_qp(raw.qpn).unwrap();
    let (peer, own_qpn) = (raw.meta.src, raw.qpn);
    let target = raw.node.remote(65_536);
    let mut random = Random(4);
    for _ in 0..PACKETS {
        let draw = random.next();
        let knows_number = draw & 1 == 0;
        let guess = (draw >> 8) as u32 & 0xff_ffff;
        let dest = match (knows_number, guess == own_qpn) {
            (true, _) => own_qpn,
            (false, true) => 0,
            (false, false) => guess,
        };
        raw.meta.src = match (knows_number, draw >> 1 & 3) {
            (false, _) => peer,
            (true, 0) => raw.node.ip,
            (true, 1) => Ipv4Addr::new(10, 0, 0, 3).into(),
            (true, _) => Ipv4Addr::from((draw >> 32) as u32 & 0x7fff_ffff | 1 << 31).into(),
        };
        assert!(!knows_number || raw.meta.src != IpAddr::from(Ipv4Addr::new(10, 0, 0, 2)));
        let opcode = Opcode::new(0x20 | (random.next() % 12) as u8);
        let psn = match random.next() & 3 {
            0 => random.next() as u32 & 0xff_ffff,
            _ => before.rq_psn.unwrap(),
        };
        let mut forged = Headers::new(Bth::new(opcode, Qpn::new(dest).unwrap(), Psn::new(psn)));
        let len = if opcode.info().unwrap().payload.allows(8, 1024) {
            8
        } else {
            1024
        };
        forged.reth = Some(Reth {
            va: target.addr,
            rkey: RKey(target.rkey.0),
            dma_length: len as u32,
        });
        forged.immediate = Some(ImmDt([1, 2, 3, 4]));
        raw.inject(forged, &[0x66; 1024][..len]);
        assert_eq!(raw.node.ring.len(), 0, "a completion after {forged:?}");
    }
    assert_eq!(raw.node.transmit(raw.now, softroce_engine::Acks::Flush), []);
    assert_eq!(raw.node.engine.poll_event(), None);
    assert_eq!(raw.node.engine.query_qp(raw.qpn).unwrap(), before);
    assert!(
        raw.node.read(0, MEMORY_BYTES) == pattern(MEMORY_BYTES, 9),
        "memory was written"
    );
    raw.meta.src = peer;
    raw.plain(Opcode::UC_SEND_ONLY, before.rq_psn.unwrap(), b"the right one");
    assert_eq!(raw.node.completions().len(), 1);
}
