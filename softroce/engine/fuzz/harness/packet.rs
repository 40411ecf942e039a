//! Packets that get far: sealed, near the expected sequence numbers, with keys that exist. Or nearly so.

use std::net::{IpAddr, Ipv4Addr};

use roce_wire::icrc::{self, Flow};
use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, FlushPlacement, FlushSelectivity, Headers, ICRC_LEN,
    Ieth, ImmDt, Msn, Opcode, PKey, Psn, QKey, Qpn, RKey, ROCE_V2_PORT, Reth, Srqn, Syndrome, XrcEth,
    pad_len,
};
use verbs_api::QpType;

use super::input::Input;
use super::kind::{KINDS, QKEY};
use super::memory::{ALL_REGIONS, REGION_BYTES, iova_of};
use super::world::{ALT_OWN_IP, ALT_PEER_IP, GROUP, OWN_IP, PEER_IP, World};

const STRANGER_IP: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 3));
const MTU_BYTES: usize = 256;
const PAYLOAD_LENS: [usize; 12] = [
    0,
    1,
    3,
    8,
    9,
    64,
    MTU_BYTES - 1,
    MTU_BYTES,
    MTU_BYTES,
    MTU_BYTES,
    MTU_BYTES + 1,
    1024,
];

/// A datagram, the address that it comes from, and the one that it is for.
pub struct Datagram {
    pub way: (IpAddr, IpAddr),
    pub bytes: Vec<u8>,
}

/// As the input says, byte for byte; sealed or not.
pub fn raw(input: &mut Input<'_>) -> Datagram {
    let is_sealed = input.byte() & 1 == 0;
    let len = usize::from(input.byte());
    let mut bytes = input.bytes(len).to_vec();
    if is_sealed && bytes.len() >= 16 {
        seal((PEER_IP, OWN_IP), 0, &mut bytes);
    }
    Datagram {
        way: (PEER_IP, OWN_IP),
        bytes,
    }
}

/// By structure, for queue pair `index`.
pub fn crafted(world: &World, index: usize, input: &mut Input<'_>) -> Datagram {
    let qpn = match input.byte() {
        0xff => 0x7f,
        0xe0..=0xfe if KINDS[index].qp_type == QpType::Ud => Qpn::MULTICAST.value(),
        _ => world.qps[index].qpn,
    };
    let service = match KINDS[index].qp_type {
        QpType::Rc | QpType::RawPacket => 0,
        QpType::Uc => 0x20,
        QpType::Ud | QpType::Gsi => 0x60,
        QpType::XrcInitiator | QpType::XrcTarget => 0xa0,
    };
    let opcode = match input.byte() {
        value @ 0..=0xbf => Opcode::new(service | value & 0x1f),
        0xc0..=0xdf => Opcode::new(service | Opcode::RC_ACKNOWLEDGE.value()),
        value => Opcode::new(value.wrapping_mul(29)),
    };
    let mut bth = Bth::new(
        opcode,
        Qpn::new(qpn).unwrap_or_default(),
        psn(world, qpn, opcode, input),
    );
    let flags = input.byte();
    bth.ack_request = flags & 1 != 0;
    bth.solicited = flags & 2 != 0;
    bth.becn = flags & 4 != 0;
    bth.migrated = flags & 8 != 0;
    if flags & 0xf0 == 0xf0 {
        bth.pkey = PKey(0x7ffe);
    }
    let has_payload = opcode
        .info()
        .is_none_or(|info| info.payload.allows(MTU_BYTES, MTU_BYTES));
    let odd = input.byte();
    let payload_len = if has_payload || odd & 0xe0 == 0xe0 {
        input.pick(&PAYLOAD_LENS)
    } else {
        0
    };
    bth.pad = if odd & 0x1f == 0x1f {
        odd >> 6
    } else {
        pad_len(payload_len)
    };
    let headers = with_extensions(world, bth, payload_len, input);
    let len = headers.len() + payload_len + usize::from(bth.pad) + ICRC_LEN;
    let mut bytes = vec![input.byte(); len];
    headers.emit(&mut bytes).expect("room was made for the headers");
    let delivery = input.byte();
    let way = match delivery & 0xf {
        0xf => (STRANGER_IP, OWN_IP),
        0xe => (ALT_PEER_IP, ALT_OWN_IP),
        _ if qpn == Qpn::MULTICAST.value() => (PEER_IP, GROUP),
        _ => (PEER_IP, OWN_IP),
    };
    seal(way, u16::from(delivery >> 6), &mut bytes);
    if delivery & 0x30 == 0x30 {
        let at = usize::from(input.u16()) % len;
        bytes[at] ^= input.byte();
    }
    Datagram { way, bytes }
}

