//! Fault rules in the network: at the sender, where a packet has not met the link yet, and at the receiver, behind it.

use std::net::IpAddr;
use std::sync::Arc;

use softroce::Faults;
use softroce_engine::{Path, RxMeta, Time};
use softroce_faults::{Direction, Judgement, Parcel, Passage, Way};

use super::{Datagram, Network};
use crate::trace::Sent;

/// Where a fault rule holds a packet back.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stop {
    /// At its sender, on its way from one end to another.
    Sender((usize, usize)),
    /// In front of this receiver.
    Receiver(usize, RxMeta),
}

impl Network {
    /// Have these fault rules judge every packet: where it is sent, and where it arrives.
    pub(crate) fn set_faults(&mut self, faults: Arc<Faults>) {
        self.faults = Some(faults);
    }

    /// Carry a packet from one end to another, past the fault rules of its sender.
    pub(super) fn carry(&mut self, now: Time, ends: (usize, usize), path: &Path, bytes: Vec<u8>) {
        let Some(parcels) = self.judge(now, Direction::Out, &way(path), &bytes) else {
            self.set_out(now, ends, path, bytes.clone());
            self.note_passed(now, path.src, path.dst, &bytes);
            return;
        };
        if parcels.is_empty() {
            self.counters.lost += 1;
            self.record_lost(now, ends, path, &bytes);
        }
        for parcel in parcels {
            if let Some((parcel, _)) = self.held.hold(now.as_nanos(), parcel, Stop::Sender(ends)) {
                self.set_out(now, ends, &path_of(&parcel.way), parcel.bytes.clone());
                self.note_passed(now, path.src, path.dst, &parcel.bytes);
            }
        }
    }

    /// What the fault rules make of a packet; `None` when it passes as it is.
    fn judge(&self, now: Time, direction: Direction, way: &Way, bytes: &[u8]) -> Option<Vec<Parcel>> {
        let faults = self.faults.as_ref().filter(|faults| faults.is_loaded())?;
        let passage = Passage {
            now_ns: now.as_nanos(),
            direction,
            way: *way,
            bytes,
        };
        let mut parcels = Vec::new();
        match faults.judge(&passage, &mut parcels) {
            Judgement::Untouched => None,
            Judgement::Changed => Some(parcels),
        }
    }

    /// A rule has taken a packet away: it was sent all the same.
    fn record_lost(&mut self, now: Time, (from, to): (usize, usize), path: &Path, bytes: &[u8]) {
        let headers = roce_wire::parse(bytes).ok().map(|packet| packet.headers);
        let transmission = headers.map_or(1, |headers| self.count_transmission(from, to, &headers));
        self.trace.push(Sent {
            at: now,
            from,
            to,
            path: *path,
            transmission,
            lost: true,
            forged: false,
            bytes: bytes.into(),
        });
    }

    /// A packet has passed the rules: those that it was the last to overtake go now.
    fn note_passed(&mut self, now: Time, src: IpAddr, dst: IpAddr, bytes: &[u8]) {
        self.held.note_passed(now.as_nanos(), src, dst, bytes);
        self.release_held(now);
    }

    /// What was held back long enough goes on.
    pub(super) fn release_held(&mut self, now: Time) {
        while let Some((parcel, stop)) = self.held.pop_due(now.as_nanos()) {
            match stop {
                Stop::Sender(ends) => self.set_out(now, ends, &path_of(&parcel.way), parcel.bytes),
                Stop::Receiver(to, meta) => self.hand_over(to, meta, parcel.bytes.into()),
            }
        }
    }

    fn hand_over(&mut self, to: usize, meta: RxMeta, bytes: Arc<[u8]>) {
        self.counters.delivered += 1;
        self.inboxes[to].push(Datagram { meta, bytes });
    }

    /// A packet has arrived, and meets the fault rules of its receiver.
    pub(super) fn arrive(&mut self, now: Time, to: usize, datagram: Datagram) {
        let Datagram { meta, bytes } = datagram;
        let Some(parcels) = self.judge(now, Direction::In, &way_of(&meta), &bytes) else {
            self.hand_over(to, meta, bytes.clone());
            self.note_passed(now, meta.src, meta.dst, &bytes);
            return;
        };
        self.counters.lost += u64::from(parcels.is_empty());
        for parcel in parcels {
            let meta = RxMeta {
                traffic_class: parcel.way.traffic_class,
                ..meta
            };
            let stop = Stop::Receiver(to, meta);
            if let Some((parcel, _)) = self.held.hold(now.as_nanos(), parcel, stop) {
                self.hand_over(to, meta, parcel.bytes.clone().into());
                self.note_passed(now, meta.src, meta.dst, &parcel.bytes);
            }
        }
    }
}

fn way(path: &Path) -> Way {
    Way {
        src: path.src,
        dst: path.dst,
        source_port: path.source_port,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
    }
}

fn way_of(meta: &RxMeta) -> Way {
    Way {
        src: meta.src,
        dst: meta.dst,
        source_port: meta.source_port,
        traffic_class: meta.traffic_class,
        hop_limit: meta.hop_limit,
    }
}

fn path_of(way: &Way) -> Path {
    Path {
        src: way.src,
        dst: way.dst,
        source_port: way.source_port,
        traffic_class: way.traffic_class,
        hop_limit: way.hop_limit,
    }
}
