//! Receiving datagrams: from anybody who knows the Q_Key, in any order (IBA 9.8.3).
//!
//! Whatever is wrong with a datagram, it is dropped without a word and takes no receive request.
#![forbid(unsafe_code)]

use roce_wire::grh::GRH_LEN;
use roce_wire::{Operation, Packet, pad_len};
use verbs_api::{WcOpcode, WcStatus};

use crate::failure::{Cause, DropReason, Refusal};
use crate::qp::Qp;
use crate::shared::Shared;

impl Qp {
    /// Take a datagram in. The caller has checked that the state admits it and that its Q_Key is right. `grh` goes in
    /// front of the payload.
    pub(crate) fn handle_send_to(&mut self, shared: &mut Shared, packet: &Packet<'_>, grh: &[u8; GRH_LEN]) {
        let (bth, payload) = (&packet.headers.bth, packet.payload);
        let fits_mtu = bth.opcode.info().is_some_and(|info| {
            info.operation == Operation::Send && info.payload.allows(payload.len(), shared.port_mtu_bytes)
        });
        if !fits_mtu || bth.pad != pad_len(payload.len()) {
            shared.counters.dropped_unserved += 1;
            return;
        }
        let Some(next) = self.receives.next(shared) else {
            shared.counters.dropped_no_receive += 1;
            self.note_once(shared, bth.psn.value(), Cause::Dropped(DropReason::NoReceive));
            return;
        };
        let byte_len = GRH_LEN + payload.len();
        if byte_len as u64 > next.capacity {
            shared.counters.dropped_unserved += 1;
            let refusal = Refusal::TooLong {
                message: byte_len as u64,
                receive: next.capacity,
            };
            self.note_once(shared, bth.psn.value(), Cause::Refused(refusal));
            return;
        }
        self.receives.begin(shared);
        let Some((_, sges)) = self.receives.current(shared) else {
            return;
        };
        let (memory, pd) = (&shared.memory, self.receives.pd(self.id.pd));
        let scattered = memory
            .scatter(pd, sges, 0, grh)
            .and_then(|()| memory.scatter(pd, sges, GRH_LEN as u64, payload));
        if scattered.is_err() {
            // The owner's fault, not the sender's.
            self.fail_receive(shared, WcStatus::LocProtErr);
            return;
        }
        if shared.judge.sits()
            && let Some(status) = shared.judge.receive(self.id.qpn.value())
        {
            self.fail_receive(shared, status);
            return;
        }
        shared.counters.rdma_recvs += 1;
        let kind = packet_kind(grh);
        self.complete_receive_at(shared, packet, WcOpcode::Recv, byte_len as u32, kind);
    }
}

/// The flag that says which kind of packet a datagram came in (Annex A17, A17.4.5.1), in the place where cards tell it:
/// the service level, which Ethernet has no use for. Programs find the sender's address by it.
fn packet_kind(grh: &[u8; GRH_LEN]) -> u8 {
    const WITH_UDP: u8 = 1 << 3;
    const IPV6: u8 = 1;
    const IPV4: u8 = 2;
    WITH_UDP | if grh[0] >> 4 == 6 { IPV6 } else { IPV4 }
}