/// Near what the queue pair expects, or has sent.
fn psn(world: &World, qpn: u32, opcode: Opcode, input: &mut Input<'_>) -> Psn {
    let attr = world.engine.query_qp(qpn).unwrap_or_default();
    let is_response = opcode.info().is_some_and(|info| info.is_response());
    let base = if is_response { attr.sq_psn } else { attr.rq_psn };
    let base = Psn::new(base.unwrap_or(0));
    match input.byte() {
        // The next request, or the answer to the last one.
        0..=0x9f => base - u32::from(is_response),
        value @ 0xa0..=0xcf => base - u32::from(value & 0xf),
        value @ 0xd0..=0xef => base + u32::from(value & 0xf),
        0xf0 => base + 0x7f_ffff,
        0xf1 => base + 0x80_0000,
        _ => Psn::new(input.u32()),
    }
}

fn with_extensions(world: &World, bth: Bth, payload_len: usize, input: &mut Input<'_>) -> Headers {
    let mut headers = Headers::new(bth);
    let Some(info) = bth.opcode.info() else {
        return headers;
    };
    let set = info.headers;
    if set.feth {
        let bits = input.byte();
        headers.feth = Some(Feth {
            placement: FlushPlacement::new(if bits & 0x80 == 0 { 1 } else { bits }),
            selectivity: FlushSelectivity::new(bits >> 4),
        });
    }
    if set.reth {
        let (va, rkey) = remote(world, input);
        let dma_length = match input.byte() {
            0..=0x5f => payload_len as u32,
            value @ 0x60..=0xbf => (MTU_BYTES * usize::from(value & 7) + usize::from(value >> 3 & 7)) as u32,
            0xc0 => 0x8000_0000,
            0xc1 => 0x8000_0001,
            0xc2 => u32::MAX,
            0xc3 => 0,
            _ => u32::from(input.u16()),
        };
        headers.reth = Some(Reth { va, rkey, dma_length });
    }
    if set.atomic_eth {
        let (va, rkey) = remote(world, input);
        headers.atomic_eth = Some(AtomicEth {
            va: if input.byte() & 7 == 7 { va } else { va & !7 },
            rkey,
            swap_or_add: input.u32().into(),
            compare: input.u16().into(),
        });
    }
    if set.aeth {
        let syndrome = match input.byte() {
            0..=0x7f => Syndrome::ACK,
            value => Syndrome::new(value << 1 | value >> 6 & 1),
        };
        let msn = Msn::new(input.u16().into());
        headers.aeth = Some(Aeth { syndrome, msn });
    }
    if set.atomic_ack {
        headers.atomic_ack = Some(AtomicAckEth {
            original: input.u32().into(),
        });
    }
    headers.immediate = set.immediate.then(|| ImmDt(input.u32().to_be_bytes()));
    headers.invalidate = set.invalidate.then(|| Ieth(remote(world, input).1));
    headers.deth = set.deth.then(|| Deth {
        qkey: match input.byte() {
            0xff => QKey(input.u32()),
            _ => QKey(QKEY),
        },
        source_qp: Qpn::GSI,
    });
    headers.xrceth = set.xrceth.then(|| XrcEth {
        srq: match input.byte() {
            value @ 0xf0.. => Srqn::new(value.into()).unwrap_or_default(),
            _ => Srqn::new(world.xrc_srq.srqn).unwrap_or_default(),
        },
    });
    headers
}

/// An address and a key that fit together, mostly.
fn remote(world: &World, input: &mut Input<'_>) -> (u64, RKey) {
    let choice = input.byte();
    let region = ALL_REGIONS[usize::from(choice & 0x0f) % ALL_REGIONS.len()];
    let key = world.regions[region as usize].rkey.0;
    let key = match choice >> 4 {
        0xf => key ^ u32::from(input.byte()),
        0xe => input.u32(),
        0xd => world.windows[usize::from(choice) % world.windows.len()].rkey.0,
        _ => key,
    };
    let start = iova_of(region);
    let va = match input.byte() {
        0..=0x7f => start,
        value @ 0x80..=0xbf => start + u64::from(value & 0x3f),
        value @ 0xc0..=0xdf => start + (REGION_BYTES - usize::from(value & 0x1f)) as u64,
        value @ 0xe0..=0xef => start.wrapping_sub(u64::from(value & 0xf)),
        0xf0 => u64::MAX - 7,
        _ => start + u64::from(input.u16()),
    };
    (va, RKey(key))
}

fn seal((src, dst): (IpAddr, IpAddr), ip_id: u16, bytes: &mut [u8]) {
    let flow = Flow {
        src,
        dst,
        source_port: 0xc000,
        dest_port: ROCE_V2_PORT,
    };
    icrc::seal(&flow, ip_id, bytes);
}
