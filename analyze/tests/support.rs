//! Captures made by hand: a packet a line, between a requester (192.0.2.1, queue pair 0x11) and a responder (192.0.2.2,
//! queue pair 0x22).

use std::net::Ipv4Addr;

use roce_analyze::{Ending, Options, Report, Survey};
use roce_wire::frame::Frame;
use roce_wire::icrc::{self, Flow};
use roce_wire::ip::{Ip, Ipv4};
use roce_wire::pcap::{Direction, LinkType, Record};
use roce_wire::udp::Udp;
use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CreditCode, Deth, Feth, FlushPlacement, FlushSelectivity, Headers,
    Ieth, Msn, Opcode, Packet, Psn, QKey, Qpn, RKey, ROCE_V2_PORT, Reth, Srqn, Syndrome, XrcEth, pad_len,
};

pub const REQUESTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
pub const RESPONDER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
pub const REQUESTER_QP: u32 = 0x11;
pub const RESPONDER_QP: u32 = 0x22;
/// The path MTU of these captures.
pub const MTU: usize = 256;

/// A frame with its record's other fields.
#[derive(Clone, Debug)]
pub struct Line {
    pub at_us: u64,
    pub data: Vec<u8>,
    pub cut: usize,
    pub direction: Option<Direction>,
    pub comment: Option<&'static str>,
}

impl Line {
    pub fn sent(mut self) -> Self {
        self.direction = Some(Direction::Outbound);
        self
    }

    pub fn received(mut self) -> Self {
        self.direction = Some(Direction::Inbound);
        self
    }

    /// With one bit of the last payload byte, or header byte, turned.
    pub fn spoilt(mut self) -> Self {
        let at = self.data.len() - roce_wire::ICRC_LEN - 1;
        self.data[at] ^= 1;
        self
    }

    /// As it is behind a router that is congested: the header's sum is made anew, the ICRC covers neither.
    pub fn marked(mut self) -> Self {
        self.data[1] |= 3;
        self.data[10..12].fill(0);
        let words = self.data[..20]
            .chunks(2)
            .map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
        let sum: u32 = words.sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let sum = !((folded & 0xffff) + (folded >> 16)) as u16;
        self.data[10..12].copy_from_slice(&sum.to_be_bytes());
        self
    }

    pub fn cut_to(mut self, len: usize) -> Self {
        self.cut = len;
        self
    }

    pub fn record(&self) -> Record<'_> {
        Record {
            link_type: LinkType::RawIp,
            timestamp_ns: Some(self.at_us * 1000),
            original_len: self.data.len() as u32,
            data: &self.data[..self.cut.min(self.data.len())],
            direction: self.direction,
            comment: self.comment,
        }
    }
}

/// A packet; `change` sees its headers before it is sealed.
pub fn packet(
    at_us: u64,
    (src, dst, qp): (Ipv4Addr, Ipv4Addr, u32),
    opcode: Opcode,
    psn: u32,
    payload: &[u8],
    change: impl FnOnce(&mut Headers),
) -> Line {
    let mut bth = Bth::new(opcode, Qpn::new(qp).unwrap(), Psn::new(psn));
    bth.pad = pad_len(payload.len());
    let mut headers = Headers::new(bth);
    if let Some(info) = opcode.info() {
        headers.reth = info.headers.reth.then_some(Reth {
            va: 0x1000,
            rkey: RKey(7),
            dma_length: payload.len() as u32,
        });
        headers.aeth = info.headers.aeth.then_some(Aeth {
            syndrome: Syndrome::ACK,
            msn: Msn::new(0),
        });
        headers.atomic_eth = info.headers.atomic_eth.then_some(AtomicEth {
            va: 0x1000,
            rkey: RKey(7),
            swap_or_add: 1,
            compare: 0,
        });
        headers.atomic_ack = info.headers.atomic_ack.then_some(AtomicAckEth { original: 0 });
        headers.immediate = info.headers.immediate.then_some(roce_wire::ImmDt([0; 4]));
    }
    // Others as they come.
    headers.deth = Some(Deth {
        qkey: QKey(1),
        source_qp: Qpn::new(1).unwrap(),
    });
    headers.feth = Some(Feth {
        placement: FlushPlacement::GLOBAL,
        selectivity: FlushSelectivity::RANGE,
    });
    headers.invalidate = Some(Ieth(RKey(1)));
    headers.xrceth = Some(XrcEth {
        srq: Srqn::new(1).unwrap(),
    });
    change(&mut headers);
    let pad = [0; 3];
    let packet = Packet {
        headers,
        payload,
        pad: &pad[..usize::from(headers.bth.pad)],
        icrc: [0; 4],
    };
    let mut bytes = vec![0; packet.wire_len()];
    packet.emit(&mut bytes).unwrap();
    let flow = Flow {
        src: src.into(),
        dst: dst.into(),
        source_port: 0xc000,
        dest_port: ROCE_V2_PORT,
    };
    icrc::seal(&flow, 0, &mut bytes);
    let frame = Frame {
        ethernet: None,
        ip: Ip::V4(Ipv4 {
            tos: 0,
            identification: 0,
            dont_fragment: true,
            ttl: 64,
            src,
            dst,
        }),
        udp: Udp {
            source_port: 0xc000,
            dest_port: ROCE_V2_PORT,
            checksum: 0,
        },
        payload: &bytes,
        trailer: &[],
    };
    let mut data = vec![0; frame.len()];
    frame.emit(&mut data).unwrap();
    Line {
        at_us,
        data,
        cut: usize::MAX,
        direction: None,
        comment: None,
    }
}

