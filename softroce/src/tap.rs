//! A tap on a fabric: every packet, both ways, into a pcapng file that Wireshark and `softroce decode` read.
//!
//! Packets are recorded one by one with their IP and UDP headers, also those that travelled as a train (a capture on the
//! interface would show one huge datagram). What a socket does not show is filled in: the IPv4 identification is the one
//! that the ICRC was computed with. Sent packets stand in the file when they have been handed to the system, whether
//! or not it took them.
//!
//! The file is complete after every call of [`send`](Fabric::send) and [`recv`](Fabric::recv) that moved packets, so
//! a process may exit or be killed at any moment. What is written at a time is whole, and goes to the end of the file, so
//! that the processes of a job may record into one. A disk that fills up ends the recording, not the traffic.

use std::io::{self, Write};
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use roce_wire::ROCE_V2_PORT;
use roce_wire::pcap::{Direction, LinkType, NgWriter};
use softroce_engine::{RxMeta, TxBatch};
use verbs_api::{Error, Result};

use crate::clock::Clock;
use crate::fabric::Fabric;
use crate::fabric::forward::forward;
use crate::lock::Mutex;
use frame::{FRAME_BYTES_MAX, FrameBuilder, Headers};

mod file;
mod frame;

use file::Contents;
pub use file::LAST_BYTES;

/// Bytes collected before they are written.
const BUFFER_BYTES: usize = 1 << 18;
/// What a packet takes besides its bytes, at most.
const BLOCK_BYTES: usize = 64;
/// Hop limit of packets that leave it to the system.
const HOP_LIMIT_DEFAULT: u8 = 64;

/// A capture file, which several taps of one process may share.
#[derive(Clone)]
pub struct Capture {
    shared: Arc<Mutex<Recorder>>,
    clock: Arc<dyn Clock>,
    /// What to add to the clock for nanoseconds since 1970.
    epoch_offset_ns: u64,
}

impl std::fmt::Debug for Capture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Capture")
            .field("shared", &self.shared)
            .finish_non_exhaustive()
    }
}

impl Capture {
    /// Create the file, or empty it unless another process is recording there: then add to it. `%p` in its name becomes
    /// the number of the process. Times are those of the clock, moved to now.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn create(path: &FilePath, clock: Arc<dyn Clock>) -> Result<Self> {
        Capture::open(path, Contents::Replace, clock)
    }

    /// As [`create`](Self::create), but keep what is in the file.
    ///
    /// # Errors
    /// The file cannot be created or written.
    pub fn add_to(path: &FilePath, clock: Arc<dyn Clock>) -> Result<Self> {
        Capture::open(path, Contents::Keep, clock)
    }

    fn open(path: &FilePath, contents: Contents, clock: Arc<dyn Clock>) -> Result<Self> {
        let path = PathBuf::from(
            path.to_string_lossy()
                .replace("%p", &std::process::id().to_string()),
        );
        let file = file::open_shared(&path, contents);
        Capture::into_file(&path, file.map(|file| Box::new(file) as _), clock)
    }

    /// Keep the last packets of this process in two files in `directory`, of which the older one is written anew when
    /// the other is full: [`LAST_BYTES`] together at most.
    ///
    /// # Errors
    /// The files cannot be created or written.
    pub fn last(directory: &FilePath, clock: Arc<dyn Clock>) -> Result<Self> {
        let output = file::Rotating::create(directory);
        Capture::into_file(directory, output.map(|output| Box::new(output) as _), clock)
    }

    fn into_file(
        path: &FilePath,
        output: io::Result<Box<dyn Write + Send>>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self> {
        let failed =
            |error| Error::system(format!("cannot write the capture file {}", path.display()), error);
        let output = output.map_err(failed)?;
        let epoch_ns = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_nanos() as u64);
        let epoch_offset_ns = epoch_ns.saturating_sub(clock.now().as_nanos());
        let capture = Capture::write_to(output, clock, epoch_offset_ns).map_err(failed)?;
        Ok(capture)
    }

    /// Record into anything else, with times counted from the start of the clock plus an offset.
    ///
    /// # Errors
    /// Those of the output.
    pub fn write_to(
        output: Box<dyn Write + Send>,
        clock: Arc<dyn Clock>,
        epoch_offset_ns: u64,
    ) -> io::Result<Self> {
        let sink = Sink {
            output,
            buffer: Vec::with_capacity(BUFFER_BYTES),
        };
        let mut writer = NgWriter::new(sink, LinkType::RawIp)?;
        writer.flush()?;
        let recorder = Recorder {
            writer: Some(writer),
            frame: FrameBuilder::new(),
            unwritten: 0,
        };
        Ok(Capture {
            shared: Arc::new(Mutex::new(recorder)),
            clock,
            epoch_offset_ns,
        })
    }

    fn now_ns(&self) -> u64 {
        self.epoch_offset_ns + self.clock.now().as_nanos()
    }
}

