//! Sending: datagrams and trains out of one buffer, in as few calls as can be.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;
use std::ptr;

use super::{CONTROL_BYTES, Control, UDP_SEGMENT, UdpSocket, to_sockaddr};

/// Messages handed to the kernel in one call.
const MESSAGES_A_CALL_MAX: usize = 32;

/// One datagram, or one train of them, within a buffer of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::fabric) struct Message {
    /// First byte in the buffer.
    pub(in crate::fabric) start: u32,
    /// All its bytes.
    pub(in crate::fabric) len: u32,
    /// Datagrams in it.
    pub(in crate::fabric) packets: u32,
    /// Bytes of each datagram but the last, which may be shorter. Only looked at when there are several.
    pub(in crate::fabric) segment_bytes: u16,
    /// Where to.
    pub(in crate::fabric) to: SocketAddr,
    /// TOS or traffic class, where it is not the default.
    pub(in crate::fabric) traffic_class: Option<u8>,
    /// TTL or hop limit, where it is not the default.
    pub(in crate::fabric) hop_limit: Option<u8>,
}

/// Memory for the arguments of a send, so that sending does not allocate.
pub(in crate::fabric) struct SendArena {
    headers: Box<[libc::mmsghdr]>,
    parts: Box<[libc::iovec]>,
    names: Box<[libc::sockaddr_storage]>,
    controls: Box<[Control]>,
}

// SAFETY: the pointers in `headers` and `parts` are only followed within `UdpSocket::send`, which has set them all
// in the same call; between calls they mean nothing.
unsafe impl Send for SendArena {}

impl std::fmt::Debug for SendArena {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SendArena").finish_non_exhaustive()
    }
}

impl SendArena {
    pub(in crate::fabric) fn new() -> Self {
        // SAFETY: all-zero headers, parts and names are valid (null pointers with length 0, no family).
        let (header, name) = unsafe { (mem::zeroed::<libc::mmsghdr>(), mem::zeroed()) };
        let part = libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        };
        SendArena {
            headers: vec![header; MESSAGES_A_CALL_MAX].into_boxed_slice(),
            parts: vec![part; MESSAGES_A_CALL_MAX].into_boxed_slice(),
            names: vec![name; MESSAGES_A_CALL_MAX].into_boxed_slice(),
            controls: vec![Control([0; CONTROL_BYTES]); MESSAGES_A_CALL_MAX].into_boxed_slice(),
        }
    }

    /// Fill in everything of message number `at` of a call.
    fn prepare(&mut self, at: usize, buffer: &[u8], message: &Message) {
        let bytes = &buffer[message.start as usize..(message.start + message.len) as usize];
        self.parts[at] = libc::iovec {
            iov_base: bytes.as_ptr().cast_mut().cast(),
            iov_len: bytes.len(),
        };
        let (name, name_length) = to_sockaddr(&message.to);
        self.names[at] = name;
        let control_length = write_control(&mut self.controls[at], message);
        let header = &mut self.headers[at].msg_hdr;
        header.msg_name = (&raw mut self.names[at]).cast();
        header.msg_namelen = name_length;
        header.msg_iov = &raw mut self.parts[at];
        header.msg_iovlen = 1;
        header.msg_control = if control_length == 0 {
            ptr::null_mut()
        } else {
            self.controls[at].0.as_mut_ptr().cast()
        };
        header.msg_controllen = control_length as _;
        header.msg_flags = 0;
    }
}

