//! `softroce decode`: a capture, one line a packet.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use roce_wire::frame::{self, Frame};
use roce_wire::icrc::Verdict;
use roce_wire::pcap::{LinkType, Reader, Record};
use serde_json::json;

use crate::output;

/// Print a capture (pcap or pcapng) one line a packet, with the verdict on each ICRC
#[derive(Args, Debug)]
pub struct Decode {
    /// The capture
    file: PathBuf,
    /// Print a JSON object a packet
    #[arg(long)]
    json: bool,
}

/// What a capture held.
#[derive(Default)]
struct Totals {
    packets: u64,
    roce: u64,
    bad_icrc: u64,
    malformed: u64,
    other: u64,
}

impl Decode {
    /// Print it. The status is 1 when the file is damaged; packets before the damage are printed.
    pub fn run(self) -> Result<ExitCode> {
        let shown = self.file.display().to_string();
        let file = File::open(&self.file).with_context(|| format!("cannot open {shown}"))?;
        let mut reader = Reader::new(BufReader::new(file)).with_context(|| format!("cannot read {shown}"))?;
        let mut out = BufWriter::new(output::standard());
        let mut totals = Totals::default();
        let end = loop {
            let record = match reader.next_record() {
                Ok(Some(record)) => record,
                Ok(None) => break Ok(()),
                Err(error) => break Err(error),
            };
            let written = totals.count_and_print(&record, self.json, &mut out);
            if written.is_err() {
                return output::unless_unread(written).map(|()| ExitCode::SUCCESS);
            }
        };
        let summed_up = match self.json {
            true => Ok(()),
            false => writeln!(out, "{totals}"),
        };
        output::unless_unread(summed_up.and_then(|()| out.flush()))?;
        end.with_context(|| format!("{shown}, after {} packets", totals.packets))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Totals {
    fn count_and_print(&mut self, record: &Record<'_>, json: bool, out: &mut impl Write) -> io::Result<()> {
        self.packets += 1;
        let frame = parse(record);
        let packet = frame.filter(Frame::is_roce).map(|frame| (frame, frame.packet()));
        match &packet {
            None => self.other += 1,
            Some((_, Err(_))) => self.malformed += 1,
            Some((frame, Ok(_))) => {
                self.roce += 1;
                self.bad_icrc += u64::from(matches!(frame.verdict(), Verdict::Invalid));
            }
        }
        if json {
            let object = self.object(record, &packet);
            return writeln!(out, "{object}");
        }
        let seconds = record.timestamp_ns.unwrap_or(0) as f64 / 1e9;
        write!(
            out,
            "{:>6} {seconds:.6} {}",
            self.packets,
            roce_wire::describe(record.link_type, record.data)
        )?;
        if let Some(comment) = record.comment {
            write!(out, " # {comment}")?;
        }
        writeln!(out)
    }

    fn object(
        &self,
        record: &Record<'_>,
        packet: &Option<(Frame<'_>, Result<roce_wire::Packet<'_>, roce_wire::ParseError>)>,
    ) -> serde_json::Value {
        let mut object =
            json!({ "number": self.packets, "time_ns": record.timestamp_ns, "comment": record.comment });
        match packet {
            None => object["other"] = record.original_len.into(),
            Some((_, Err(error))) => object["malformed"] = error.to_string().into(),
            Some((frame, Ok(packet))) => {
                let bth = &packet.headers.bth;
                object["src"] = frame.ip.src().to_string().into();
                object["dst"] = frame.ip.dst().to_string().into();
                object["opcode"] = bth.opcode.value().into();
                object["name"] = bth.opcode.to_string().into();
                object["psn"] = bth.psn.value().into();
                object["dest_qp"] = bth.dest_qp.value().into();
                object["ack_request"] = bth.ack_request.into();
                object["payload"] = packet.payload.len().into();
                object["length"] = (frame.payload.len() + roce_wire::udp::UDP_LEN).into();
                if let Some(message) = roce_wire::cm::carried(&packet.headers, packet.payload) {
                    object["cm"] = message.to_string().into();
                }
                object["headers"] = packet.headers.to_string().into();
                object["icrc"] = match frame.verdict() {
                    Verdict::Valid => "valid",
                    Verdict::ValidWithIpId(_) => "valid-ip-id",
                    Verdict::Invalid => "invalid",
                }
                .into();
            }
        }
        object
    }
}

fn parse<'a>(record: &Record<'a>) -> Option<Frame<'a>> {
    match record.link_type {
        LinkType::Ethernet => frame::parse_ethernet(record.data).ok(),
        LinkType::RawIp => frame::parse_ip(record.data).ok(),
        LinkType::Other(_) => None,
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Totals {
            packets,
            roce,
            bad_icrc,
            malformed,
            other,
        } = self;
        write!(
            f,
            "{packets} packets: {roce} RoCEv2 ({bad_icrc} with a wrong ICRC), {malformed} malformed, {other} of other protocols"
        )
    }
}