/// A fabric whose packets are recorded.
#[derive(Debug)]
pub struct Tap<F> {
    inner: F,
    /// `None` in a forked child.
    capture: Option<Capture>,
}

impl<F: Fabric> Tap<F> {
    /// Record what passes through `inner`.
    pub fn new(inner: F, capture: Capture) -> Self {
        Tap {
            inner,
            capture: Some(capture),
        }
    }
}

impl<F: Fabric> Fabric for Tap<F> {
    fn send(&mut self, batch: &mut TxBatch) {
        self.inner.send(batch);
        let Some(capture) = self.capture.as_ref().filter(|_| !batch.is_empty()) else {
            return;
        };
        let now_ns = capture.now_ns();
        let mut recorder = capture.shared.lock();
        for packet in batch.packets() {
            let path = packet.path;
            let headers = Headers {
                src: path.src,
                dst: path.dst,
                // The one that it was sealed for; see the UDP fabric.
                source_port: ROCE_V2_PORT,
                traffic_class: path.traffic_class,
                hop_limit: if path.hop_limit == 0 {
                    HOP_LIMIT_DEFAULT
                } else {
                    path.hop_limit
                },
            };
            recorder.record(now_ns, Direction::Outbound, &headers, batch.bytes(packet));
        }
        recorder.flush();
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let Some(capture) = &self.capture else {
            return self.inner.recv(sink);
        };
        let mut recorder = None;
        let mut now_ns = 0;
        // Looking at an empty socket costs neither a lock nor a clock.
        let received = self.inner.recv(&mut |meta, packet| {
            let recorder = recorder.get_or_insert_with(|| {
                now_ns = capture.now_ns();
                capture.shared.lock()
            });
            let headers = Headers {
                src: meta.src,
                dst: meta.dst,
                source_port: meta.source_port,
                traffic_class: meta.traffic_class,
                hop_limit: meta.hop_limit,
            };
            recorder.record(now_ns, Direction::Inbound, &headers, packet);
            sink(meta, packet);
        });
        if let Some(mut recorder) = recorder {
            recorder.flush();
        }
        received
    }

    fn close_in_child(&mut self) {
        self.inner.close_in_child();
        // Another thread of the parent may have held the lock when the child was made; then the file stays open in
        // the child, which never writes to it.
        if let Some(mut recorder) = self
            .capture
            .as_ref()
            .and_then(|capture| capture.shared.try_lock())
        {
            recorder.abandon();
        }
        // Its memory is left alone: freeing is not allowed here.
        std::mem::forget(self.capture.take());
    }

    forward!(inner: send_as_it_is, fds, counters, receive_pressure, unread_bytes, receive_buffer_bytes);
    forward!(inner: port, port_changed, disturbance, judges_packets, qpn_slice);
    forward!(inner: multicast, is_on_this_machine, services, report_header_fields, depart);
}

/// The writing side, shared by the taps.
struct Recorder {
    /// `None` after an error.
    writer: Option<NgWriter<Sink>>,
    frame: FrameBuilder,
    /// Bytes in the buffer, or somewhat more.
    unwritten: usize,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder")
            .field("is_writing", &self.writer.is_some())
            .finish_non_exhaustive()
    }
}

impl Recorder {
    fn record(&mut self, now_ns: u64, direction: Direction, headers: &Headers, packet: &[u8]) {
        if self.unwritten + FRAME_BYTES_MAX + BLOCK_BYTES > BUFFER_BYTES {
            // Whole blocks are written at a time: other processes may write to the file as well.
            self.flush();
        }
        let Some(writer) = &mut self.writer else { return };
        let Some(frame) = self.frame.build(headers, packet) else {
            return;
        };
        self.unwritten += frame.len() + BLOCK_BYTES;
        if let Err(error) = writer.write_directed(now_ns, frame, Some(direction), None) {
            self.give_up(&error);
        }
    }

    fn flush(&mut self) {
        self.unwritten = 0;
        if let Some(Err(error)) = self.writer.as_mut().map(NgWriter::flush) {
            self.give_up(&error);
        }
    }

    fn give_up(&mut self, error: &io::Error) {
        tracing::warn!("the capture ends here, its file cannot be written: {error}");
        self.writer = None;
    }

    /// Forget what is not written yet, without closing or freeing anything.
    fn abandon(&mut self) {
        std::mem::forget(self.writer.take());
    }
}

/// Collects what is written until it is flushed.
struct Sink {
    output: Box<dyn Write + Send>,
    buffer: Vec<u8>,
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush()?;
        }
        self.buffer.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let written = self.output.write_all(&self.buffer);
        self.buffer.clear();
        written?;
        self.output.flush()
    }
}

// A packet never has to bypass the buffer.
const _: () = assert!(FRAME_BYTES_MAX + BLOCK_BYTES < BUFFER_BYTES);

#[cfg(test)]
mod tests;
