//! A fabric on which packets meet fault rules, on their way out and on their way in.
//!
//! It stands between the [tap](crate::tap) and the sockets, so that a capture shows what the device sent and what reached
//! it. While no rules are loaded it passes everything on, trains included. With rules every packet is judged by itself;
//! those that pass as they are still travel in trains.

use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::Arc;
use std::time::Duration;

use roce_wire::icrc::{self, Flow};
use roce_wire::{BTH_LEN, ICRC_LEN, ROCE_V2_PORT};
use softroce_engine::{Path, PortConfig, RxMeta, TxBatch};
use softroce_faults::{Direction, Event, Held, Judgement, Numbers, Parcel, Passage, Way};
use verbs_api::{Error, Result};

use super::Fabric;
use super::forward::forward;
use crate::clock::monotonic_ns;
use crate::faults::{Faults, Mishaps};
use crate::os::TimerFd;

/// Room for what passes as it is: as much as a device sends at a time.
const BATCH_BYTES: usize = 1 << 16;
const BATCH_PACKETS: usize = 256;

/// See the module's documentation.
#[derive(Debug)]
pub struct Faulty<F> {
    inner: F,
    faults: Arc<Faults>,
    /// Readable when something that is held back, or an event, is due.
    /// `None` in a forked child.
    timer: Option<TimerFd>,
    /// When it runs out, if it runs.
    wakes_ns: Option<u64>,
    outbound: Held<()>,
    inbound: Held<RxMeta>,
    /// What passes as it is, until it is sent; made with the first rules.
    passing: Option<TxBatch>,
    parcels: Vec<Parcel>,
    mishaps: Mishaps,
}

impl<F: Fabric> Faulty<F> {
    /// Let `faults` judge what passes through `inner`.
    ///
    /// # Errors
    /// The system has no descriptor left.
    pub fn new(inner: F, faults: Arc<Faults>) -> Result<Self> {
        let timer =
            TimerFd::new().map_err(|e| Error::system("no descriptor for the timer of fault rules", e))?;
        let mut faulty = Faulty {
            inner,
            faults,
            timer: Some(timer),
            wakes_ns: None,
            outbound: Held::default(),
            inbound: Held::default(),
            passing: None,
            parcels: Vec::new(),
            mishaps: Mishaps::default(),
        };
        faulty.set_timer();
        Ok(faulty)
    }

    /// Whether packets pass as if this were not here.
    #[inline]
    fn is_idle(&self) -> bool {
        !self.faults.is_loaded()
            && !self.mishaps.is_down()
            && self.outbound.is_empty()
            && self.inbound.is_empty()
    }

    fn set_timer(&mut self) {
        let held = [self.outbound.deadline_ns(), self.inbound.deadline_ns()];
        let event = self.mishaps.next_ns(&self.faults);
        let next_ns = held.into_iter().flatten().chain(event).min();
        if next_ns == self.wakes_ns {
            return;
        }
        self.wakes_ns = next_ns;
        if let (Some(timer), Some(next_ns)) = (&self.timer, next_ns) {
            timer.set(Duration::from_nanos(next_ns.saturating_sub(monotonic_ns())));
        }
    }

    #[cold]
    fn send_judged(&mut self, batch: &mut TxBatch) {
        for at in 0..batch.packets().len() {
            let packet = batch.packets()[at];
            let way = way_out(&packet.path);
            seal(&way, batch.run_mut(at, 1));
            if self.mishaps.is_down() {
                continue;
            }
            let bytes = batch.bytes(&packet);
            let now_ns = monotonic_ns();
            let passage = Passage {
                now_ns,
                direction: Direction::Out,
                way,
                bytes,
            };
            match self.faults.judge(&passage, &mut self.parcels) {
                Judgement::Untouched => {
                    self.let_pass(&packet.path, bytes);
                    self.outbound.note_passed(now_ns, way.src, way.dst, bytes);
                }
                Judgement::Changed => {
                    for parcel in std::mem::take(&mut self.parcels) {
                        if let Some((parcel, ())) = self.outbound.hold(now_ns, parcel, ()) {
                            self.send_as_it_is(&parcel);
                            self.outbound.note_passed(now_ns, way.src, way.dst, &parcel.bytes);
                        }
                    }
                }
            }
            self.send_due(now_ns);
        }
        self.send_passing();
        self.set_timer();
    }

    /// To be sent with others.
    fn let_pass(&mut self, path: &Path, bytes: &[u8]) {
        let batch = self
            .passing
            .get_or_insert_with(|| TxBatch::new(BATCH_BYTES, BATCH_PACKETS));
        if !batch.has_room(bytes.len()) {
            self.inner.send(batch);
            batch.clear();
        }
        if let Some(room) = batch.push(*path, bytes.len()) {
            room.copy_from_slice(bytes);
        }
    }

    fn send_passing(&mut self) {
        if let Some(batch) = self.passing.as_mut().filter(|batch| !batch.is_empty()) {
            self.inner.send(batch);
            batch.clear();
        }
    }

