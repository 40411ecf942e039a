//! The bodies of the messages: what follows the common header (IBA tables 106 to 120).

use super::codes::{AprStatus, RejectReason, RejectedMessage, ServiceId, SidrStatus, TransportService};
use crate::fields::layout;
use crate::{Psn, Qpn};

/// Bytes of a message's body.
pub const MESSAGE_LEN: usize = 232;

layout! {
    /// A path, as a request describes it from the requester's side.
    PathInfo[44] {
        /// LID of the requester; 0xffff on RoCE beyond one hop.
        local_lid: u16 = 0:0, 16;
        /// LID of the responder.
        remote_lid: u16 = 2:0, 16;
        /// IPv6 flow label.
        flow_label: u32 = 36:0, 20;
        /// Packet rate.
        rate: u8 = 39:2, 6;
        /// IPv4 TOS or IPv6 traffic class.
        traffic_class: u8 = 40:0, 8;
        /// TTL or hop limit.
        hop_limit: u8 = 41:0, 8;
        /// Service level.
        service_level: u8 = 42:0, 4;
        /// No router lies between.
        subnet_local: bool = 42:4, 1;
        /// Local ACK timeout: 4.096 µs · 2^code.
        ack_timeout: u8 = 43:0, 5;
        @bytes {
            /// GID of the requester.
            local_gid: [16] = 4;
            /// GID of the responder.
            remote_gid: [16] = 20;
        }
    }
    /// Request for communication.
    Req[232] {
        /// The requester's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// What is asked for.
        service_id: ServiceId = 8:0, 64;
        /// The requester's channel adapter.
        local_ca_guid: u64 = 16:0, 64;
        /// Of datagrams.
        local_qkey: u32 = 28:0, 32;
        /// The requester's queue pair.
        local_qpn: Qpn = 32:0, 24;
        /// READs and atomics that the requester answers at a time.
        responder_resources: u8 = 35:0, 8;
        /// READs and atomics that the requester has outstanding.
        initiator_depth: u8 = 39:0, 8;
        /// How long the responder's side may take to answer: 4.096 µs · 2^code.
        remote_response_timeout: u8 = 43:0, 5;
        /// Service of the queue pair.
        transport: TransportService = 43:5, 2;
        /// End-to-end credits.
        flow_control: bool = 43:7, 1;
        /// Where the **responder** begins to send: the requester's own receive PSN.
        starting_psn: Psn = 44:0, 24;
        /// How long the requester's side may take to answer.
        local_response_timeout: u8 = 47:0, 5;
        /// Retransmissions, 0 to 7.
        retry_count: u8 = 47:5, 3;
        /// Partition.
        pkey: u16 = 48:0, 16;
        /// Path MTU code: 1 is 256, 5 is 4096.
        path_mtu: u8 = 50:0, 4;
        /// RNR retries, 0 to 7; 7 is without end.
        rnr_retry_count: u8 = 50:5, 3;
        /// How often each side sends a message of the handshake again.
        max_cm_retries: u8 = 51:0, 4;
        /// The requester receives from a shared receive queue.
        srq: bool = 51:4, 1;
        /// 1 for XRC, with [`TransportService::EXTENDED`].
        extended_transport: u8 = 51:5, 3;
        @bytes {
            /// For the program.
            private_data: [92] = 140;
        }
        @parts {
            /// The path.
            primary: PathInfo = 52;
            /// Another one; all zero without.
            alternate: PathInfo = 96;
        }
    }
    /// Message receipt acknowledgement.
    Mra[232] {
        /// The sender's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// The receiver's.
        remote_comm_id: u32 = 4:0, 32;
        /// Of which message: 0 a REQ, 1 a REP, 2 a LAP.
        of_message: u8 = 8:0, 2;
        /// How long the answer may take: 4.096 µs · 2^code.
        service_timeout: u8 = 9:0, 5;
        @bytes {
            /// For the program.
            private_data: [222] = 10;
        }
    }
    /// Reject.
    Rej[232] {
        /// The sender's number for the connection; 0 when it has none.
        local_comm_id: u32 = 0:0, 32;
        /// The receiver's; 0 when it is not known.
        remote_comm_id: u32 = 4:0, 32;
        /// Which message is rejected.
        of_message: RejectedMessage = 8:0, 2;
        /// Bytes of the additional information.
        info_length: u8 = 9:0, 7;
        /// Why.
        reason: RejectReason = 10:0, 16;
        @bytes {
            /// More about the reason.
            info: [72] = 12;
            /// For the program.
            private_data: [148] = 84;
        }
    }
    /// Reply to a request.
    Rep[232] {
        /// The responder's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// The requester's.
        remote_comm_id: u32 = 4:0, 32;
        /// Of datagrams.
        local_qkey: u32 = 8:0, 32;
        /// The responder's queue pair.
        local_qpn: Qpn = 12:0, 24;
        /// Where the **requester** begins to send: the responder's own receive PSN.
        starting_psn: Psn = 20:0, 24;
        /// READs and atomics that the responder answers at a time.
        responder_resources: u8 = 24:0, 8;
        /// READs and atomics that the responder has outstanding.
        initiator_depth: u8 = 25:0, 8;
        /// How long the responder's side takes to acknowledge: 4.096 µs · 2^code.
        target_ack_delay: u8 = 26:0, 5;
        /// About the alternate path.
        failover: u8 = 26:5, 2;
        /// End-to-end credits.
        flow_control: bool = 26:7, 1;
        /// RNR retries, 0 to 7.
        rnr_retry_count: u8 = 27:0, 3;
        /// The responder receives from a shared receive queue.
        srq: bool = 27:3, 1;
        /// The responder's channel adapter.
        local_ca_guid: u64 = 28:0, 64;
        @bytes {
            /// For the program.
            private_data: [196] = 36;
        }
    }
    /// Ready to use.
    Rtu[232] {
        /// The sender's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// The receiver's.
        remote_comm_id: u32 = 4:0, 32;
        @bytes {
            /// For the program.
            private_data: [224] = 8;
        }
    }
    /// Disconnect request.
    Dreq[232] {
        /// The sender's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// The receiver's.
        remote_comm_id: u32 = 4:0, 32;
        /// The receiver's queue pair.
        remote_qpn: Qpn = 8:0, 24;
        @bytes {
            /// For the program.
            private_data: [220] = 12;
        }
    }
    /// Disconnect reply.
    Drep[232] {
        /// The sender's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// The receiver's.
        remote_comm_id: u32 = 4:0, 32;
        @bytes {
            /// For the program.
            private_data: [224] = 8;
        }
    }
    /// Load alternate path.
    Lap[232] {
        /// The sender's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// The receiver's.
        remote_comm_id: u32 = 4:0, 32;
        /// The receiver's queue pair.
        remote_qpn: Qpn = 12:0, 24;
        /// How long the receiver may take to answer: 4.096 µs · 2^code.
        response_timeout: u8 = 15:0, 5;
        /// Of the alternate path, as all that follows: LID of the sender.
        local_lid: u16 = 20:0, 16;
        /// LID of the receiver.
        remote_lid: u16 = 22:0, 16;
        /// IPv6 flow label.
        flow_label: u32 = 56:0, 20;
        /// IPv4 TOS or IPv6 traffic class.
        traffic_class: u8 = 59:0, 8;
        /// TTL or hop limit.
        hop_limit: u8 = 60:0, 8;
        /// Packet rate.
        rate: u8 = 61:2, 6;
        /// Service level.
        service_level: u8 = 62:0, 4;
        /// No router lies between.
        subnet_local: bool = 62:4, 1;
        /// Local ACK timeout: 4.096 µs · 2^code.
        ack_timeout: u8 = 63:0, 5;
        @bytes {
            /// GID of the sender.
            local_gid: [16] = 24;
            /// GID of the receiver.
            remote_gid: [16] = 40;
            /// For the program.
            private_data: [168] = 64;
        }
    }
    /// Alternate path response.
    Apr[232] {
        /// The sender's number for the connection.
        local_comm_id: u32 = 0:0, 32;
        /// The receiver's.
        remote_comm_id: u32 = 4:0, 32;
        /// Bytes of the additional information.
        info_length: u8 = 8:0, 8;
        /// The answer.
        status: AprStatus = 9:0, 8;
        @bytes {
            /// More about it.
            info: [72] = 12;
            /// For the program.
            private_data: [148] = 84;
        }
    }
    /// Service ID resolution request.
    SidrReq[232] {
        /// The requester's number.
        request_id: u32 = 0:0, 32;
        /// Partition.
        pkey: u16 = 4:0, 16;
        /// What is asked for.
        service_id: ServiceId = 8:0, 64;
        @bytes {
            /// For the program.
            private_data: [216] = 16;
        }
    }
    /// Service ID resolution reply.
    SidrRep[232] {
        /// The requester's number.
        request_id: u32 = 0:0, 32;
        /// The answer.
        status: SidrStatus = 4:0, 8;
        /// Bytes of the additional information.
        info_length: u8 = 5:0, 8;
        /// The queue pair that serves.
        qpn: Qpn = 8:0, 24;
        /// What was asked for.
        service_id: ServiceId = 12:0, 64;
        /// The Q_Key for that queue pair.
        qkey: u32 = 20:0, 32;
        @bytes {
            /// More about the answer.
            info: [72] = 24;
            /// For the program.
            private_data: [136] = 96;
        }
    }
}
