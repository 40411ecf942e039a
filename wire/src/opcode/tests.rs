use super::*;

/// Opcode, name, operation, position, headers, payload, receive taken, receive completed: written down
/// apart from the table, one line a row.
const ROWS: &str = "\
00 RC_SEND_FIRST Send First - 12 FullMtu takes - request
01 RC_SEND_MIDDLE Send Middle - 12 FullMtu - - request
02 RC_SEND_LAST Send Last - 12 OneToMtu - completes request
03 RC_SEND_LAST_WITH_IMMEDIATE Send Last ImmDt 16 OneToMtu - completes request
04 RC_SEND_ONLY Send Only - 12 UpToMtu takes completes request
05 RC_SEND_ONLY_WITH_IMMEDIATE Send Only ImmDt 16 UpToMtu takes completes request
06 RC_WRITE_FIRST Write First RETH 28 FullMtu - - request
07 RC_WRITE_MIDDLE Write Middle - 12 FullMtu - - request
08 RC_WRITE_LAST Write Last - 12 OneToMtu - - request
09 RC_WRITE_LAST_WITH_IMMEDIATE Write Last ImmDt 16 OneToMtu takes completes request
0a RC_WRITE_ONLY Write Only RETH 28 UpToMtu - - request
0b RC_WRITE_ONLY_WITH_IMMEDIATE Write Only RETH+ImmDt 32 UpToMtu takes completes request
0c RC_READ_REQUEST ReadRequest Only RETH 28 Empty - - request
0d RC_READ_RESPONSE_FIRST ReadResponse First AETH 16 FullMtu - - response
0e RC_READ_RESPONSE_MIDDLE ReadResponse Middle - 12 FullMtu - - response
0f RC_READ_RESPONSE_LAST ReadResponse Last AETH 16 OneToMtu - - response
10 RC_READ_RESPONSE_ONLY ReadResponse Only AETH 16 UpToMtu - - response
11 RC_ACKNOWLEDGE Acknowledge Only AETH 16 Empty - - response
12 RC_ATOMIC_ACKNOWLEDGE AtomicAcknowledge Only AETH+AtomicAckETH 24 Empty - - response
13 RC_COMPARE_SWAP CompareSwap Only AtomicETH 40 Empty - - request
14 RC_FETCH_ADD FetchAdd Only AtomicETH 40 Empty - - request
16 RC_SEND_LAST_WITH_INVALIDATE Send Last IETH 16 OneToMtu - completes request
17 RC_SEND_ONLY_WITH_INVALIDATE Send Only IETH 16 UpToMtu takes completes request
1c RC_FLUSH Flush Only FETH+RETH 32 Empty - - request
1d RC_ATOMIC_WRITE AtomicWrite Only RETH 28 Exactly(8) - - request
20 UC_SEND_FIRST Send First - 12 FullMtu takes - request
21 UC_SEND_MIDDLE Send Middle - 12 FullMtu - - request
22 UC_SEND_LAST Send Last - 12 OneToMtu - completes request
23 UC_SEND_LAST_WITH_IMMEDIATE Send Last ImmDt 16 OneToMtu - completes request
24 UC_SEND_ONLY Send Only - 12 UpToMtu takes completes request
25 UC_SEND_ONLY_WITH_IMMEDIATE Send Only ImmDt 16 UpToMtu takes completes request
26 UC_WRITE_FIRST Write First RETH 28 FullMtu - - request
27 UC_WRITE_MIDDLE Write Middle - 12 FullMtu - - request
28 UC_WRITE_LAST Write Last - 12 OneToMtu - - request
29 UC_WRITE_LAST_WITH_IMMEDIATE Write Last ImmDt 16 OneToMtu takes completes request
2a UC_WRITE_ONLY Write Only RETH 28 UpToMtu - - request
2b UC_WRITE_ONLY_WITH_IMMEDIATE Write Only RETH+ImmDt 32 UpToMtu takes completes request
64 UD_SEND_ONLY Send Only DETH 20 UpToMtu takes completes request
65 UD_SEND_ONLY_WITH_IMMEDIATE Send Only DETH+ImmDt 24 UpToMtu takes completes request
a0 XRC_SEND_FIRST Send First XRCETH 16 FullMtu takes - request
a1 XRC_SEND_MIDDLE Send Middle XRCETH 16 FullMtu - - request
a2 XRC_SEND_LAST Send Last XRCETH 16 OneToMtu - completes request
a3 XRC_SEND_LAST_WITH_IMMEDIATE Send Last XRCETH+ImmDt 20 OneToMtu - completes request
a4 XRC_SEND_ONLY Send Only XRCETH 16 UpToMtu takes completes request
a5 XRC_SEND_ONLY_WITH_IMMEDIATE Send Only XRCETH+ImmDt 20 UpToMtu takes completes request
a6 XRC_WRITE_FIRST Write First XRCETH+RETH 32 FullMtu - - request
a7 XRC_WRITE_MIDDLE Write Middle XRCETH 16 FullMtu - - request
a8 XRC_WRITE_LAST Write Last XRCETH 16 OneToMtu - - request
a9 XRC_WRITE_LAST_WITH_IMMEDIATE Write Last XRCETH+ImmDt 20 OneToMtu takes completes request
aa XRC_WRITE_ONLY Write Only XRCETH+RETH 32 UpToMtu - - request
ab XRC_WRITE_ONLY_WITH_IMMEDIATE Write Only XRCETH+RETH+ImmDt 36 UpToMtu takes completes request
ac XRC_READ_REQUEST ReadRequest Only XRCETH+RETH 32 Empty - - request
ad XRC_READ_RESPONSE_FIRST ReadResponse First AETH 16 FullMtu - - response
ae XRC_READ_RESPONSE_MIDDLE ReadResponse Middle - 12 FullMtu - - response
af XRC_READ_RESPONSE_LAST ReadResponse Last AETH 16 OneToMtu - - response
b0 XRC_READ_RESPONSE_ONLY ReadResponse Only AETH 16 UpToMtu - - response
b1 XRC_ACKNOWLEDGE Acknowledge Only AETH 16 Empty - - response
b2 XRC_ATOMIC_ACKNOWLEDGE AtomicAcknowledge Only AETH+AtomicAckETH 24 Empty - - response
b3 XRC_COMPARE_SWAP CompareSwap Only XRCETH+AtomicETH 44 Empty - - request
b4 XRC_FETCH_ADD FetchAdd Only XRCETH+AtomicETH 44 Empty - - request
b6 XRC_SEND_LAST_WITH_INVALIDATE Send Last XRCETH+IETH 20 OneToMtu - completes request
b7 XRC_SEND_ONLY_WITH_INVALIDATE Send Only XRCETH+IETH 20 UpToMtu takes completes request
bc XRC_FLUSH Flush Only XRCETH+FETH+RETH 36 Empty - - request
bd XRC_ATOMIC_WRITE AtomicWrite Only XRCETH+RETH 32 Exactly(8) - - request
81 CNP CongestionNotification Only - 12 Exactly(16) - - neither
";

