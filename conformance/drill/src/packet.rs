//! Packets of a script: built for injection, and compared with what was seen.

use roce_wire::{
    Aeth, AtomicAckEth, AtomicEth, Bth, CreditCode, Deth, Headers, ICRC_LEN, Ieth, ImmDt, Msn, Opcode, PKey,
    Psn, QKey, Qpn, RKey, Reth, RnrTimer, Syndrome, Transport, pad_len,
};

use crate::bench::{Seal, Seen};
use crate::script::SyndromeStep;
use crate::source::Span;

/// A packet line with all its values known.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) opcode: Opcode,
    pub(crate) syndrome: Option<SyndromeStep>,
    pub(crate) psn: Option<Psn>,
    pub(crate) length: Option<usize>,
    pub(crate) data: Option<Vec<u8>>,
    pub(crate) fields: Vec<(&'static str, u64, Span)>,
    pub(crate) flags: Vec<(&'static str, bool, Span)>,
}

/// What a packet has that a line need not say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Defaults {
    /// The queue pair of the device under test.
    pub(crate) device: Qpn,
    /// That of the played end.
    pub(crate) played: Qpn,
    /// The device's Q_Key.
    pub(crate) qkey: u32,
}

/// The seed of payloads of which a line gives the length alone.
const ANY_PAYLOAD: u64 = 2;

impl Wanted {
    fn field(&self, name: &str) -> Option<u64> {
        self.fields
            .iter()
            .find(|(field, ..)| *field == name)
            .map(|(_, value, _)| *value)
    }

    fn flag(&self, name: &str) -> Option<bool> {
        self.flags
            .iter()
            .find(|(flag, ..)| *flag == name)
            .map(|(_, value, _)| *value)
    }

    /// The syndrome to send, or to compare with.
    fn syndrome(&self) -> Option<Syndrome> {
        if let Some(byte) = self.field("syndrome") {
            return Some(Syndrome::new(byte as u8));
        }
        let timer = self.field("timer").and_then(|code| RnrTimer::new(code as u8));
        let credits = self.field("credits").and_then(|code| CreditCode::new(code as u8));
        match (&self.syndrome, timer, credits) {
            (Some(SyndromeStep::Exactly(Syndrome::RnrNak(_))), Some(timer), _) => {
                Some(Syndrome::RnrNak(timer))
            }
            (Some(SyndromeStep::Exactly(syndrome)), ..) => Some(*syndrome),
            (Some(SyndromeStep::Ack), _, Some(credits)) => Some(Syndrome::Ack(credits)),
            (Some(SyndromeStep::Ack), ..) => Some(Syndrome::ACK),
            (None, ..) => None,
        }
    }

    /// The datagram to inject, with room for an ICRC, and how to seal it.
    pub(crate) fn build(&self, defaults: &Defaults) -> (Vec<u8>, Seal) {
        let payload = self.payload();
        let headers = self.headers(defaults, payload.len());
        let pad = usize::from(pad_len(payload.len()));
        let headers_len = headers.len();
        let mut bytes = vec![0; headers_len + payload.len() + pad + ICRC_LEN];
        headers
            .emit(&mut bytes)
            .expect("every header that an opcode calls for has been filled in");
        bytes[headers_len..headers_len + payload.len()].copy_from_slice(&payload);
        if let Some(version) = self.field("tver") {
            bytes[1] = bytes[1] & 0xf0 | version as u8;
        }
        let cut = self.field("cut").unwrap_or(0) as usize;
        // A packet keeps its BTH and an ICRC: what is shorter is no RoCE packet at all.
        let shortest = roce_wire::BTH_LEN + ICRC_LEN;
        bytes.truncate(bytes.len().saturating_sub(cut).max(shortest));
        let seal = match self.flag("icrc") {
            Some(false) => Seal::Wrong,
            _ => Seal::Right,
        };
        (bytes, seal)
    }

    fn payload(&self) -> Vec<u8> {
        if let Some(data) = &self.data {
            return data.clone();
        }
        let is_cnp = self.opcode.transport() == Transport::Cnp;
        match self.length {
            Some(length) => verbs_api::pattern(ANY_PAYLOAD, length),
            None if is_cnp => vec![0; 16],
            None => Vec::new(),
        }
    }

