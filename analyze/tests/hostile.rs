//! Whatever a capture holds, reading it ends with a report and a picture.

use crate::harness;
use crate::support::*;
use proptest::prelude::*;
use roce_analyze::ladder::{Builder, page};
use roce_analyze::{Ending, Options};
use roce_wire::pcap::{Direction, LinkType};
use roce_wire::{Aeth, Msn, Opcode, Psn, RKey, Reth, Syndrome};

/// A packet that is well-formed and makes no sense in any order.
fn nonsense() -> impl Strategy<Value = Line> {
    let psn = prop_oneof![
        4 => 0_u32..16,
        2 => 0xff_fff0_u32..0x100_0000,
        1 => any::<u32>().prop_map(|psn| psn & 0xff_ffff),
    ];
    let opcode = prop_oneof![4 => 0_u8..0x20, 1 => any::<u8>()];
    let dma_length = prop_oneof![3 => 0_u32..2048, 1 => any::<u32>()];
    let payload = prop_oneof![3 => Just(256_usize), 1 => 0_usize..300];
    let numbers = (any::<u64>(), psn, opcode, any::<u8>(), dma_length, payload);
    let flags = (any::<bool>(), 0_u8..3, 0_u8..6, any::<bool>());
    (numbers, flags).prop_map(|((time, psn, opcode, syndrome, dma_length, len), flags)| {
        let (ask, direction, spoil, is_answer) = flags;
        let way = if is_answer {
            (RESPONDER, REQUESTER, REQUESTER_QP)
        } else {
            (REQUESTER, RESPONDER, RESPONDER_QP)
        };
        let line = packet(
            time % 10_000_000,
            way,
            Opcode::new(opcode),
            psn,
            &vec![1; len],
            |headers| {
                headers.bth.ack_request = ask;
                headers.bth.psn = Psn::new(psn);
                headers.reth = headers.reth.map(|_| Reth {
                    va: time,
                    rkey: RKey(1),
                    dma_length,
                });
                headers.aeth = headers.aeth.map(|_| Aeth {
                    syndrome: Syndrome::new(syndrome),
                    msn: Msn::new(psn),
                });
            },
        );
        let mut line = if spoil == 0 { line.spoilt() } else { line };
        line.direction = [None, Some(Direction::Inbound), Some(Direction::Outbound)][usize::from(direction)];
        line
    })
}

fn read_all(lines: &[Line], link_type: LinkType) -> String {
    let records: Vec<_> = lines
        .iter()
        .map(|line| roce_wire::pcap::Record {
            link_type,
            ..line.record()
        })
        .collect();
    let mut survey = roce_analyze::Survey::new(Options::default());
    records.iter().for_each(|record| survey.record(record));
    let mut analysis = survey.analysis();
    records.iter().for_each(|record| analysis.record(record));
    let report = analysis.finish(Ending::default());
    let mut builder = Builder::new(Options::default(), 1..=u64::MAX).marking(&report);
    records.iter().for_each(|record| builder.record(record));
    let ladders = builder.finish();
    format!("{report}{ladders}{}", page("x", &ladders))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn packets_in_any_order_are_judged_and_drawn(lines in prop::collection::vec(nonsense(), 0..200)) {
        let text = read_all(&lines, LinkType::RawIp);
        prop_assert!(text.contains(" frames: "));
    }

    #[test]
    fn any_bytes_on_any_link_are_read(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), any::<u32>()), 0..20),
        link in prop_oneof![Just(1_u16), Just(101), Just(113), Just(276), any::<u16>()],
    ) {
        for (data, _) in &frames {
            let line = Line { at_us: 0, data: data.clone(), cut: usize::MAX, direction: None, comment: None };
            read_all(&[line], LinkType::new(link));
        }
    }

    #[test]
    fn a_packet_cut_anywhere_is_read(line in nonsense(), cut in 0_usize..400) {
        read_all(&[line.cut_to(cut)], LinkType::RawIp);
    }

    #[test]
    fn any_file_is_read_as_the_fuzzer_has_it(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        harness::run(&bytes);
    }
}

#[test]
fn what_the_fuzzer_begins_with_is_read() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus/capture");
    let mut files = 0;
    for entry in std::fs::read_dir(corpus).unwrap() {
        harness::run(&std::fs::read(entry.unwrap().path()).unwrap());
        files += 1;
    }
    assert!(files >= 5);
}
