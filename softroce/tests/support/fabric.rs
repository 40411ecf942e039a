//! What the tests of the fabric share: packets, addresses, and looking after fabrics.
#![allow(dead_code)] // Each test file uses a part.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use roce_wire::icrc::{Flow, Verdict, verify};
use softroce::{Fabric, UdpFabric, UdpOptions};
use softroce_engine::{Path, RxMeta, TxBatch};

/// A loopback address that no other test uses.
pub fn fresh_address() -> IpAddr {
    let mut bytes = [0u8; 3];
    // SAFETY: pointer and length describe `bytes`.
    unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    IpAddr::V4(Ipv4Addr::new(127, bytes[0] | 1, bytes[1], bytes[2].clamp(1, 254)))
}

pub fn open(address: IpAddr) -> UdpFabric {
    UdpFabric::open(&UdpOptions::new(address)).unwrap()
}

pub fn path(src: IpAddr, dst: IpAddr) -> Path {
    Path {
        src,
        dst,
        source_port: 4791,
        traffic_class: 0,
        hop_limit: 64,
    }
}

/// A SEND ONLY packet of `len` bytes for `qpn`, with `tag` as its PSN and through its payload.
pub fn fill_packet(bytes: &mut [u8], qpn: u32, tag: u32) {
    bytes.fill(tag as u8);
    bytes[..12].copy_from_slice(&[4, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0]);
    bytes[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    bytes[9..12].copy_from_slice(&tag.to_be_bytes()[1..]);
}

pub fn tag_of(packet: &[u8]) -> u32 {
    u32::from_be_bytes([0, packet[9], packet[10], packet[11]])
}

/// Send packets of these lengths, tagged from 0 on.
pub fn send_all(from: &mut UdpFabric, to: IpAddr, qpn: u32, lengths: &[usize]) {
    let mut batch = TxBatch::new(lengths.iter().sum::<usize>().max(1), lengths.len());
    let path = path(from.address(), to);
    for (tag, len) in (0..).zip(lengths) {
        fill_packet(batch.push(path, *len).unwrap(), qpn, tag);
    }
    from.send(&mut batch);
}

/// A packet that arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    pub meta: RxMeta,
    pub bytes: Vec<u8>,
}

impl Arrival {
    pub fn icrc(&self) -> Verdict {
        let flow = Flow {
            src: self.meta.src,
            dst: self.meta.dst,
            source_port: self.meta.source_port,
            dest_port: 4791,
        };
        verify(&flow, &[0, self.meta.segment], &self.bytes)
    }
}

/// Everything that arrives until `count` packets have, or half a second has passed.
pub fn receive(fabric: &mut UdpFabric, count: usize) -> Vec<Arrival> {
    let deadline = Instant::now() + Duration::from_millis(500);
    let mut arrivals = Vec::new();
    while arrivals.len() < count && Instant::now() < deadline {
        fabric.recv(&mut |meta, bytes| {
            arrivals.push(Arrival {
                meta: *meta,
                bytes: bytes.to_vec(),
            })
        });
    }
    arrivals
}

/// Let all members do what they have to, for a while.
pub fn look_after(fabrics: &mut [UdpFabric], for_ms: u64) {
    let end = Instant::now() + Duration::from_millis(for_ms);
    while Instant::now() < end {
        for fabric in fabrics.iter_mut() {
            fabric.recv(&mut |_, _| {});
        }
    }
}