impl UdpSocket {
    /// Send the first of `messages` (which lie in `buffer`), and as many of the next as one call takes.
    /// Returns how many went; an error concerns the first alone.
    ///
    /// # Panics
    /// When a message lies outside the buffer, or there is none.
    pub(in crate::fabric) fn send(
        &self,
        arena: &mut SendArena,
        buffer: &[u8],
        messages: &[Message],
    ) -> io::Result<usize> {
        assert!(!messages.is_empty(), "there must be something to send");
        if let [single] = messages
            && is_plain(single)
        {
            return self.send_plain(buffer, single);
        }
        let count = messages.len().min(MESSAGES_A_CALL_MAX);
        for (at, message) in messages[..count].iter().enumerate() {
            arena.prepare(at, buffer, message);
        }
        let sent = if count == 1 {
            // SAFETY: the header was filled in just now with pointers to live memory of `arena` and `buffer`, and
            // with their lengths; the kernel only reads them.
            // As in `receive`, not a cancellation point.
            let taken = unsafe {
                libc::syscall(
                    libc::SYS_sendmsg,
                    self.as_raw_fd(),
                    &raw const arena.headers[0].msg_hdr,
                    0,
                )
            };
            if taken < 0 { -1 } else { 1 }
        } else {
            // SAFETY: as above, for `count` headers, which is at most what the arena holds; the kernel writes
            // `msg_len` of each.
            unsafe {
                libc::sendmmsg(
                    self.as_raw_fd(),
                    arena.headers.as_mut_ptr(),
                    count as libc::c_uint,
                    0,
                )
            }
        };
        if sent < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(sent as usize)
        }
    }

    /// The cheapest way for the commonest case: one datagram and nothing special about it.
    fn send_plain(&self, buffer: &[u8], message: &Message) -> io::Result<usize> {
        let bytes = &buffer[message.start as usize..(message.start + message.len) as usize];
        let (name, name_length) = to_sockaddr(&message.to);
        // SAFETY: pointers and lengths describe `bytes` and `name`; the kernel only reads them.
        let taken = unsafe {
            libc::syscall(
                libc::SYS_sendto,
                self.as_raw_fd(),
                bytes.as_ptr(),
                bytes.len(),
                0,
                &raw const name,
                name_length,
            )
        };
        if taken < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(1)
        }
    }
}

fn is_plain(message: &Message) -> bool {
    message.packets == 1 && message.traffic_class.is_none() && message.hop_limit.is_none()
}

/// Write the control messages that `message` needs; returns their bytes, 0 for none.
fn write_control(control: &mut Control, message: &Message) -> usize {
    let mut writer = ControlWriter { control, used: 0 };
    if message.packets > 1 {
        writer.push(
            libc::IPPROTO_UDP,
            UDP_SEGMENT,
            &message.segment_bytes.to_ne_bytes(),
        );
    }
    let (level, class_type, limit_type) = match message.to {
        SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
        SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    if let Some(class) = message.traffic_class {
        writer.push(level, class_type, &i32::from(class).to_ne_bytes());
    }
    if let Some(limit) = message.hop_limit {
        writer.push(level, limit_type, &i32::from(limit).to_ne_bytes());
    }
    writer.used
}

struct ControlWriter<'a> {
    control: &'a mut Control,
    used: usize,
}

impl ControlWriter<'_> {
    fn push(&mut self, level: libc::c_int, kind: libc::c_int, value: &[u8]) {
        const HEADER_BYTES: usize = mem::size_of::<libc::cmsghdr>();
        let space = (HEADER_BYTES + value.len()).next_multiple_of(mem::size_of::<usize>());
        let Some(place) = self.control.0.get_mut(self.used..self.used + space) else {
            debug_assert!(false, "three small control messages fit");
            return;
        };
        // Fields are written one by one: their widths differ between C libraries.
        // SAFETY: an all-zero cmsghdr is valid.
        let mut header: libc::cmsghdr = unsafe { mem::zeroed() };
        header.cmsg_len = (HEADER_BYTES + value.len()) as _;
        header.cmsg_level = level;
        header.cmsg_type = kind;
        place.fill(0);
        // SAFETY: `place` has room for the header; the write does not ask for alignment.
        unsafe { place.as_mut_ptr().cast::<libc::cmsghdr>().write_unaligned(header) };
        place[HEADER_BYTES..HEADER_BYTES + value.len()].copy_from_slice(value);
        self.used += space;
    }
}
