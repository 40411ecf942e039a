//! Messages of every size by every operation of the connected services.

use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use verbs_api::{
    Access, BindInfo, MemoryRegion, MemoryWindow, MwType, ProtectionDomain, Provider, QpType, QueuePair,
    RKey, SendOp, SendWr, Wc, WcOpcode,
};

use super::area::{Area, Seed, sizes};
use super::bench::{Bench, Kind};
use super::link::{Link, Terms};
use super::talk::Ending;
use super::tally::{self, Expected};
use crate::peer::Role;

/// Each size so often.
const ROUNDS: u64 = 2;
/// Until what an unreliable WRITE has sent must be there.
const ARRIVAL: Duration = Duration::from_secs(20);

/// What moves the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Send,
    SendWithImm,
    SendWithInvalidate,
    Write,
    WriteWithImm,
    Read,
}

impl Operation {
    pub const ALL: [Operation; 6] = [
        Operation::Send,
        Operation::SendWithImm,
        Operation::SendWithInvalidate,
        Operation::Write,
        Operation::WriteWithImm,
        Operation::Read,
    ];

    /// As in a case's name.
    pub fn name(self) -> &'static str {
        match self {
            Operation::Send => "SEND",
            Operation::SendWithImm => "SEND with immediate",
            Operation::SendWithInvalidate => "SEND with invalidate",
            Operation::Write => "WRITE",
            Operation::WriteWithImm => "WRITE with immediate",
            Operation::Read => "READ",
        }
    }

    /// Where at the responder the messages are.
    fn area(self) -> Area {
        match self {
            Operation::Send | Operation::SendWithImm | Operation::SendWithInvalidate => Area::Received,
            Operation::Write | Operation::WriteWithImm => Area::Written,
            Operation::Read => Area::Out,
        }
    }

    fn completion(self) -> WcOpcode {
        match self {
            Operation::Send | Operation::SendWithImm | Operation::SendWithInvalidate => WcOpcode::Send,
            Operation::Write | Operation::WriteWithImm => WcOpcode::RdmaWrite,
            Operation::Read => WcOpcode::RdmaRead,
        }
    }

    /// How the responder's receives complete, if it needs any.
    fn receive(self) -> Option<WcOpcode> {
        match self {
            Operation::Send | Operation::SendWithImm | Operation::SendWithInvalidate => Some(WcOpcode::Recv),
            Operation::WriteWithImm => Some(WcOpcode::RecvRdmaWithImm),
            Operation::Write | Operation::Read => None,
        }
    }
}

fn immediate(round: u64, i: usize) -> u32 {
    0x8000_0000 | (round as u32) << 8 | i as u32
}

/// Messages of all sizes, `requester` asks. No packet may be sent twice or be lost.
pub fn run<P: Provider>(
    bench: &mut Bench<'_, P>,
    service: QpType,
    operation: Operation,
    requester: Role,
    terms: Terms,
) -> Result<Ending> {
    let before = (bench.instruments.counters)();
    let link = Link::connect(bench, service, terms)?;
    let mut ending = Ending::Passed;
    for round in 0..ROUNDS {
        let seed = Seed::new(requester, operation as u64, round);
        if bench.role == requester {
            ask(bench, &link, operation, round, seed)?;
        } else {
            ending = serve(bench, &link, operation, round, seed)?;
        }
    }
    let troubles = tally::troubles(&before, &(bench.instruments.counters)());
    tally::check(&troubles, Expected::default())?;
    Ok(ending)
}

fn ask<P: Provider>(
    bench: &mut Bench<'_, P>,
    link: &Link<P>,
    operation: Operation,
    round: u64,
    seed: Seed,
) -> Result<()> {
    let sizes = sizes(bench.mtu.bytes());
    let (from, to) = (own_area(operation), operation.area());
    from.wipe(&bench.buffer);
    if operation != Operation::Read {
        from.write(&bench.buffer, &sizes, seed);
    }
    let keys = keys_of(&bench.talk.hear("prepared")?)?;
    let slots = from.slots(&sizes).into_iter().zip(to.slots(&sizes));
    for (i, (own, theirs)) in slots.enumerate() {
        let op = request(bench, operation, (round, i), theirs.start, &keys);
        link.post(bench, i as u64, op, (own.start, own.len()))?;
    }
    let done = link.successes(sizes.len())?;
    for (i, wc) in done.iter().enumerate() {
        let (got, wanted) = ((wc.wr_id, wc.opcode), (i as u64, operation.completion()));
        ensure!(
            got == wanted,
            "a request completed as {got:?}, {wanted:?} was expected"
        );
    }
    if operation == Operation::Read {
        from.check(&bench.buffer, &sizes, seed)?;
    }
    bench.talk.tell("executed")?;
    bench.talk.hear("checked")?;
    Ok(())
}

