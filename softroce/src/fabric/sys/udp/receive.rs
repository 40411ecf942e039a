//! Receiving: several datagrams or trains in one call.

use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::ptr;

use super::{CONTROL_BYTES, Control, NOWHERE, UDP_GRO, UdpSocket, from_sockaddr};

/// Reads of one call. Each has room for a whole train, and only the pages that are used cost memory.
const READS_A_CALL_MAX: usize = 8;
/// A train is at most what an IP packet holds.
const READ_BYTES: usize = 1 << 16;

/// What one read brought: a datagram, or a train of them.
#[derive(Clone, Copy, Debug)]
pub(in crate::fabric) struct Datagram<'a> {
    pub(in crate::fabric) bytes: &'a [u8],
    /// Bytes of each datagram in it but the last, which may be shorter. At least 1.
    pub(in crate::fabric) segment_bytes: usize,
    pub(in crate::fabric) from: SocketAddr,
    pub(in crate::fabric) traffic_class: u8,
    pub(in crate::fabric) hop_limit: u8,
    /// Datagrams that the kernel has dropped at this socket so far, where it says so.
    pub(in crate::fabric) overflows: Option<u32>,
    /// The buffer was too small and the rest is lost.
    pub(in crate::fabric) is_cut_off: bool,
}

/// Memory for what is received.
pub(in crate::fabric) struct ReceiveArena {
    headers: Box<[libc::mmsghdr]>,
    parts: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
    bytes: Box<[u8]>,
    /// Reads to try in the next call: a single one while calls find little, since a second costs a futile look at an
    /// empty queue.
    next_reads: usize,
    /// Whether the last call found all that it tried to. One in a row may be a conversation, two are a stream.
    was_full: bool,
}

// SAFETY: the pointers in `headers` and `parts` are only followed within `UdpSocket::receive`, which has set them all
// in the same call; between calls they mean nothing.
unsafe impl Send for ReceiveArena {}

impl std::fmt::Debug for ReceiveArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReceiveArena").finish_non_exhaustive()
    }
}

impl ReceiveArena {
    pub(in crate::fabric) fn new() -> Self {
        // SAFETY: all-zero headers and names are valid (null pointers with length 0, no family).
        let (header, name) = unsafe { (mem::zeroed::<libc::mmsghdr>(), mem::zeroed()) };
        let part = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        ReceiveArena {
            headers: vec![header; READS_A_CALL_MAX].into_boxed_slice(),
            parts: vec![part; READS_A_CALL_MAX].into_boxed_slice(),
            names: vec![name; READS_A_CALL_MAX].into_boxed_slice(),
            controls: vec![Control([0; CONTROL_BYTES]); READS_A_CALL_MAX].into_boxed_slice(),
            bytes: vec![0; READS_A_CALL_MAX * READ_BYTES].into_boxed_slice(),
            next_reads: 1,
            was_full: false,
        }
    }

    fn prepare(&mut self, at: usize) {
        let bytes = &mut self.bytes[at * READ_BYTES..][..READ_BYTES];
        self.parts[at] = libc::iovec {
            iov_base: bytes.as_mut_ptr().cast(),
            iov_len: READ_BYTES,
        };
        let header = &mut self.headers[at].msg_hdr;
        header.msg_name = (&raw mut self.names[at]).cast();
        header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_iov = &raw mut self.parts[at];
        header.msg_iovlen = 1;
        header.msg_control = self.controls[at].0.as_mut_ptr().cast();
        header.msg_controllen = CONTROL_BYTES as _;
        header.msg_flags = 0;
    }

    /// Read number `at` of the last [`UdpSocket::receive`].
    pub(in crate::fabric) fn datagram(&self, at: usize) -> Datagram<'_> {
        let header = &self.headers[at];
        let length = (header.msg_len as usize).min(READ_BYTES);
        let mut datagram = Datagram {
            bytes: &self.bytes[at * READ_BYTES..][..length],
            segment_bytes: length.max(1),
            from: from_sockaddr(&self.names[at]).unwrap_or(NOWHERE),
            traffic_class: 0,
            hop_limit: 0,
            overflows: None,
            is_cut_off: header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        };
        #[allow(clippy::unnecessary_cast)] // Its width differs between C libraries.
        let control_length = (header.msg_hdr.msg_controllen as usize).min(CONTROL_BYTES);
        read_control(&self.controls[at].0[..control_length], &mut datagram);
        datagram
    }
}

impl UdpSocket {
    /// One round of reads; returns how many brought something. An error of the socket counts as nothing there
    /// (unconnected UDP sockets have none that concern receiving).
    pub(in crate::fabric) fn receive(&self, arena: &mut ReceiveArena) -> usize {
        let reads = arena.next_reads;
        for at in 0..reads {
            arena.prepare(at);
        }
        let got = if reads == 1 {
            // SAFETY: the header was filled in just now with pointers to live memory of `arena` and with their
            // lengths.
            // The C library's function is a cancellation point, which costs as much as a tenth of an empty read.
            let length = unsafe {
                libc::syscall(
                    libc::SYS_recvmsg,
                    self.as_raw_fd(),
                    &raw mut arena.headers[0].msg_hdr,
                    0,
                )
            };
            arena.headers[0].msg_len = length.max(0) as libc::c_uint;
            usize::from(length >= 0)
        } else {
            // SAFETY: as above, for `reads` headers, which is at most what the arena holds; no timeout is given.
            let count = unsafe {
                libc::recvmmsg(
                    self.as_raw_fd(),
                    arena.headers.as_mut_ptr(),
                    reads as libc::c_uint,
                    0,
                    ptr::null_mut(),
                )
            };
            count.max(0) as usize
        };
        let is_full = got == reads;
        arena.next_reads = match (is_full, arena.was_full) {
            (true, true) => (reads * 2).min(READS_A_CALL_MAX),
            (true, false) => reads,
            (false, _) => 1,
        };
        arena.was_full = is_full;
        got
    }
}

/// Take what the kernel says beside the bytes.
fn read_control(mut control: &[u8], datagram: &mut Datagram<'_>) {
    const HEADER_BYTES: usize = mem::size_of::<libc::cmsghdr>();
    while control.len() >= HEADER_BYTES {
        // SAFETY: there are enough bytes, any of which make a valid header; the read does not ask for alignment.
        let header = unsafe { control.as_ptr().cast::<libc::cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast)] // As above.
        let length = header.cmsg_len as usize;
        if length < HEADER_BYTES || length > control.len() {
            return;
        }
        let value = Value(&control[HEADER_BYTES..length]);
        match (header.cmsg_level, header.cmsg_type) {
            (libc::IPPROTO_UDP, UDP_GRO) => {
                datagram.segment_bytes = (value.number() as u16).max(1).into();
            }
            // The kernel gives the type of service as one byte, the others as integers.
            (libc::IPPROTO_IP, libc::IP_TOS) => datagram.traffic_class = value.first(),
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => datagram.traffic_class = value.number() as u8,
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                datagram.hop_limit = value.number() as u8;
            }
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => datagram.overflows = Some(value.number() as u32),
            _ => {}
        }
        let space = length
            .next_multiple_of(mem::size_of::<usize>())
            .min(control.len());
        control = &control[space..];
    }
}

/// The bytes of one control message.
struct Value<'a>(&'a [u8]);

impl Value<'_> {
    fn first(&self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    fn number(&self) -> i32 {
        self.0
            .first_chunk()
            .map_or_else(|| self.first().into(), |bytes| i32::from_ne_bytes(*bytes))
    }
}
