//! Management datagrams: what goes to and comes from queue pair 1 without a queue pair of the program's.
#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::net::IpAddr;

use roce_wire::mad::{GSI_QKEY, MAD_LEN};
use roce_wire::{Bth, Deth, Headers, ICRC_LEN, Opcode, Packet, Psn, Qpn, source_port};

use crate::qp::PARTITION;
use crate::{Path, RxMeta, TxBatch};

/// Datagrams that may wait, each way. More are lost, as the network loses some.
const WAITING_MAX: usize = 4096;

/// A management datagram that arrived at queue pair 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedMad {
    /// Who sent it.
    pub src: IpAddr,
    /// The own address that it was sent to.
    pub dst: IpAddr,
    /// TOS or traffic class, where known.
    pub traffic_class: u8,
    /// TTL or hop limit, where known.
    pub hop_limit: u8,
    /// The queue pair that sent it.
    pub source_qpn: Qpn,
    /// Its bytes.
    pub mad: [u8; MAD_LEN],
}

/// A management datagram to be sent from queue pair 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentMad {
    /// Own address.
    pub src: IpAddr,
    /// The peer's.
    pub dst: IpAddr,
    /// TOS or traffic class.
    pub traffic_class: u8,
    /// TTL or hop limit; 0 is the usual one.
    pub hop_limit: u8,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// Its bytes.
    pub mad: [u8; MAD_LEN],
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Management {
    /// Whether somebody takes what arrives.
    pub(crate) is_served: bool,
    received: VecDeque<ReceivedMad>,
    waiting: VecDeque<SentMad>,
    psn: Psn,
}

impl Management {
    /// A datagram that has passed all checks. False when it is none of management, or nobody takes it.
    pub(crate) fn take(&mut self, meta: &RxMeta, packet: &Packet<'_>) -> bool {
        let (Ok(mad), Some(deth)) = (packet.payload.try_into(), packet.headers.deth) else {
            return false;
        };
        if !self.is_served || self.received.len() >= WAITING_MAX {
            return false;
        }
        self.received.push_back(ReceivedMad {
            src: meta.src,
            dst: meta.dst,
            traffic_class: meta.traffic_class,
            hop_limit: meta.hop_limit,
            source_qpn: deth.source_qp,
            mad,
        });
        true
    }

    pub(crate) fn has_received(&self) -> bool {
        !self.received.is_empty()
    }

    pub(crate) fn poll(&mut self) -> Option<ReceivedMad> {
        self.received.pop_front()
    }

    /// One more to be sent; false when too many wait.
    pub(crate) fn send(&mut self, mad: SentMad) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.push_back(mad);
        }
        has_room
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Append what waits to a batch: how many packets of how many bytes in all; false when some did not fit.
    pub(crate) fn transmit(&mut self, batch: &mut TxBatch) -> (u64, u64, bool) {
        let (mut packets, mut bytes) = (0, 0);
        while let Some(mad) = self.waiting.front() {
            let mut bth = Bth::new(Opcode::UD_SEND_ONLY, mad.dest_qpn, self.psn);
            bth.pkey = PARTITION;
            let mut headers = Headers::new(bth);
            headers.deth = Some(Deth {
                qkey: GSI_QKEY,
                source_qp: Qpn::GSI,
            });
            let packet = Packet {
                headers,
                payload: &mad.mad,
                pad: &[],
                icrc: [0; ICRC_LEN],
            };
            let label = source_port::flow_label(Qpn::GSI, mad.dest_qpn);
            let path = Path {
                src: mad.src,
                dst: mad.dst,
                source_port: source_port::from_flow_label(label),
                traffic_class: mad.traffic_class,
                hop_limit: if mad.hop_limit == 0 {
                    DEFAULT_HOP_LIMIT
                } else {
                    mad.hop_limit
                },
            };
            let len = packet.wire_len();
            let Some(out) = batch.push(path, len) else {
                return (packets, bytes, false);
            };
            packet
                .emit(out)
                .expect("the headers are complete, and the room is there");
            self.psn = self.psn.next();
            self.waiting.pop_front();
            packets += 1;
            bytes += len as u64;
        }
        (packets, bytes, true)
    }
}

/// Hop limit of a datagram that leaves it open.
const DEFAULT_HOP_LIMIT: u8 = 64;