fn own_area(operation: Operation) -> Area {
    if operation == Operation::Read {
        Area::Fetched
    } else {
        Area::Out
    }
}

fn request<'a, P: Provider>(
    bench: &Bench<'_, P>,
    operation: Operation,
    (round, i): (u64, usize),
    theirs: usize,
    keys: &[RKey],
) -> SendOp<'a, P> {
    let remote = bench.remote(theirs);
    let imm = Some(immediate(round, i));
    match operation {
        Operation::Send => SendOp::Send { imm: None },
        Operation::SendWithImm => SendOp::Send { imm },
        Operation::SendWithInvalidate => SendOp::SendWithInvalidate { rkey: keys[i] },
        Operation::Write => SendOp::Write { remote, imm: None },
        Operation::WriteWithImm => SendOp::Write { remote, imm },
        Operation::Read => SendOp::Read { remote },
    }
}

fn serve<P: Provider>(
    bench: &mut Bench<'_, P>,
    link: &Link<P>,
    operation: Operation,
    round: u64,
    seed: Seed,
) -> Result<Ending> {
    let mut ending = Ending::Passed;
    let sizes = sizes(bench.mtu.bytes());
    let area = operation.area();
    area.wipe(&bench.buffer);
    if operation == Operation::Read {
        area.write(&bench.buffer, &sizes, seed);
    }
    let slots = area.slots(&sizes);
    let windows = match operation {
        Operation::SendWithInvalidate => Windows::open(bench, link, &slots)?,
        _ => Windows::none(),
    };
    if operation.receive().is_some() {
        for (i, slot) in slots.iter().enumerate() {
            let length = if operation == Operation::WriteWithImm {
                0
            } else {
                slot.len()
            };
            link.post_recv(bench, i as u64, slot.start, length)?;
        }
    }
    bench
        .talk
        .tell_with("prepared", json!({ "keys": windows.numbers() }))?;
    if let Some(opcode) = operation.receive() {
        let done = link.successes(sizes.len())?;
        for (i, wc) in done.iter().enumerate() {
            check_receive(wc, opcode, (i, sizes[i]))?;
            let imm = matches!(operation, Operation::SendWithImm | Operation::WriteWithImm)
                .then(|| immediate(round, i));
            ensure!(
                wc.immediate() == imm,
                "the immediate is {:x?}, not {imm:x?}",
                wc.immediate()
            );
            if let Some(key) = windows.keys.get(i) {
                ending = check_invalidated(wc, *key, bench.instruments.kind)?;
            }
        }
    }
    bench.talk.hear("executed")?;
    arrived(bench, area, &sizes, seed)?;
    bench.talk.tell("checked")?;
    Ok(ending)
}

/// Whether a completion says that the peer's SEND has closed the window of this key.
fn check_invalidated(wc: &Wc, key: RKey, own: Kind) -> Result<Ending> {
    if own == Kind::Rxe && wc.invalidated_rkey().is_none() && wc.imm == key.0 {
        return Ok(Ending::Deviation(
            "rxe's completion names the invalidated key, but without the flag IBV_WC_WITH_INV",
        ));
    }
    let told = wc.invalidated_rkey();
    ensure!(
        told == Some(key),
        "the completion says that {told:x?} is invalidated, not {key:x?}"
    );
    Ok(Ending::Passed)
}

pub(super) fn check_receive(wc: &Wc, opcode: WcOpcode, (i, size): (usize, usize)) -> Result<()> {
    let (got, wanted) = (
        (wc.wr_id, wc.opcode, wc.byte_len),
        (i as u64, opcode, size as u32),
    );
    ensure!(
        got == wanted,
        "a receive completed as {got:?}, {wanted:?} was expected"
    );
    Ok(())
}

/// Checks what must be in the area; of an unreliable WRITE nothing tells when it is there.
pub(super) fn arrived<P: Provider>(
    bench: &Bench<'_, P>,
    area: Area,
    sizes: &[usize],
    seed: Seed,
) -> Result<()> {
    let deadline = Instant::now() + ARRIVAL;
    loop {
        match area.check(&bench.buffer, sizes, seed) {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            checked => return checked,
        }
    }
}

/// The windows that the peer's SENDs close, one each.
struct Windows<P: Provider> {
    keys: Vec<RKey>,
    _windows: Vec<P::Mw>,
}

