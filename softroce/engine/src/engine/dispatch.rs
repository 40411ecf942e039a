//! From a datagram to the queue pair that it is for. Whatever is wrong with it, it is dropped and counted.
#![forbid(unsafe_code)]

use roce_wire::{Operation, Packet, Transport};
use verbs_api::{MigState, QpState, QpType};

use super::Engine;
use crate::qp::PARTITION;
use crate::{RxMeta, Time};

/// Why a datagram goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drop {
    Malformed,
    Icrc,
    UnknownQp,
    WrongTransport,
    WrongState,
    BadPkey,
    WrongPeer,
    WrongAddress,
    Unsupported,
}

/// Which half of a queue pair a packet is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Responder,
    Requester,
    Congestion,
}

impl Engine {
    /// Take a datagram in: the payload of a UDP packet to port 4791, ICRC included. Total on hostile bytes.
    pub fn handle_datagram(&mut self, now: Time, meta: &RxMeta, udp_payload: &[u8]) {
        self.shared.now = now;
        let outcome = match roce_wire::parse(udp_payload) {
            Ok(packet) => self.dispatch(meta, udp_payload, &packet),
            Err(_) => Err(Drop::Malformed),
        };
        if let Err(reason) = outcome {
            self.note_dropped(reason);
        }
        self.fail_overflowed();
    }

    fn dispatch(&mut self, meta: &RxMeta, udp_payload: &[u8], packet: &Packet<'_>) -> Result<(), Drop> {
        let bth = &packet.headers.bth;
        let half = half_of(packet)?;
        if !self.addresses.contains(&meta.dst) {
            return Err(Drop::WrongAddress);
        }
        let qp = self.qps.get_mut(bth.dest_qp.value()).ok_or(Drop::UnknownQp)?;
        if !speaks(qp.id.qp_type, bth.opcode.transport(), half) {
            return Err(Drop::WrongTransport);
        }
        let admits = match (half, qp.state) {
            (_, QpState::Rts | QpState::Sqd) => true,
            (Half::Responder, QpState::Rtr) => true,
            // Where unreliable services alone can be.
            (Half::Responder, QpState::Sqe) => true,
            (_, QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err) => false,
        };
        let (Some(link), true) = (qp.link, admits) else {
            return Err(Drop::WrongState);
        };
        if !PARTITION.matches(bth.pkey) {
            return Err(Drop::BadPkey);
        }
        if !link.path.is_way_of(meta) {
            if !qp.has_followed_peer(&mut self.shared, meta, bth.migrated, udp_payload) {
                return Err(Drop::WrongPeer);
            }
        } else if !qp.is_intact(meta, udp_payload) {
            return Err(Drop::Icrc);
        } else if qp.migration.state() != MigState::Migrated {
            qp.note_migration_bit(&mut self.shared, meta, bth.migrated);
        }
        let peer = qp.link.map_or(link.peer, |link| link.peer);
        self.shared.counters.rcvd_pkts += 1;
        self.shared.counters.rcvd_bytes += udp_payload.len() as u64;
        self.shared.peers.get_mut(peer).note_heard(self.shared.now);
        match half {
            Half::Responder if bth.opcode.transport() == Transport::Uc => {
                qp.handle_unacknowledged(&mut self.shared, packet);
            }
            Half::Responder => qp.handle_request(&mut self.shared, packet),
            Half::Requester => qp.handle_response(&mut self.shared, packet),
            Half::Congestion => self.shared.peers.get_mut(peer).shrink(self.shared.now),
        }
        Ok(())
    }

    fn note_dropped(&mut self, reason: Drop) {
        let counters = &mut self.shared.counters;
        let counter = match reason {
            Drop::Malformed => &mut counters.dropped_malformed,
            Drop::Icrc => &mut counters.icrc_errors,
            Drop::UnknownQp => &mut counters.dropped_unknown_qp,
            Drop::WrongTransport => &mut counters.dropped_wrong_transport,
            Drop::WrongState => &mut counters.dropped_wrong_state,
            Drop::BadPkey => {
                self.bad_pkeys = self.bad_pkeys.saturating_add(1);
                &mut counters.dropped_bad_pkey
            }
            Drop::WrongPeer => &mut counters.dropped_wrong_peer,
            Drop::WrongAddress => &mut counters.dropped_wrong_address,
            Drop::Unsupported => &mut counters.dropped_unsupported,
        };
        *counter += 1;
    }
}

/// A reserved opcode is a request: its answer, if any, is the responder's to give.
fn half_of(packet: &Packet<'_>) -> Result<Half, Drop> {
    let opcode = packet.headers.bth.opcode;
    match (opcode.transport(), opcode.info()) {
        (Transport::Rc | Transport::Uc | Transport::Ud | Transport::Xrc, Some(info))
            if info.is_response() =>
        {
            Ok(Half::Requester)
        }
        (Transport::Rc | Transport::Uc | Transport::Ud | Transport::Xrc, _) => Ok(Half::Responder),
        (Transport::Cnp, Some(info)) if info.operation == Operation::CongestionNotification => {
            Ok(Half::Congestion)
        }
        (Transport::Rd | Transport::Manufacturer | Transport::Cnp, _) => Err(Drop::Unsupported),
    }
}

/// Whether packets of a transport, for this half, are for queue pairs of this type.
fn speaks(qp_type: QpType, transport: Transport, half: Half) -> bool {
    match transport {
        Transport::Rc => qp_type == QpType::Rc,
        Transport::Uc => qp_type == QpType::Uc,
        Transport::Ud => matches!(qp_type, QpType::Ud | QpType::Gsi),
        Transport::Xrc => match half {
            Half::Responder => qp_type == QpType::XrcTarget,
            Half::Requester => qp_type == QpType::XrcInitiator,
            Half::Congestion => false,
        },
        // Congestion notifications go to those who have a connection.
        Transport::Cnp => !matches!(qp_type, QpType::Ud | QpType::Gsi | QpType::RawPacket),
        Transport::Rd | Transport::Manufacturer => false,
    }
}
