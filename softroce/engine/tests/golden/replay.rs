//! One case, with the engine as one of its two sides and the capture as the other.

use std::fmt;
use std::ops::AddAssign;

use roce_wire::{RKey, icrc};

use super::capture::{Captured, Case, Side};
use super::compare::{self, Differences};
use super::end::{Built, End, pattern};
use super::script::{MEMORY_BYTES, Pace, RECEIVE_OFFSET, Receives, Script};

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub cases: usize,
    /// Packets of the engine's that were compared with the kernel's.
    pub compared: usize,
    /// Of them, with another AckReq, or with a deviation that is listed.
    pub ack_requests: usize,
    pub packet_deviations: usize,
    /// Packets of the other side, given to the engine.
    pub replayed: usize,
    pub completions: usize,
    pub completion_deviations: usize,
    pub skipped: usize,
}

impl Tally {
    fn note(&mut self, differences: Differences) {
        self.compared += 1;
        self.ack_requests += differences.ack_requests;
        self.packet_deviations += differences.deviations;
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.cases += other.cases;
        self.compared += other.compared;
        self.ack_requests += other.ack_requests;
        self.packet_deviations += other.packet_deviations;
        self.replayed += other.replayed;
        self.completions += other.completions;
        self.completion_deviations += other.completion_deviations;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} cases, {} packets compared ({} differ in AckReq, {} in a listed deviation), {} replayed, {} skipped; \
             {} completions compared ({} listed deviations)",
            self.cases,
            self.compared,
            self.ack_requests,
            self.packet_deviations,
            self.replayed,
            self.skipped,
            self.completions,
            self.completion_deviations
        )
    }
}

/// The engine is the client. An error says why the case is left out.
pub fn requester(case: &Case) -> Result<Tally, &'static str> {
    let script = Script::of(case)?;
    let mut client = End::new(case, &script, Side::Client);
    let mut tally = Tally {
        cases: 1,
        ..Tally::default()
    };
    let mut completions = Vec::new();
    let mut posted = 0;
    for captured in &case.packets {
        let now = captured.at;
        while posted < script.sends.len() && (script.pace == Pace::AllAtOnce || completions.len() == posted) {
            client.post(now, posted as u64, &script.sends[posted]);
            posted += 1;
        }
        match captured.from {
            Side::Client => {
                client.transmit(now);
                let built = next(case, &mut client, captured);
                tally.note(compare::packets(case, &built, captured));
            }
            Side::Server => {
                let frame = captured.frame();
                client.take_in(now, &frame, frame.payload);
                client.transmit(now);
                tally.replayed += 1;
                completions.extend(client.completions());
            }
        }
    }
    finish(case, &mut client);
    tally.completions += completions.len();
    tally.completion_deviations += compare::completions(case, Side::Client, &completions);
    let mut expected = pattern(1);
    let mut server = pattern(101);
    if let Some(word) = script.server_word {
        server[..8].copy_from_slice(&word.to_le_bytes());
    }
    script.apply_to_client(case, &server, &mut expected);
    assert!(client.memory() == expected, "{}: the client's memory", case.name);
    Ok(tally)
}

/// The engine is the server. An error says why the case is left out.
pub fn responder(case: &Case) -> Result<Tally, &'static str> {
    let script = Script::of(case)?;
    if script.needs_window {
        return Err("memory windows");
    }
    let mut server = End::new(case, &script, Side::Server);
    let mut tally = Tally {
        cases: 1,
        ..Tally::default()
    };
    let mut expected = server.memory();
    if let Receives::Before { count, len } = script.receives {
        for _ in 0..count {
            server.receive_into(case.packets[0].at, RECEIVE_OFFSET, len);
        }
    }
    let mut requests = case.packets.iter().filter(|packet| packet.from == Side::Client);
    let last_request = requests.next_back().unwrap().at;
    for captured in &case.packets {
        let now = captured.at;
        match captured.from {
            Side::Client => {
                if script.receives == Receives::BeforeLastRequest && now == last_request {
                    server.receive_into(now, RECEIVE_OFFSET, MEMORY_BYTES - RECEIVE_OFFSET);
                }
                let payload = with_our_key(case, &server, captured);
                server.take_in(now, &captured.frame(), &payload);
                server.transmit(now);
                tally.replayed += 1;
            }
            Side::Server => {
                let built = next(case, &mut server, captured);
                tally.note(compare::packets(case, &built, captured));
            }
        }
    }
    finish(case, &mut server);
    let completions = server.completions();
    tally.completions += completions.len();
    tally.completion_deviations += compare::completions(case, Side::Server, &completions);
    script.apply_to_server(case, &pattern(1), &mut expected);
    assert!(server.memory() == expected, "{}: the server's memory", case.name);
    Ok(tally)
}

fn next(case: &Case, end: &mut End, captured: &Captured) -> Built {
    let built = end.outbox.pop_front();
    built.unwrap_or_else(|| panic!("{}: the engine did not send {}", case.name, captured.frame()))
}

/// After the last packet of the capture the engine has nothing more to say.
fn finish(case: &Case, end: &mut End) {
    end.transmit(case.packets.last().unwrap().at);
    let left: Vec<String> = end
        .outbox
        .iter()
        .map(|built| roce_wire::parse(&built.bytes).unwrap().to_string())
        .collect();
    assert!(left.is_empty(), "{}: the engine sent more: {left:?}", case.name);
}

/// The client's packet with the remote key of the engine's memory in the place of the kernel's; a key that was wrong is
/// as wrong afterwards.
fn with_our_key(case: &Case, server: &End, captured: &Captured) -> Vec<u8> {
    let frame = captured.frame();
    let mut packet = frame.packet().unwrap();
    let headers = &mut packet.headers;
    let keys = [
        headers.reth.as_mut().map(|reth| &mut reth.rkey),
        headers.atomic_eth.as_mut().map(|atomic| &mut atomic.rkey),
    ];
    let mut is_changed = false;
    for key in keys.into_iter().flatten() {
        *key = RKey(key.0 ^ case.server_rkey ^ server.mr.rkey.0);
        is_changed = true;
    }
    if !is_changed {
        return frame.payload.to_vec();
    }
    let mut out = vec![0; packet.wire_len()];
    packet.emit(&mut out).unwrap();
    icrc::seal(&frame.flow(), 0, &mut out);
    out
}