const FORTH: (Ipv4Addr, Ipv4Addr, u32) = (REQUESTER, RESPONDER, RESPONDER_QP);
const BACK: (Ipv4Addr, Ipv4Addr, u32) = (RESPONDER, REQUESTER, REQUESTER_QP);

/// A request that asks for an acknowledgement if it ends its message.
pub fn request(at_us: u64, opcode: Opcode, psn: u32, payload: &[u8]) -> Line {
    request_with(at_us, opcode, psn, payload, |_| ())
}

pub fn request_with(
    at_us: u64,
    opcode: Opcode,
    psn: u32,
    payload: &[u8],
    change: impl FnOnce(&mut Headers),
) -> Line {
    packet(at_us, FORTH, opcode, psn, payload, |headers| {
        headers.bth.ack_request = opcode.info().is_some_and(|info| info.position.ends_message());
        change(headers);
    })
}

/// A READ request for so many bytes.
pub fn read(at_us: u64, psn: u32, va: u64, len: u32) -> Line {
    request_with(at_us, Opcode::RC_READ_REQUEST, psn, &[], |headers| {
        headers.reth = Some(Reth {
            va,
            rkey: RKey(7),
            dma_length: len,
        });
    })
}

pub fn answer(at_us: u64, opcode: Opcode, psn: u32, msn: u32, payload: &[u8]) -> Line {
    packet(at_us, BACK, opcode, psn, payload, |headers| {
        if let Some(aeth) = &mut headers.aeth {
            aeth.msn = Msn::new(msn);
        }
    })
}

pub fn ack(at_us: u64, psn: u32, msn: u32) -> Line {
    answer(at_us, Opcode::RC_ACKNOWLEDGE, psn, msn, &[])
}

pub fn nak(at_us: u64, psn: u32, msn: u32, syndrome: u8) -> Line {
    packet(at_us, BACK, Opcode::RC_ACKNOWLEDGE, psn, &[], |headers| {
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::new(syndrome),
            msn: Msn::new(msn),
        });
    })
}

pub fn atomic_answer(at_us: u64, psn: u32, msn: u32, original: u64) -> Line {
    packet(at_us, BACK, Opcode::RC_ATOMIC_ACKNOWLEDGE, psn, &[], |headers| {
        headers.aeth = Some(Aeth {
            syndrome: Syndrome::Ack(CreditCode::UNLIMITED),
            msn: Msn::new(msn),
        });
        headers.atomic_ack = Some(AtomicAckEth { original });
    })
}

pub fn analyze_with(options: Options, lines: &[Line], ending: Ending) -> Report {
    let mut survey = Survey::new(options);
    for line in lines {
        survey.record(&line.record());
    }
    let mut analysis = survey.analysis();
    for line in lines {
        analysis.record(&line.record());
    }
    analysis.finish(ending)
}

pub fn analyze(lines: &[Line]) -> Report {
    analyze_with(Options::default(), lines, Ending::default())
}
