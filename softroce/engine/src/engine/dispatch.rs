//! From a datagram to the queue pair that it is for. Whatever is wrong with it, it is dropped and counted.
#![forbid(unsafe_code)]

use roce_wire::grh::{self, GRH_LEN};
use roce_wire::ip::{Ip, IpFields};
use roce_wire::{Operation, PKey, Packet, Qpn, Transport};
use verbs_api::{MigState, QpState, QpType};

use super::Engine;
use crate::failure::{Cause, DropReason, Failure};
use crate::integrity::Senders;
use crate::mutants::{Mutant, is_on};
use crate::qp::{PARTITION, Qp};
use crate::shared::Shared;
use crate::{RxMeta, Time};

/// Bytes between IP header and BTH.
const UDP_HEADER_LEN: usize = 8;

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
    BadQkey,
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
            self.explain_drop(now, meta, udp_payload, reason);
        }
        self.fail_overflowed();
    }

    fn dispatch(&mut self, meta: &RxMeta, udp_payload: &[u8], packet: &Packet<'_>) -> Result<(), Drop> {
        let bth = &packet.headers.bth;
        let half = half_of(packet)?;
        if bth.dest_qp == Qpn::MULTICAST {
            return self.dispatch_to_group(meta, udp_payload, packet);
        }
        let is_own = meta.src == meta.dst && is_on(Mutant::LoopbackHasWrongAddress);
        if !self.addresses.contains(&meta.dst) || is_own {
            return Err(Drop::WrongAddress);
        }
        let Some(qp) = self.qps.get_mut(bth.dest_qp.value()) else {
            return self.dispatch_to_management(meta, udp_payload, packet);
        };
        if !speaks(qp.id.qp_type, bth.opcode.transport(), half) {
            return Err(Drop::WrongTransport);
        }
        if !admits(qp.state, half) {
            return Err(Drop::WrongState);
        }
        check_partition(bth.pkey)?;
        let Some(link) = qp.link else {
            // Who has no connection receives datagrams, from anybody.
            check_datagram_icrc(&mut self.senders, meta, udp_payload)?;
            self.shared.note_received(meta, udp_payload.len());
            if bth.dest_qp == Qpn::GSI && is_of_management(packet) {
                self.management.take(meta, packet);
            }
            return deliver(
                &mut self.shared,
                qp,
                packet,
                &network_header(meta, udp_payload.len()),
            );
        };
        if !link.path.is_way_of(meta) {
            let is_plausible = match half {
                Half::Responder => qp.could_be_request(bth.psn),
                Half::Requester => qp.could_be_answer(bth.psn),
                // Its PSN says nothing.
                Half::Congestion => false,
            };
            if !is_plausible || !qp.has_followed_peer(&mut self.shared, meta, bth.migrated, udp_payload) {
                return Err(Drop::WrongPeer);
            }
        } else if !qp.is_intact(meta, udp_payload) {
            return Err(Drop::Icrc);
        } else if qp.migration.state() != MigState::Migrated {
            qp.note_migration_bit(&mut self.shared, meta, bth.migrated);
        }
        let peer = qp.link.map_or(link.peer, |link| link.peer);
        self.shared.note_received(meta, udp_payload.len());
        self.shared.peers.get_mut(peer).note_heard(self.shared.now);
        match half {
            Half::Responder if bth.opcode.transport() == Transport::Uc => {
                qp.handle_unacknowledged(&mut self.shared, packet);
            }
            Half::Responder => qp.handle_request(&mut self.shared, packet),
            Half::Requester => {
                self.shared.peers.get_mut(peer).note_answered(self.shared.now);
                qp.handle_response(&mut self.shared, packet)
            }
            Half::Congestion => {
                self.shared.counters.rp_cnp_handled += 1;
                match qp.id.qp_type {
                    QpType::Uc => self.shared.pacer.note_congestion(self.shared.now),
                    _ => self.shared.peers.get_mut(peer).shrink(self.shared.now),
                }
            }
        }
        Ok(())
    }

    /// A packet to a number that no queue pair has: for the communication manager, if the number is 1.
    fn dispatch_to_management(
        &mut self,
        meta: &RxMeta,
        udp_payload: &[u8],
        packet: &Packet<'_>,
    ) -> Result<(), Drop> {
        let bth = &packet.headers.bth;
        if bth.dest_qp != Qpn::GSI || !self.management.is_served {
            return Err(Drop::UnknownQp);
        }
        if bth.opcode.transport() != Transport::Ud {
            return Err(Drop::WrongTransport);
        }
        check_partition(bth.pkey)?;
        check_datagram_icrc(&mut self.senders, meta, udp_payload)?;
        if !is_of_management(packet) {
            return Err(Drop::BadQkey);
        }
        self.shared.note_received(meta, udp_payload.len());
        if self.management.take(meta, packet) {
            Ok(())
        } else {
            Err(Drop::Unsupported)
        }
    }

    /// A datagram to a multicast group: each queue pair attached to it gets a copy.
    fn dispatch_to_group(
        &mut self,
        meta: &RxMeta,
        udp_payload: &[u8],
        packet: &Packet<'_>,
    ) -> Result<(), Drop> {
        let bth = &packet.headers.bth;
        if bth.opcode.transport() != Transport::Ud {
            return Err(Drop::WrongTransport);
        }
        if self.groups.members(meta.dst).is_none() || is_on(Mutant::MulticastIsRejected) {
            return Err(Drop::WrongAddress);
        }
        check_partition(bth.pkey)?;
        check_datagram_icrc(&mut self.senders, meta, udp_payload)?;
        self.shared.note_received(meta, udp_payload.len());
        let header = network_header(meta, udp_payload.len());
        let count = self.groups.members(meta.dst).map_or(0, <[u32]>::len);
        for index in 0..count {
            let members = self.groups.members(meta.dst).unwrap_or_default();
            let Some(qp) = members.get(index).and_then(|slot| self.qps.in_slot(*slot)) else {
                continue;
            };
            let outcome = if admits(qp.state, Half::Responder) {
                deliver(&mut self.shared, qp, packet, &header)
            } else {
                Err(Drop::WrongState)
            };
            if let Err(reason) = outcome {
                self.note_dropped(reason);
            }
        }
        Ok(())
    }

    /// Tell of drops that a wrong address or number of a program leads to; once for each queue pair and reason.
    fn explain_drop(&mut self, now: Time, meta: &RxMeta, udp_payload: &[u8], reason: Drop) {
        let reason = match reason {
            Drop::UnknownQp => DropReason::UnknownQp,
            Drop::WrongState => DropReason::WrongState,
            Drop::WrongPeer => DropReason::WrongPeer,
            Drop::BadQkey => DropReason::BadQkey,
            Drop::Malformed
            | Drop::Icrc
            | Drop::WrongTransport
            | Drop::BadPkey
            | Drop::WrongAddress
            | Drop::Unsupported => return,
        };
        let Ok(packet) = roce_wire::parse(udp_payload) else {
            return;
        };
        let bth = &packet.headers.bth;
        let qpn = bth.dest_qp.value();
        let cause = Cause::Dropped(reason);
        if self.shared.failures.is_news(qpn, cause) {
            let source = packet.headers.deth.map_or(0, |deth| deth.source_qp.value());
            self.shared.failures.note(Failure {
                at: now,
                qpn,
                qp_type: None,
                peer: Some(meta.src),
                peer_qpn: source,
                psn: bth.psn.value(),
                cause,
            });
        }
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
            Drop::BadQkey => {
                self.bad_qkeys = self.bad_qkeys.saturating_add(1);
                &mut counters.dropped_bad_qkey
            }
            Drop::WrongPeer => &mut counters.dropped_wrong_peer,
            Drop::WrongAddress => &mut counters.dropped_wrong_address,
            Drop::Unsupported => &mut counters.dropped_unsupported,
        };
        *counter += 1;
    }
}

