//! What the engine counts.
#![forbid(unsafe_code)]

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// Counters of an engine, since it was created. Those above `icrc_errors` carry the names under which the
        /// kernel's soft RDMA driver shows the same thing.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// All of them, with their names.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                [$((stringify!($name), self.$name)),*].into_iter()
            }
        }
    };
}

counters! {
    /// Packets sent, of all kinds.
    sent_pkts,
    /// Packets received that passed all checks of form, ICRC and destination.
    rcvd_pkts,
    /// Requests that repeat a PSN already served.
    duplicate_request,
    /// Requests whose PSN lies ahead of the expected one.
    out_of_seq_request,
    /// RNR NAKs received.
    rcvd_rnr_err,
    /// RNR NAKs sent.
    send_rnr_err,
    /// NAKs for a PSN sequence error received.
    rcvd_seq_err,
    /// Acknowledgements that waited for data to travel with.
    ack_deferred,
    /// Requests given up after the last retry.
    retry_exceeded_err,
    /// Requests given up after the last RNR retry.
    retry_rnr_exceeded_err,
    /// Times that the completer started a retransmission.
    completer_retry_err,
    /// Packets that could not be built because local memory could not be read.
    send_err,
    /// Times that the port went down.
    link_downed,
    /// SENDs and WRITEs completed as requester.
    rdma_sends,
    /// SENDs and WRITEs completed as responder.
    rdma_recvs,
    /// Datagrams whose ICRC was wrong.
    icrc_errors,
    /// Bytes of UDP payload sent.
    sent_bytes,
    /// Bytes of UDP payload received in packets that passed.
    rcvd_bytes,
    /// Bytes of UDP payload sent again.
    retransmitted_bytes,
    /// Recoveries that a timeout began.
    timeouts,
    /// Times that a queue pair sent its oldest packet again before a timeout, because the peer's process answered others
    /// and not it.
    probes,
    /// Datagrams that are no packet: too short, unknown header version, bad lengths.
    dropped_malformed,
    /// Packets to a queue pair that does not exist.
    dropped_unknown_qp,
    /// Packets whose transport is not the queue pair's.
    dropped_wrong_transport,
    /// Packets that the queue pair's state does not admit.
    dropped_wrong_state,
    /// Packets whose P_Key does not match.
    dropped_bad_pkey,
    /// Packets from another address than the connected peer's.
    dropped_wrong_peer,
    /// Packets to an address that is not in the GID table.
    dropped_wrong_address,
    /// Acknowledgements that match nothing outstanding.
    dropped_ghost_ack,
    /// Requests dropped while the responder waits for the expected PSN after a NAK.
    dropped_after_nak,
    /// Datagrams with an opcode that no queue pair here serves.
    dropped_unsupported,
    /// Packets of unreliable services that found no receive request.
    dropped_no_receive,
    /// Packets of unreliable services that break a rule, belong to a message that lost a packet, or want what they may
    /// not have: reliable services answer such with a NAK.
    dropped_unserved,
    /// Datagrams with another Q_Key than the queue pair's.
    dropped_bad_qkey,
    /// Packets that passed and whose IP header says "congestion experienced". This one and the next two are called as on
    /// NVIDIA's cards.
    np_ecn_marked_roce_packets,
    /// Congestion notifications sent.
    np_cnp_sent,
    /// Congestion notifications received for a connection here, which sends more slowly for it.
    rp_cnp_handled,
}
