//! One row an opcode. Sources of the rows: IBA volume 1, chapter 9 (opcodes, headers, C9-92 payload sizes),
//! annex A14 (XRC: requests carry an XRCETH, responses do not), annex A17 (RoCEv2: CNP), annex A19 (ATOMIC
//! WRITE, FLUSH; over XRC by analogy: an XRCETH in front). RD has no rows: nothing here speaks it.

use super::{HeaderSet, Opcode, OpcodeInfo, Operation, PayloadRule, Position, Transport};

/// Declares the opcodes: a const for each, and its row in the table.
macro_rules! opcodes {
    ($($(#[$doc:meta])* $const:ident = $value:literal: $transport:ident $name:literal
        $operation:ident $position:ident [$($header:ident)*] $payload:ident$(($bytes:literal))?;)*) => {
        impl Opcode {
            $($(#[$doc])* pub const $const: Self = Self($value);)*
        }

        pub(super) static TABLE: [Option<OpcodeInfo>; 256] = {
            let mut table = [None; 256];
            $(table[$value] = Some(row($name, Transport::$transport, Operation::$operation, Position::$position,
                HeaderSet { $($header: true,)* ..HeaderSet::NONE },
                PayloadRule::$payload$(($bytes))?));)*
            table
        };
    };
}

const fn row(
    name: &'static str,
    transport: Transport,
    operation: Operation,
    position: Position,
    headers: HeaderSet,
    payload: PayloadRule,
) -> OpcodeInfo {
    let consumes_receive = match operation {
        Operation::Send => position.starts_message(),
        Operation::Write => headers.immediate,
        Operation::ReadRequest
        | Operation::ReadResponse
        | Operation::Acknowledge
        | Operation::AtomicAcknowledge
        | Operation::CompareSwap
        | Operation::FetchAdd
        | Operation::AtomicWrite
        | Operation::Flush
        | Operation::CongestionNotification => false,
    };
    let headers_len = crate::BTH_LEN + headers.len_bytes();
    OpcodeInfo {
        name,
        transport,
        operation,
        position,
        headers,
        headers_len,
        payload,
        consumes_receive,
    }
}

opcodes! {
    // --- RC ---
    /// RC SEND, first packet.
    RC_SEND_FIRST = 0x00: Rc "SEND_FIRST" Send First [] FullMtu;
    /// RC SEND, middle packet.
    RC_SEND_MIDDLE = 0x01: Rc "SEND_MIDDLE" Send Middle [] FullMtu;
    /// RC SEND, last packet.
    RC_SEND_LAST = 0x02: Rc "SEND_LAST" Send Last [] OneToMtu;
    /// RC SEND with immediate, last packet.
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03: Rc "SEND_LAST_WITH_IMMEDIATE" Send Last [immediate] OneToMtu;
    /// RC SEND in one packet.
    RC_SEND_ONLY = 0x04: Rc "SEND_ONLY" Send Only [] UpToMtu;
    /// RC SEND with immediate in one packet.
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05: Rc "SEND_ONLY_WITH_IMMEDIATE" Send Only [immediate] UpToMtu;
    /// RC RDMA WRITE, first packet.
    RC_WRITE_FIRST = 0x06: Rc "WRITE_FIRST" Write First [reth] FullMtu;
    /// RC RDMA WRITE, middle packet.
    RC_WRITE_MIDDLE = 0x07: Rc "WRITE_MIDDLE" Write Middle [] FullMtu;
    /// RC RDMA WRITE, last packet.
    RC_WRITE_LAST = 0x08: Rc "WRITE_LAST" Write Last [] OneToMtu;
    /// RC RDMA WRITE with immediate, last packet.
    RC_WRITE_LAST_WITH_IMMEDIATE = 0x09: Rc "WRITE_LAST_WITH_IMMEDIATE" Write Last [immediate] OneToMtu;
    /// RC RDMA WRITE in one packet.
    RC_WRITE_ONLY = 0x0a: Rc "WRITE_ONLY" Write Only [reth] UpToMtu;
    /// RC RDMA WRITE with immediate in one packet.
    RC_WRITE_ONLY_WITH_IMMEDIATE = 0x0b: Rc "WRITE_ONLY_WITH_IMMEDIATE" Write Only [reth immediate] UpToMtu;
    /// RC RDMA READ request.
    RC_READ_REQUEST = 0x0c: Rc "READ_REQUEST" ReadRequest Only [reth] Empty;
    /// RC RDMA READ response, first packet.
    RC_READ_RESPONSE_FIRST = 0x0d: Rc "READ_RESPONSE_FIRST" ReadResponse First [aeth] FullMtu;
    /// RC RDMA READ response, middle packet (no AETH).
    RC_READ_RESPONSE_MIDDLE = 0x0e: Rc "READ_RESPONSE_MIDDLE" ReadResponse Middle [] FullMtu;
    /// RC RDMA READ response, last packet.
    RC_READ_RESPONSE_LAST = 0x0f: Rc "READ_RESPONSE_LAST" ReadResponse Last [aeth] OneToMtu;
    /// RC RDMA READ response in one packet.
    RC_READ_RESPONSE_ONLY = 0x10: Rc "READ_RESPONSE_ONLY" ReadResponse Only [aeth] UpToMtu;
    /// RC ACK or NAK.
    RC_ACKNOWLEDGE = 0x11: Rc "ACKNOWLEDGE" Acknowledge Only [aeth] Empty;
    /// RC response to an atomic.
    RC_ATOMIC_ACKNOWLEDGE = 0x12: Rc "ATOMIC_ACKNOWLEDGE" AtomicAcknowledge Only [aeth atomic_ack] Empty;
    /// RC compare-and-swap request.
    RC_COMPARE_SWAP = 0x13: Rc "COMPARE_SWAP" CompareSwap Only [atomic_eth] Empty;
    /// RC fetch-and-add request.
    RC_FETCH_ADD = 0x14: Rc "FETCH_ADD" FetchAdd Only [atomic_eth] Empty;
    /// RC SEND with invalidate, last packet.
    RC_SEND_LAST_WITH_INVALIDATE = 0x16: Rc "SEND_LAST_WITH_INVALIDATE" Send Last [invalidate] OneToMtu;
    /// RC SEND with invalidate in one packet.
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17: Rc "SEND_ONLY_WITH_INVALIDATE" Send Only [invalidate] UpToMtu;
    /// RC FLUSH request.
    RC_FLUSH = 0x1c: Rc "FLUSH" Flush Only [feth reth] Empty;
    /// RC ATOMIC WRITE request.
    RC_ATOMIC_WRITE = 0x1d: Rc "ATOMIC_WRITE" AtomicWrite Only [reth] Exactly(8);
    // --- UC ---
    /// UC SEND, first packet.
    UC_SEND_FIRST = 0x20: Uc "SEND_FIRST" Send First [] FullMtu;
    /// UC SEND, middle packet.
    UC_SEND_MIDDLE = 0x21: Uc "SEND_MIDDLE" Send Middle [] FullMtu;
    /// UC SEND, last packet.
    UC_SEND_LAST = 0x22: Uc "SEND_LAST" Send Last [] OneToMtu;
    /// UC SEND with immediate, last packet.
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23: Uc "SEND_LAST_WITH_IMMEDIATE" Send Last [immediate] OneToMtu;
    /// UC SEND in one packet.
    UC_SEND_ONLY = 0x24: Uc "SEND_ONLY" Send Only [] UpToMtu;
    /// UC SEND with immediate in one packet.
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25: Uc "SEND_ONLY_WITH_IMMEDIATE" Send Only [immediate] UpToMtu;
    /// UC RDMA WRITE, first packet.
    UC_WRITE_FIRST = 0x26: Uc "WRITE_FIRST" Write First [reth] FullMtu;
    /// UC RDMA WRITE, middle packet.
    UC_WRITE_MIDDLE = 0x27: Uc "WRITE_MIDDLE" Write Middle [] FullMtu;
    /// UC RDMA WRITE, last packet.
    UC_WRITE_LAST = 0x28: Uc "WRITE_LAST" Write Last [] OneToMtu;
    /// UC RDMA WRITE with immediate, last packet.
    UC_WRITE_LAST_WITH_IMMEDIATE = 0x29: Uc "WRITE_LAST_WITH_IMMEDIATE" Write Last [immediate] OneToMtu;
    /// UC RDMA WRITE in one packet.
    UC_WRITE_ONLY = 0x2a: Uc "WRITE_ONLY" Write Only [reth] UpToMtu;
    /// UC RDMA WRITE with immediate in one packet.
    UC_WRITE_ONLY_WITH_IMMEDIATE = 0x2b: Uc "WRITE_ONLY_WITH_IMMEDIATE" Write Only [reth immediate] UpToMtu;
    // --- UD ---
    /// UD SEND in one packet.
    UD_SEND_ONLY = 0x64: Ud "SEND_ONLY" Send Only [deth] UpToMtu;
    /// UD SEND with immediate in one packet.
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65: Ud "SEND_ONLY_WITH_IMMEDIATE" Send Only [deth immediate] UpToMtu;
    // --- XRC ---
    /// XRC SEND, first packet.
    XRC_SEND_FIRST = 0xa0: Xrc "SEND_FIRST" Send First [xrceth] FullMtu;
    /// XRC SEND, middle packet.
    XRC_SEND_MIDDLE = 0xa1: Xrc "SEND_MIDDLE" Send Middle [xrceth] FullMtu;
    /// XRC SEND, last packet.
    XRC_SEND_LAST = 0xa2: Xrc "SEND_LAST" Send Last [xrceth] OneToMtu;
    /// XRC SEND with immediate, last packet.
    XRC_SEND_LAST_WITH_IMMEDIATE = 0xa3: Xrc "SEND_LAST_WITH_IMMEDIATE" Send Last [xrceth immediate] OneToMtu;
    /// XRC SEND in one packet.
    XRC_SEND_ONLY = 0xa4: Xrc "SEND_ONLY" Send Only [xrceth] UpToMtu;
    /// XRC SEND with immediate in one packet.
    XRC_SEND_ONLY_WITH_IMMEDIATE = 0xa5: Xrc "SEND_ONLY_WITH_IMMEDIATE" Send Only [xrceth immediate] UpToMtu;
    /// XRC RDMA WRITE, first packet.
    XRC_WRITE_FIRST = 0xa6: Xrc "WRITE_FIRST" Write First [xrceth reth] FullMtu;
    /// XRC RDMA WRITE, middle packet.
    XRC_WRITE_MIDDLE = 0xa7: Xrc "WRITE_MIDDLE" Write Middle [xrceth] FullMtu;
    /// XRC RDMA WRITE, last packet.
    XRC_WRITE_LAST = 0xa8: Xrc "WRITE_LAST" Write Last [xrceth] OneToMtu;
    /// XRC RDMA WRITE with immediate, last packet.
    XRC_WRITE_LAST_WITH_IMMEDIATE = 0xa9: Xrc "WRITE_LAST_WITH_IMMEDIATE" Write Last [xrceth immediate] OneToMtu;
    /// XRC RDMA WRITE in one packet.
    XRC_WRITE_ONLY = 0xaa: Xrc "WRITE_ONLY" Write Only [xrceth reth] UpToMtu;
    /// XRC RDMA WRITE with immediate in one packet.
    XRC_WRITE_ONLY_WITH_IMMEDIATE = 0xab: Xrc "WRITE_ONLY_WITH_IMMEDIATE" Write Only [xrceth reth immediate] UpToMtu;
    /// XRC RDMA READ request.
    XRC_READ_REQUEST = 0xac: Xrc "READ_REQUEST" ReadRequest Only [xrceth reth] Empty;
    /// XRC RDMA READ response, first packet.
    XRC_READ_RESPONSE_FIRST = 0xad: Xrc "READ_RESPONSE_FIRST" ReadResponse First [aeth] FullMtu;
    /// XRC RDMA READ response, middle packet (no AETH).
    XRC_READ_RESPONSE_MIDDLE = 0xae: Xrc "READ_RESPONSE_MIDDLE" ReadResponse Middle [] FullMtu;
    /// XRC RDMA READ response, last packet.
    XRC_READ_RESPONSE_LAST = 0xaf: Xrc "READ_RESPONSE_LAST" ReadResponse Last [aeth] OneToMtu;
    /// XRC RDMA READ response in one packet.
    XRC_READ_RESPONSE_ONLY = 0xb0: Xrc "READ_RESPONSE_ONLY" ReadResponse Only [aeth] UpToMtu;
    /// XRC ACK or NAK.
    XRC_ACKNOWLEDGE = 0xb1: Xrc "ACKNOWLEDGE" Acknowledge Only [aeth] Empty;
    /// XRC response to an atomic.
    XRC_ATOMIC_ACKNOWLEDGE = 0xb2: Xrc "ATOMIC_ACKNOWLEDGE" AtomicAcknowledge Only [aeth atomic_ack] Empty;
    /// XRC compare-and-swap request.
    XRC_COMPARE_SWAP = 0xb3: Xrc "COMPARE_SWAP" CompareSwap Only [xrceth atomic_eth] Empty;
    /// XRC fetch-and-add request.
    XRC_FETCH_ADD = 0xb4: Xrc "FETCH_ADD" FetchAdd Only [xrceth atomic_eth] Empty;
    /// XRC SEND with invalidate, last packet.
    XRC_SEND_LAST_WITH_INVALIDATE = 0xb6: Xrc "SEND_LAST_WITH_INVALIDATE" Send Last [xrceth invalidate] OneToMtu;
    /// XRC SEND with invalidate in one packet.
    XRC_SEND_ONLY_WITH_INVALIDATE = 0xb7: Xrc "SEND_ONLY_WITH_INVALIDATE" Send Only [xrceth invalidate] UpToMtu;
    /// XRC FLUSH request.
    XRC_FLUSH = 0xbc: Xrc "FLUSH" Flush Only [xrceth feth reth] Empty;
    /// XRC ATOMIC WRITE request.
    XRC_ATOMIC_WRITE = 0xbd: Xrc "ATOMIC_WRITE" AtomicWrite Only [xrceth reth] Exactly(8);
    // --- RoCEv2 ---
    /// Congestion notification packet: its payload is 16 reserved bytes.
    CNP = 0x81: Cnp "CNP" CongestionNotification Only [] Exactly(16);
}
