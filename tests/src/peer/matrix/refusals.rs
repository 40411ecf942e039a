//! Requests that a responder must refuse, and the status that both ends see.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use verbs_api::{Access, Provider, QpState, QpType, QueuePair, RKey, RemoteAddr, SendOp, WcStatus};

use super::area::{Area, MEMORY};
use super::bench::{Bench, Kind};
use super::link::{Link, Terms};
use super::talk::Ending;
use super::tally::{self, Expected};
use crate::peer::Role;

/// Bytes of a request.
const LENGTH: usize = 64;
/// Until the responder's queue pair has failed as well.
const FAILURE: Duration = Duration::from_secs(20);

/// By what operation memory is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    Write,
    Read,
    FetchAdd,
}

/// What is wrong with a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// No region has the remote key.
    UnknownKey(Reach),
    /// Its last byte lies beyond the region.
    OutOfBounds(Reach),
    /// The region does not permit it.
    RegionForbids(Reach),
    /// The queue pair does not permit it.
    QueuePairForbids(Reach),
    /// The message is longer than the receive.
    ShortReceive,
    /// There is no receive, and the requester may not try again.
    NoReceive,
}

impl Fault {
    /// Every one of them.
    pub fn all() -> Vec<Fault> {
        let reaches = [Reach::Write, Reach::Read, Reach::FetchAdd];
        let kinds = [
            Fault::UnknownKey as fn(Reach) -> Fault,
            Fault::OutOfBounds,
            Fault::RegionForbids,
            Fault::QueuePairForbids,
        ];
        let mut all: Vec<_> = kinds.into_iter().flat_map(|kind| reaches.map(kind)).collect();
        all.extend([Fault::ShortReceive, Fault::NoReceive]);
        all
    }

    /// As in a case's name.
    pub fn name(self) -> String {
        let by = |reach| match reach {
            Reach::Write => "WRITE",
            Reach::Read => "READ",
            Reach::FetchAdd => "FetchAdd",
        };
        match self {
            Fault::UnknownKey(reach) => format!("{} by an unknown rkey", by(reach)),
            Fault::OutOfBounds(reach) => format!("{} out of bounds", by(reach)),
            Fault::RegionForbids(reach) => format!("{} that the region forbids", by(reach)),
            Fault::QueuePairForbids(reach) => format!("{} that the queue pair forbids", by(reach)),
            Fault::ShortReceive => "SEND longer than the receive".to_owned(),
            Fault::NoReceive => "SEND without a receive, no retry".to_owned(),
        }
    }

    fn terms(self) -> Terms {
        let all = Terms::default();
        match self {
            Fault::QueuePairForbids(reach) => Terms {
                access: all.access
                    - match reach {
                        Reach::Write => Access::REMOTE_WRITE,
                        Reach::Read => Access::REMOTE_READ,
                        Reach::FetchAdd => Access::REMOTE_ATOMIC,
                    },
                ..all
            },
            Fault::NoReceive => Terms { rnr_retry: 0, ..all },
            _ => all,
        }
    }

    /// What the requester's completion says, and the responder's if it has one.
    fn statuses(self, responder: Kind) -> (WcStatus, Option<WcStatus>) {
        match (self, responder) {
            (Fault::UnknownKey(_) | Fault::OutOfBounds(_) | Fault::RegionForbids(_), _) => {
                (WcStatus::RemAccessErr, None)
            }
            (Fault::QueuePairForbids(_), _) => (WcStatus::RemInvReqErr, None),
            (Fault::ShortReceive, Kind::Softroce) => (WcStatus::RemInvReqErr, Some(WcStatus::LocLenErr)),
            // It takes the receive's memory for broken and answers with another NAK.
            (Fault::ShortReceive, Kind::Rxe) => (WcStatus::RemOpErr, Some(WcStatus::LocQpOpErr)),
            (Fault::NoReceive, _) => (WcStatus::RnrRetryExcErr, None),
        }
    }