    fn send_as_it_is(&mut self, parcel: &Parcel) {
        self.send_passing();
        let path = Path {
            src: parcel.way.src,
            dst: parcel.way.dst,
            source_port: parcel.way.source_port,
            traffic_class: parcel.way.traffic_class,
            hop_limit: parcel.way.hop_limit,
        };
        self.inner.send_as_it_is(&path, &parcel.bytes);
    }

    fn send_due(&mut self, now_ns: u64) {
        while let Some((parcel, ())) = self.outbound.pop_due(now_ns) {
            if !self.mishaps.is_down() {
                self.send_as_it_is(&parcel);
            }
        }
    }

    #[cold]
    fn receive_judged(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let now_ns = monotonic_ns();
        if let (Some(timer), Some(_)) = (&self.timer, self.wakes_ns.filter(|wakes_ns| *wakes_ns <= now_ns)) {
            timer.clear();
            self.wakes_ns = None;
        }
        self.send_due(now_ns);
        let (faults, held, parcels) = (&self.faults, &mut self.inbound, &mut self.parcels);
        let is_down = self.mishaps.is_down();
        let mut arrived = Arrived { sink, count: 0 };
        arrived.due(held, now_ns);
        self.inner.recv(&mut |meta, bytes| {
            if is_down {
                return;
            }
            let way = Way {
                src: meta.src,
                dst: meta.dst,
                source_port: meta.source_port,
                traffic_class: meta.traffic_class,
                hop_limit: meta.hop_limit,
            };
            let passage = Passage {
                now_ns,
                direction: Direction::In,
                way,
                bytes,
            };
            match faults.judge(&passage, parcels) {
                Judgement::Untouched => {
                    arrived.take(meta, bytes);
                    held.note_passed(now_ns, way.src, way.dst, bytes);
                }
                Judgement::Changed => {
                    for parcel in parcels.drain(..) {
                        let meta = RxMeta {
                            traffic_class: parcel.way.traffic_class,
                            // A repaired ICRC is for the identification 0, an unbroken one for that of its place.
                            segment: meta.segment,
                            ..*meta
                        };
                        if let Some((parcel, meta)) = held.hold(now_ns, parcel, meta) {
                            arrived.take(&meta, &parcel.bytes);
                            held.note_passed(now_ns, way.src, way.dst, &parcel.bytes);
                        }
                    }
                }
            }
            arrived.due(held, now_ns);
        });
        let count = arrived.count;
        self.set_timer();
        count
    }
}

/// Hands over what arrives, and counts it.
struct Arrived<'a> {
    sink: &'a mut dyn FnMut(&RxMeta, &[u8]),
    count: usize,
}

impl Arrived<'_> {
    fn take(&mut self, meta: &RxMeta, bytes: &[u8]) {
        (self.sink)(meta, bytes);
        self.count += 1;
    }

    fn due(&mut self, held: &mut Held<RxMeta>, now_ns: u64) {
        while let Some((parcel, meta)) = held.pop_due(now_ns) {
            self.take(&meta, &parcel.bytes);
        }
    }
}

/// The UDP fabric sends from RoCE's own port, whatever the path suggests.
fn way_out(path: &Path) -> Way {
    Way {
        src: path.src,
        dst: path.dst,
        source_port: ROCE_V2_PORT,
        traffic_class: path.traffic_class,
        hop_limit: path.hop_limit,
    }
}

/// As it is sealed when it travels alone.
fn seal(way: &Way, packet: &mut [u8]) {
    if packet.len() < BTH_LEN + ICRC_LEN {
        return;
    }
    let flow = Flow {
        src: way.src,
        dst: way.dst,
        source_port: way.source_port,
        dest_port: ROCE_V2_PORT,
    };
    icrc::seal(&flow, 0, packet);
}

impl<F: Fabric> Fabric for Faulty<F> {
    fn send(&mut self, batch: &mut TxBatch) {
        match self.is_idle() {
            true => self.inner.send(batch),
            false => self.send_judged(batch),
        }
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        match self.is_idle() {
            true => self.inner.recv(sink),
            false => self.receive_judged(sink),
        }
    }

    fn fds(&self) -> Vec<RawFd> {
        let mut fds = self.inner.fds();
        fds.extend(self.timer.as_ref().map(|timer| timer.as_fd().as_raw_fd()));
        fds
    }

    fn port(&mut self) -> PortConfig {
        self.mishaps.hear(&self.faults);
        self.set_timer();
        let mut port = self.inner.port();
        self.mishaps.apply(&mut port);
        port
    }

    fn port_changed(&mut self) -> bool {
        let is_late = self
            .mishaps
            .next_ns(&self.faults)
            .is_some_and(|due_ns| due_ns <= monotonic_ns());
        is_late || self.inner.port_changed()
    }

    fn disturbance(&mut self) -> Option<(Event, Numbers)> {
        self.mishaps.disturbance()
    }

    fn judges_packets(&self) -> bool {
        true
    }

    fn close_in_child(&mut self) {
        self.inner.close_in_child();
        self.timer = None;
    }

    forward!(inner: send_as_it_is, counters, receive_pressure, unread_bytes, receive_buffer_bytes);
    forward!(inner: qpn_slice, multicast, is_on_this_machine, services, report_header_fields, depart);
}

#[cfg(all(test, not(loom)))]
mod tests;