impl<P: Provider> Windows<P> {
    fn none() -> Self {
        Windows {
            keys: Vec::new(),
            _windows: Vec::new(),
        }
    }

    /// Binds a window to each slot.
    fn open(bench: &Bench<'_, P>, link: &Link<P>, slots: &[Range<usize>]) -> Result<Self> {
        let mut open = Windows::none();
        for (i, slot) in slots.iter().enumerate() {
            let window = bench.pd.alloc_mw(MwType::Type2)?;
            // The low byte is the program's to choose, and must be another one at each binding.
            let rkey = RKey(window.rkey().0 & !0xff | (window.rkey().0 + 1) & 0xff);
            let bind = BindInfo {
                mr: &bench.mr,
                addr: bench.mr.addr() + slot.start as u64,
                length: slot.len().max(1) as u64,
                access: Access::REMOTE_WRITE,
            };
            let op = SendOp::BindMw {
                mw: &window,
                rkey,
                bind,
            };
            link.qp.post_send(&[SendWr::new(i as u64, op, &[])])?;
            let done = link.successes(1).context("binding a window")?;
            ensure!(
                done[0].opcode == WcOpcode::BindMw,
                "a binding completed as {:?}",
                done[0].opcode
            );
            open.keys.push(rkey);
            open._windows.push(window);
        }
        Ok(open)
    }

    fn numbers(&self) -> Vec<u32> {
        self.keys.iter().map(|key| key.0).collect()
    }
}

fn keys_of(prepared: &Value) -> Result<Vec<RKey>> {
    let keys = prepared["keys"].as_array().context("the peer names no keys")?;
    keys.iter()
        .map(|key| {
            let number = key.as_u64().context("a key is no number")?;
            Ok(RKey(u32::try_from(number)?))
        })
        .collect()
}

/// Both ends SEND, WRITE and READ messages of all sizes at once, on one queue pair.
pub fn both_ways<P: Provider>(bench: &mut Bench<'_, P>) -> Result<Ending> {
    let before = (bench.instruments.counters)();
    let link = Link::connect(bench, QpType::Rc, Terms::default())?;
    let sizes = sizes(bench.mtu.bytes());
    for round in 0..ROUNDS {
        both_ways_once(bench, &link, &sizes, round)?;
    }
    let troubles = tally::troubles(&before, &(bench.instruments.counters)());
    tally::check(&troubles, Expected::default())?;
    Ok(Ending::Passed)
}

fn both_ways_once<P: Provider>(
    bench: &mut Bench<'_, P>,
    link: &Link<P>,
    sizes: &[usize],
    round: u64,
) -> Result<()> {
    let other = match bench.role {
        Role::Caller => Role::Listener,
        Role::Listener => Role::Caller,
    };
    let (mine, theirs) = (Seed::new(bench.role, 100, round), Seed::new(other, 100, round));
    let incoming = [Area::Received, Area::Written, Area::Fetched];
    incoming.iter().for_each(|area| area.wipe(&bench.buffer));
    Area::Out.write(&bench.buffer, sizes, mine);
    for (i, slot) in Area::Received.slots(sizes).into_iter().enumerate() {
        link.post_recv(bench, i as u64, slot.start, slot.len())?;
    }
    bench.talk.meet("prepared")?;
    let slots = [Area::Out, Area::Written, Area::Fetched].map(|area| area.slots(sizes));
    let [out, written, fetched] = slots;
    for i in 0..sizes.len() {
        let own = (out[i].start, out[i].len());
        link.post(bench, i as u64, SendOp::Send { imm: None }, own)?;
        let write = SendOp::Write {
            remote: bench.remote(written[i].start),
            imm: None,
        };
        link.post(bench, i as u64, write, own)?;
        let read = SendOp::Read {
            remote: bench.remote(out[i].start),
        };
        link.post(bench, i as u64, read, (fetched[i].start, fetched[i].len()))?;
    }
    let done = link.successes(4 * sizes.len())?;
    for opcode in [
        WcOpcode::Send,
        WcOpcode::RdmaWrite,
        WcOpcode::RdmaRead,
        WcOpcode::Recv,
    ] {
        let ids = done
            .iter()
            .filter(|wc| wc.opcode == opcode)
            .map(|wc| wc.wr_id as usize);
        ensure!(
            ids.eq(0..sizes.len()),
            "completions of {opcode:?} are missing or out of order"
        );
    }
    bench.talk.meet("executed")?;
    incoming
        .iter()
        .try_for_each(|area| area.check(&bench.buffer, sizes, theirs))?;
    bench.talk.meet("checked")?;
    Ok(())
}
