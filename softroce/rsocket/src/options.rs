//! What a program may choose about a socket.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use verbs_api::Result;

use crate::errors::{Errno, error};
use crate::family::Family;
use crate::message::{MAPPINGS_MAX, RING_BYTES_MAX};

/// Bytes of the rings, both ways.
const RING_BYTES_DEFAULT: u32 = 1 << 17;
/// A smaller ring is rounded up to this.
const RING_BYTES_MIN: u32 = 256;
/// Work requests that may be outstanding, each way.
const QUEUE_DEFAULT: u16 = 256;
/// A shorter queue is rounded up to this.
pub(crate) const QUEUE_MIN: u16 = 4;
/// A longer one is cut to this.
const QUEUE_MAX: u16 = 16_384;
const INLINE_DEFAULT: u32 = 64;
const INLINE_MAX: u32 = 512;

/// Options; those of sizes take effect when the socket connects, or its listener accepts; of datagrams, when the first one
/// is sent or received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Bytes on their way out that a socket holds (`SO_SNDBUF`).
    pub send_bytes: u32,
    /// Bytes that it holds until they are read (`SO_RCVBUF`).
    pub receive_bytes: u32,
    /// Sends outstanding (`RDMA_SQSIZE`).
    pub send_queue: u16,
    /// Messages that may be on their way to it (`RDMA_RQSIZE`).
    pub receive_queue: u16,
    /// Messages up to so many bytes are sent inline (`RDMA_INLINE`).
    pub inline_bytes: u32,
    /// Buffers that the peer may map for this side to write to (`RDMA_IOMAPSIZE`).
    pub mappings: u16,
    /// `SO_REUSEADDR`.
    pub reuse_address: bool,
    /// `IPV6_V6ONLY`.
    pub only_own_family: bool,
    /// `SO_LINGER`: how long closing waits for data to arrive. `None` leaves it to us.
    pub linger: Option<Duration>,
    /// `TCP_NODELAY`. Remembered; nothing is ever delayed.
    pub no_delay: bool,
    /// `SO_KEEPALIVE`. Remembered; a waiting socket always looks whether its peer is alive.
    pub keep_alive: bool,
    /// `SO_OOBINLINE`. Remembered; there is no urgent data.
    pub urgent_inline: bool,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            send_bytes: RING_BYTES_DEFAULT,
            receive_bytes: RING_BYTES_DEFAULT,
            send_queue: QUEUE_DEFAULT,
            receive_queue: QUEUE_DEFAULT,
            inline_bytes: INLINE_DEFAULT,
            mappings: 0,
            reuse_address: false,
            only_own_family: false,
            linger: None,
            no_delay: false,
            keep_alive: false,
            urgent_inline: false,
        }
    }
}

impl Options {
    /// The bytes of a buffer for a program that asks for `asked`; as for other sockets, any number is answered with the
    /// nearest that works.
    pub fn ring_bytes(asked: i64) -> u32 {
        asked.clamp(RING_BYTES_MIN.into(), RING_BYTES_MAX.into()) as u32
    }

    /// Likewise the length of a queue.
    pub fn queue(asked: i64) -> u16 {
        asked.clamp(QUEUE_MIN.into(), QUEUE_MAX.into()) as u16
    }

    /// Likewise the bytes of inline data.
    pub fn inline(asked: i64) -> u32 {
        asked.clamp(0, INLINE_MAX.into()) as u32
    }

    /// Likewise the number of mappings. EINVAL: negative, or more than there can be.
    pub fn mappings(asked: i64) -> Result<u16> {
        match u16::try_from(asked) {
            Ok(asked) if asked <= MAPPINGS_MAX => Ok(asked),
            _ => Err(error(
                Errno::EINVAL,
                format!("a socket has 0 to {MAPPINGS_MAX} mappings, not {asked}"),
            )),
        }
    }
}

/// What a program has set about a socket, of whichever kind.
#[derive(Debug)]
pub struct Settings {
    family: Family,
    is_nonblocking: AtomicBool,
    options: Mutex<Options>,
}

impl Settings {
    pub(crate) fn new(family: Family, options: Options) -> Self {
        Settings {
            family,
            is_nonblocking: AtomicBool::new(false),
            options: Mutex::new(options),
        }
    }

    /// The family of the socket's addresses.
    pub fn family(&self) -> Family {
        self.family
    }

    /// Let no call wait (`O_NONBLOCK`).
    pub fn set_nonblocking(&self, nonblocking: bool) {
        self.is_nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Whether no call waits.
    pub fn is_nonblocking(&self) -> bool {
        self.is_nonblocking.load(Ordering::Relaxed)
    }

    /// The options now.
    pub fn options(&self) -> Options {
        *self.options.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Change options; see [`Options`] for when that takes effect.
    pub fn set_options(&self, change: impl FnOnce(&mut Options)) {
        change(&mut self.options.lock().unwrap_or_else(PoisonError::into_inner));
    }
}
