//! An attacker who does not know the Q_Key, or the queue pair's number, guesses in vain.
//!
//! He knows all else, may send from any address, to any address and group, with a valid ICRC. Whatever he sends, no
//! memory is written, nothing completes, no event is raised, no attribute changes, and no packet leaves.

use roce_wire::{Opcode, Psn};
use verbs_api::QpType;

use super::bench::{Bench, QKEY, headers, open};
use crate::node::{MEMORY_BYTES, pattern};

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
fn without_the_q_key_or_the_number_nothing_is_written_and_nothing_completes() {
    let mut bench = Bench::new();
    let now = bench.now;
    let qpns = [bench.qpn, open(&mut bench.node, now, QpType::Gsi, 0)];
    let group = "239.1.2.3".parse::<std::net::IpAddr>().unwrap();
    bench.node.engine.attach_mcast(bench.qpn, group.into()).unwrap();
    for qpn in qpns {
        let sge = bench.node.sge(0, 8192);
        bench.node.recv(now, qpn, 1, &[sge]);
    }
    bench.node.write(0, &pattern(MEMORY_BYTES, 9));
    let before = qpns.map(|qpn| bench.node.engine.query_qp(qpn).unwrap());
    let own = bench.meta.dst;
    let mut random = Random(3);
    for _ in 0..PACKETS {
        let draw = random.next();
        let knows_number = draw & 1 == 0;
        let dest = match (knows_number, draw >> 1 & 3) {
            (true, 0) => 0xff_ffff,
            (true, 1) => 1,
            (true, _) => bench.qpn,
            (false, _) => Some((draw >> 8) as u32 & 0xff_ffff)
                .filter(|guess| !qpns.contains(guess) && *guess != 0xff_ffff)
                .unwrap_or(0),
        };
        let mut guess = (random.next() >> 32) as u32;
        if [QKEY, 0x8001_0000].contains(&guess) {
            guess ^= 1;
        }
        let qkey = if knows_number { guess } else { QKEY };
        let mut forged = headers(dest, qkey);
        forged.bth.opcode = Opcode::new(0x60 | (random.next() & 0x1f) as u8);
        if random.next() & 3 != 0 {
            forged.bth.opcode = Opcode::UD_SEND_ONLY;
        }
        forged.bth.psn = Psn::new(random.next() as u32);
        bench.meta.src = std::net::Ipv4Addr::from(random.next() as u32).into();
        bench.meta.dst = if dest == 0xff_ffff || random.next() & 7 == 0 {
            group
        } else {
            own
        };
        bench.inject(&forged, &[0x66; 64]);
        assert_eq!(bench.node.ring.len(), 0, "a completion after {forged:?}");
    }
    assert!(bench.sent().is_empty());
    assert_eq!(bench.node.engine.poll_event(), None);
    assert_eq!(qpns.map(|qpn| bench.node.engine.query_qp(qpn).unwrap()), before);
    assert!(
        bench.node.read(0, MEMORY_BYTES) == pattern(MEMORY_BYTES, 9),
        "memory was written"
    );
    bench.meta.dst = own;
    bench.meta.src = [10, 0, 0, 2].into();
    for (qpn, qkey) in qpns.into_iter().zip([QKEY, 0x8001_0000]) {
        bench.inject(&headers(qpn, qkey), b"the right one");
        assert_eq!(bench.completion().qp_num, qpn);
    }
}