    fn request<'a, P: Provider>(self, bench: &Bench<'_, P>) -> SendOp<'a, P> {
        let target = bench.remote(Area::Written.start());
        let (reach, remote) = match self {
            Fault::UnknownKey(reach) => {
                let rkey = RKey(target.rkey.0 ^ 0x0055_5500);
                (reach, RemoteAddr { rkey, ..target })
            }
            Fault::OutOfBounds(Reach::FetchAdd) => (Reach::FetchAdd, bench.remote(MEMORY)),
            Fault::OutOfBounds(reach) => (reach, bench.remote(MEMORY - LENGTH + 1)),
            Fault::RegionForbids(reach) => (reach, bench.guarded(Area::Written.start())),
            Fault::QueuePairForbids(reach) => (reach, target),
            Fault::ShortReceive | Fault::NoReceive => return SendOp::Send { imm: None },
        };
        match reach {
            Reach::Write => SendOp::Write { remote, imm: None },
            Reach::Read => SendOp::Read { remote },
            Reach::FetchAdd => SendOp::FetchAdd { remote, add: 1 },
        }
    }

    fn length(self) -> usize {
        match self {
            Fault::UnknownKey(Reach::FetchAdd)
            | Fault::OutOfBounds(Reach::FetchAdd)
            | Fault::RegionForbids(Reach::FetchAdd)
            | Fault::QueuePairForbids(Reach::FetchAdd) => 8,
            _ => LENGTH,
        }
    }

    fn expected(self, is_requester: bool) -> Expected {
        match (self, is_requester) {
            (Fault::NoReceive, true) => Expected {
                once: &["rcvd_rnr_err"],
                any: &["retry_rnr_exceeded_err"],
                ..Expected::default()
            },
            (Fault::NoReceive, false) => Expected {
                once: &["send_rnr_err"],
                ..Expected::default()
            },
            _ => Expected::default(),
        }
    }
}

/// One request that must be refused; the memory that it aims at stays as it is.
pub fn run<P: Provider>(bench: &mut Bench<'_, P>, fault: Fault, requester: Role) -> Result<Ending> {
    let before = (bench.instruments.counters)();
    let responder = bench.responder_kind(requester);
    let (at_requester, at_responder) = fault.statuses(responder);
    let link = Link::connect(bench, QpType::Rc, fault.terms())?;
    if bench.role == requester {
        bench.talk.hear("prepared")?;
        let op = fault.request(bench);
        link.post(bench, 1, op, (Area::Fetched.start(), fault.length()))?;
        let wc = link.completion()?;
        ensure!(
            (wc.wr_id, wc.status) == (1, at_requester),
            "the request ended with {:?}, not {at_requester:?}",
            wc.status
        );
        wait_for_error(&link)?;
        bench.talk.tell("executed")?;
        bench.talk.hear("checked")?;
    } else {
        let area = [Area::Written, Area::Received];
        area.iter().for_each(|area| area.wipe(&bench.buffer));
        if fault == Fault::ShortReceive {
            link.post_recv(bench, 2, Area::Received.start(), LENGTH - 1)?;
        }
        bench.talk.tell("prepared")?;
        if let Some(status) = at_responder {
            let wc = link.completion()?;
            ensure!(
                (wc.wr_id, wc.status) == (2, status),
                "the receive ended with {:?}, not {status:?}",
                wc.status
            );
        }
        bench.talk.hear("executed")?;
        if fault != Fault::NoReceive {
            wait_for_error(&link)?;
        }
        Area::Written.check_untouched(&bench.buffer)?;
        bench.talk.tell("checked")?;
    }
    let troubles = tally::troubles(&before, &(bench.instruments.counters)());
    tally::check(&troubles, fault.expected(bench.role == requester))?;
    if (fault, responder) == (Fault::ShortReceive, Kind::Rxe) {
        return Ok(Ending::Deviation(
            "rxe answers NAK 0x63 and completes with LOC_QP_OP_ERR, not 0x61 and LOC_LEN_ERR",
        ));
    }
    Ok(Ending::Passed)
}

fn wait_for_error<P: Provider>(link: &Link<P>) -> Result<()> {
    let deadline = Instant::now() + FAILURE;
    loop {
        let state = link.qp.state()?;
        if state == QpState::Err {
            return Ok(());
        }
        ensure!(
            Instant::now() < deadline,
            "the queue pair is in {state:?}, not in ERR"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}