/// Whether a datagram carries the Q_Key of queue pair 1.
fn is_of_management(packet: &Packet<'_>) -> bool {
    packet
        .headers
        .deth
        .is_some_and(|deth| deth.qkey == roce_wire::mad::GSI_QKEY)
}

fn check_partition(pkey: PKey) -> Result<(), Drop> {
    if PARTITION.matches(pkey) {
        Ok(())
    } else {
        Err(Drop::BadPkey)
    }
}

fn check_datagram_icrc(senders: &mut Senders, meta: &RxMeta, udp_payload: &[u8]) -> Result<(), Drop> {
    if senders.holds(meta, udp_payload) {
        Ok(())
    } else {
        Err(Drop::Icrc)
    }
}

/// Whether packets for this half are taken in this state.
fn admits(state: QpState, half: Half) -> bool {
    match (half, state) {
        (_, QpState::Rts | QpState::Sqd) => true,
        (Half::Responder, QpState::Rtr) => true,
        // Where unreliable services alone can be.
        (Half::Responder, QpState::Sqe) => true,
        (_, QpState::Reset | QpState::Init | QpState::Rtr | QpState::Sqe | QpState::Err) => false,
    }
}

/// Give a datagram to a queue pair that is open to it.
fn deliver(
    shared: &mut Shared,
    qp: &mut Qp,
    packet: &Packet<'_>,
    header: &[u8; GRH_LEN],
) -> Result<(), Drop> {
    match packet.headers.deth {
        Some(deth) if deth.qkey.0 == qp.own_qkey() => {
            qp.handle_send_to(shared, packet, header);
            Ok(())
        }
        Some(_) => Err(Drop::BadQkey),
        None => Err(Drop::Unsupported),
    }
}

/// What goes in front of a datagram's payload: the IP header that it came with, as far as the fabric knows it.
fn network_header(meta: &RxMeta, udp_payload_len: usize) -> [u8; GRH_LEN] {
    let traffic_class = meta.traffic_class;
    let fields = IpFields {
        traffic_class,
        hop_limit: meta.hop_limit,
        identification: 0,
    };
    let ip = Ip::between(meta.src, meta.dst, fields);
    grh::build(&ip, UDP_HEADER_LEN + udp_payload_len).expect("a UDP datagram fits an IP packet")
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