    fn headers(&self, defaults: &Defaults, payload_len: usize) -> Headers {
        let number = |name| self.field(name).unwrap_or(0);
        let info = self.opcode.info();
        let asks = info.is_some_and(|info| {
            info.is_request() && info.transport == Transport::Rc && info.position.ends_message()
        });
        let is_cnp = self.opcode.transport() == Transport::Cnp;
        let dest_qp = self
            .field("dqp")
            .and_then(|qpn| Qpn::new(qpn as u32))
            .unwrap_or(defaults.device);
        let mut headers = Headers::new(Bth {
            solicited: self.flag("se").unwrap_or(false),
            migrated: self.flag("mig").unwrap_or(true),
            pad: self.field("pad").map_or(pad_len(payload_len), |pad| pad as u8),
            pkey: self.field("pkey").map_or(PKey::DEFAULT, |pkey| PKey(pkey as u16)),
            fecn: self.flag("fecn").unwrap_or(false),
            becn: self.flag("becn").unwrap_or(is_cnp),
            ack_request: self.flag("ackreq").unwrap_or(asks),
            ..Bth::new(self.opcode, dest_qp, self.psn.unwrap_or(Psn::new(0)))
        });
        let Some(set) = info.map(|info| info.headers) else {
            return headers;
        };
        let rkey = RKey(number("rkey") as u32);
        headers.reth = set.reth.then_some(Reth {
            va: number("va"),
            rkey,
            dma_length: self.field("dma").unwrap_or(payload_len as u64) as u32,
        });
        headers.aeth = set.aeth.then_some(Aeth {
            syndrome: self.syndrome().unwrap_or(Syndrome::ACK),
            msn: Msn::new(number("msn") as u32),
        });
        headers.atomic_eth = set.atomic_eth.then_some(AtomicEth {
            va: number("va"),
            rkey,
            swap_or_add: self.field("add").unwrap_or(number("swap")),
            compare: number("compare"),
        });
        headers.atomic_ack = set.atomic_ack.then_some(AtomicAckEth {
            original: number("original"),
        });
        headers.immediate = set
            .immediate
            .then_some(ImmDt((number("imm") as u32).to_be_bytes()));
        headers.invalidate = set.invalidate.then_some(Ieth(RKey(number("inv") as u32)));
        headers.deth = set.deth.then_some(Deth {
            qkey: QKey(self.field("qkey").unwrap_or(defaults.qkey.into()) as u32),
            source_qp: self
                .field("srcqp")
                .and_then(|qpn| Qpn::new(qpn as u32))
                .unwrap_or(defaults.played),
        });
        if set.feth {
            headers.feth = Some(roce_wire::Feth {
                placement: roce_wire::FlushPlacement::new(1),
                selectivity: roce_wire::FlushSelectivity::new(0),
            });
        }
        headers
    }

    /// What is not as wanted, each in a few words; `base` is the PSN that packet numbers are told from.
    pub(crate) fn differences(&self, seen: &Seen, base: &PsnBase) -> Vec<String> {
        let mut all = Vec::new();
        let headers = &seen.headers;
        if !seen.icrc_is_valid {
            all.push("its ICRC is wrong".into());
        }
        if headers.bth.opcode != self.opcode {
            let (wanted, seen) = (self.opcode, headers.bth.opcode);
            all.push(format!("opcode: expected {wanted}, seen {seen}"));
        }
        if let Some(psn) = self.psn.filter(|psn| *psn != headers.bth.psn) {
            let (wanted, seen) = (base.tell(psn), base.tell(headers.bth.psn));
            all.push(format!("psn: expected {wanted}, seen {seen}"));
        }
        all.extend(self.syndrome_difference(headers));
        if let Some(length) = self.length.filter(|length| *length != seen.payload.len()) {
            all.push(format!("len: expected {length}, seen {}", seen.payload.len()));
        }
        if let Some(data) = &self.data
            && let Some(difference) = bytes_difference(data, &seen.payload)
        {
            all.push(format!("data: {difference}"));
        }
        for (name, wanted, _) in &self.fields {
            let found = field_of(headers, name);
            if found != Some(*wanted) && !matches!(*name, "syndrome" | "timer" | "credits") {
                let found = found.map_or("none".into(), |found| format!("{found:#x}"));
                all.push(format!("{name}: expected {wanted:#x}, seen {found}"));
            }
        }
        for (name, wanted, _) in &self.flags {
            if flag_of(headers, name).is_some_and(|found| found != *wanted) {
                let (wanted, found) = (
                    ["clear", "set"][usize::from(*wanted)],
                    ["clear", "set"][usize::from(!*wanted)],
                );
                all.push(format!("{name}: expected {wanted}, seen {found}"));
            }
        }
        all
    }