fn describe(opcode: Opcode, info: &OpcodeInfo) -> String {
    let headers = format!("{:?}", info.headers)
        .replace(['{', '}', '"', ' '], "")
        .replace(',', "+");
    let headers = if headers.is_empty() { "-" } else { &headers };
    let direction = match (info.is_request(), info.is_response()) {
        (true, false) => "request",
        (false, true) => "response",
        (false, false) => "neither",
        (true, true) => "both",
    };
    format!(
        "{:02x} {opcode} {:?} {:?} {headers} {} {:?} {} {} {direction}",
        opcode.value(),
        info.operation,
        info.position,
        info.headers_len,
        info.payload,
        if info.consumes_receive { "takes" } else { "-" },
        if info.completes_receive() {
            "completes"
        } else {
            "-"
        },
    )
}

#[test]
fn every_row_of_the_table_is_as_written_down() {
    let mut expected: Vec<&str> = ROWS.lines().collect();
    expected.sort_unstable();
    let found: Vec<String> = (0..=255)
        .map(Opcode::new)
        .filter_map(|opcode| opcode.info().map(|info| describe(opcode, info)))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_service_of_a_row_is_the_one_in_the_opcodes_upper_bits() {
    for opcode in (0..=255).map(Opcode::new) {
        if let Some(info) = opcode.info() {
            assert_eq!(info.transport, opcode.transport(), "{opcode}");
        }
    }
}

#[test]
fn the_header_length_limit_is_the_longest_row() {
    let longest = (0..=255)
        .filter_map(|byte| Opcode::new(byte).info())
        .map(|info| info.headers_len)
        .max();
    assert_eq!(longest, Some(crate::MAX_HEADERS_LEN));
}

#[test]
fn a_reserved_opcode_has_no_row_but_a_service_and_a_name() {
    for (byte, name) in [
        (0x15, "RC_0x15"),
        (0x1f, "RC_0x1f"),
        (0x36, "UC_0x36"),
        (0xb5, "XRC_0xb5"),
    ] {
        assert_eq!(Opcode::new(byte).info(), None);
        assert_eq!(Opcode::new(byte).to_string(), name);
    }
}

#[test]
fn payload_rules_hold_at_their_edges() {
    let mtu = 1024;
    let allowed = |rule: PayloadRule| -> Vec<usize> {
        [0, 1, 8, 1023, 1024, 1025]
            .into_iter()
            .filter(|len| rule.allows(*len, mtu))
            .collect()
    };
    assert_eq!(allowed(PayloadRule::Empty), [0]);
    assert_eq!(allowed(PayloadRule::FullMtu), [1024]);
    assert_eq!(allowed(PayloadRule::OneToMtu), [1, 8, 1023, 1024]);
    assert_eq!(allowed(PayloadRule::UpToMtu), [0, 1, 8, 1023, 1024]);
    assert_eq!(allowed(PayloadRule::Exactly(8)), [8]);
}