    fn syndrome_difference(&self, headers: &Headers) -> Option<String> {
        let wanted = self.syndrome()?;
        let Some(aeth) = headers.aeth else {
            // The opcode differs then, which has been told.
            return None;
        };
        let loose = self.field("syndrome").is_none();
        let same = match (wanted, aeth.syndrome) {
            (Syndrome::Ack(_), Syndrome::Ack(_)) if loose && self.field("credits").is_none() => true,
            (Syndrome::RnrNak(_), Syndrome::RnrNak(_)) if loose && self.field("timer").is_none() => true,
            (wanted, seen) => wanted == seen,
        };
        (!same).then(|| format!("syndrome: expected {wanted}, seen {}", aeth.syndrome))
    }
}

/// The first packet numbers of both ends, from which numbers are told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PsnBase {
    pub(crate) device: Psn,
    pub(crate) played: Psn,
}

impl PsnBase {
    /// `0x66 (s+2)`.
    pub(crate) fn tell(&self, psn: Psn) -> String {
        const NEAR: i32 = 4096;
        for (name, base) in [("s", self.device), ("p", self.played)] {
            let distance = psn.distance_from(base);
            if distance.abs() < NEAR {
                return match distance {
                    0 => format!("{psn} ({name})"),
                    distance => format!("{psn} ({name}{distance:+})"),
                };
            }
        }
        psn.to_string()
    }
}

/// Where bytes differ first; `None` where they do not.
pub(crate) fn bytes_difference(wanted: &[u8], seen: &[u8]) -> Option<String> {
    if wanted.len() != seen.len() {
        return Some(format!("expected {} bytes, seen {}", wanted.len(), seen.len()));
    }
    let at = wanted.iter().zip(seen).position(|(a, b)| a != b)?;
    Some(format!(
        "byte {at} of {}: expected {:#04x}, seen {:#04x}",
        wanted.len(),
        wanted[at],
        seen[at]
    ))
}

fn field_of(headers: &Headers, name: &str) -> Option<u64> {
    let atomic = headers.atomic_eth;
    Some(match name {
        "va" => headers.reth.map(|h| h.va).or(atomic.map(|h| h.va))?,
        "rkey" => headers
            .reth
            .map(|h| h.rkey.0)
            .or(atomic.map(|h| h.rkey.0))?
            .into(),
        "dma" => headers.reth?.dma_length.into(),
        "imm" => u32::from_be_bytes(headers.immediate?.0).into(),
        "inv" => headers.invalidate?.0.0.into(),
        "swap" | "add" => atomic?.swap_or_add,
        "compare" => atomic?.compare,
        "original" => headers.atomic_ack?.original,
        "msn" => headers.aeth?.msn.value().into(),
        "qkey" => headers.deth?.qkey.0.into(),
        "srcqp" => headers.deth?.source_qp.value().into(),
        "pkey" => headers.bth.pkey.0.into(),
        "pad" => headers.bth.pad.into(),
        "dqp" => headers.bth.dest_qp.value().into(),
        // What cannot be seen in a packet that parses.
        "tver" | "cut" => 0,
        _ => return None,
    })
}

fn flag_of(headers: &Headers, name: &str) -> Option<bool> {
    let bth = &headers.bth;
    Some(match name {
        "ackreq" => bth.ack_request,
        "se" => bth.solicited,
        "mig" => bth.migrated,
        "fecn" => bth.fecn,
        "becn" => bth.becn,
        _ => return None,
    })
}
