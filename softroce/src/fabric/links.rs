//! The links of a member: one connection to every other process on the same address.
//!
//! A member claims a slice by listening on a name made of address and slice, and connects to everybody who has claimed
//! another. The link carries packets that reached the wrong process, and its end tells at once that a member died,
//! however it died: the kernel closes it.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};

use roce_wire::cm::ServiceId;
use verbs_api::{Error, ErrorKind, Result};

use super::claim::ClaimName;
use super::control::{LinkMessage, MESSAGE_BYTES_MAX};
use super::services::{NotClaimed, Services};
use super::slice::{SLICE_COUNT, Slice, SliceSet};
use super::sys::{Connection, Epoll, Listener, Ready, Timer};

mod event;

pub(super) use event::{Event, NotSent};

/// Two for each other member: when two join at once, each connects to the other.
const LINKS_MAX: usize = 2 * SLICE_COUNT;
/// Messages taken from one link before the next one has its turn.
const MESSAGES_A_TURN_MAX: usize = 8;
/// Connections accepted in one turn.
const ACCEPTS_A_TURN_MAX: usize = 32;

/// How often the owner of a slice is looked for when packets for it keep coming.
const SEEK_PAUSE_NS: u64 = 1_000_000;

const TOKEN_LISTENER: u64 = u64::MAX;
const TOKEN_TIMER: u64 = u64::MAX - 1;
const TOKEN_OTHER: u64 = u64::MAX - 2;
/// With the lower bits of the service.
const TOKEN_SERVICE: u64 = 1 << 40;

#[derive(Debug)]
struct Link {
    connection: Connection,
    /// Known from the start on links that we made, else since the hello.
    peer: Option<Slice>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Links {
    address: IpAddr,
    scope_id: u32,
    own: Slice,
    listener: Option<Listener>,
    /// Services of RDMA CM that are ours.
    services: Services,
    epoll: Option<Epoll>,
    timer: Option<Timer>,
    timer_at_ns: Option<u64>,
    links: Box<[Option<Link>]>,
    /// For each slice the link to its owner.
    routes: Box<[Option<u16>]>,
    /// For each slice when its owner was last looked for in vain.
    sought_at_ns: Box<[u64]>,
    ready: Ready,
    cursor: usize,
    turn: usize,
}

impl Links {
    /// Claim a free slice of the address.
    pub(super) fn claim(address: IpAddr, scope_id: u32, seed: u64) -> Result<Self> {
        for slice in Slice::all_from(seed) {
            match Listener::claim(ClaimName::new(address, scope_id, slice).as_bytes()) {
                Ok(listener) => {
                    return Links::around(address, scope_id, slice, listener).map_err(|source| {
                        Error::system("cannot watch the links to other processes", source)
                    });
                }
                Err(error) if error.raw_os_error() == Some(libc::EADDRINUSE) => {}
                Err(error) => {
                    return Err(Error::system(
                        format!("cannot claim a part of the QPN space of {address}"),
                        error,
                    ));
                }
            }
        }
        Err(Error::new(
            ErrorKind::AddressInUse,
            format!(
                "255 processes share the address {address} already, which is all that it takes; use another address"
            ),
        ))
    }

    fn around(address: IpAddr, scope_id: u32, own: Slice, listener: Listener) -> io::Result<Self> {
        let epoll = Epoll::new()?;
        let timer = Timer::new()?;
        epoll.add(listener.as_raw_fd(), TOKEN_LISTENER)?;
        epoll.add(timer.as_raw_fd(), TOKEN_TIMER)?;
        Ok(Links {
            address,
            scope_id,
            own,
            listener: Some(listener),
            services: Services::new(address, scope_id),
            epoll: Some(epoll),
            timer: Some(timer),
            timer_at_ns: None,
            links: (0..LINKS_MAX).map(|_| None).collect(),
            routes: vec![None; SLICE_COUNT].into_boxed_slice(),
            sought_at_ns: vec![0; SLICE_COUNT].into_boxed_slice(),
            ready: Ready::default(),
            cursor: 0,
            turn: 0,
        })
    }

    /// Also watch this descriptor, which must outlive the links.
    pub(super) fn watch(&self, fd: RawFd) -> io::Result<()> {
        self.epoll
            .as_ref()
            .map_or(Ok(()), |epoll| epoll.add(fd, TOKEN_OTHER))
    }

    /// Connect to everybody who has claimed a slice already; `found` hears of each.
    pub(super) fn connect_all(&mut self, mut found: impl FnMut(Slice)) {
        let own = self.own;
        for slice in Slice::all_from(0).filter(|slice| *slice != own) {
            if self.connect(slice) {
                found(slice);
            }
        }
    }

    /// Connect to the owner of a slice that is not linked, if there is one; `true` when it is linked now. Owners that
    /// are not there are looked for at most once in a while.
    pub(super) fn seek(&mut self, slice: Slice, now_ns: u64) -> bool {
        let sought_at_ns = &mut self.sought_at_ns[slice.index()];
        let is_new =
            self.routes[slice.index()].is_none() && now_ns.saturating_sub(*sought_at_ns) >= SEEK_PAUSE_NS;
        if !is_new {
            return false;
        }
        *sought_at_ns = now_ns;
        self.connect(slice)
    }

    fn connect(&mut self, slice: Slice) -> bool {
        let name = ClaimName::new(self.address, self.scope_id, slice);
        // A member whose backlog is full, or who dies at this moment, is as good as absent.
        let Ok(Some(connection)) = Connection::to(name.as_bytes()) else {
            return false;
        };
        let mut out = [0; MESSAGE_BYTES_MAX];
        let hello = LinkMessage::Hello { from: self.own };
        connection.send(hello.write(&mut out), &[]).is_ok() && self.keep(connection, Some(slice))
    }

    pub(super) fn own(&self) -> Slice {
        self.own
    }

    /// See [`Services::claim`].
    pub(super) fn claim_service(&mut self, service: ServiceId) -> Result<()> {
        let epoll = self.epoll.as_ref();
        self.services.claim(service, |fd, key| match epoll {
            Some(epoll) => epoll.add(fd, TOKEN_SERVICE | u64::from(key)),
            None => Ok(()),
        })
    }

    /// Leave a service to others.
    pub(super) fn release_service(&mut self, service: ServiceId) {
        if let (Some(epoll), Some(listener)) = (&self.epoll, self.services.release(service)) {
            epoll.remove(listener.as_raw_fd());
        }
    }

    /// See [`Services::may_be_anothers`].
    pub(super) fn may_be_anothers(&self, service: ServiceId) -> bool {
        self.services.may_be_anothers(service)
    }

    /// See [`Services::pass_on`].
    pub(super) fn send_to_service(
        &self,
        service: ServiceId,
        head: &[u8],
        body: &[u8],
    ) -> Result<(), NotClaimed> {
        self.services.pass_on(service, head, body)
    }

    /// The descriptor that becomes readable when [`next_event`](Links::next_event) has something.
    pub(super) fn fd(&self) -> Option<RawFd> {
        self.epoll.as_ref().map(AsRawFd::as_raw_fd)
    }

    /// When the timer should run out, on the monotonic clock.
    pub(super) fn set_timer(&mut self, at_ns: Option<u64>) {
        if self.timer_at_ns != at_ns {
            self.timer_at_ns = at_ns;
            if let Some(timer) = &self.timer {
                timer.set(at_ns);
            }
        }
    }

    /// Send packets or a message to the owner of a slice: at once or not at all.
    pub(super) fn send(&self, to: Slice, head: &[u8], body: &[u8]) -> Result<(), NotSent> {
        let route = self.routes[to.index()].ok_or(NotSent::NotLinked)?;
        let link = self.links[usize::from(route)]
            .as_ref()
            .ok_or(NotSent::NotLinked)?;
        link.connection.send(head, body).map_err(|_| NotSent::DoesNotRead)
    }

    /// Send a message to all members.
    pub(super) fn send_to_all(&self, message: &LinkMessage<'_>) {
        self.send_to(Slice::all_from(0).collect(), message);
    }

    /// Send a message to some members.
    pub(super) fn send_to(&self, members: SliceSet, message: &LinkMessage<'_>) {
        let mut out = [0; MESSAGE_BYTES_MAX];
        let bytes = message.write(&mut out);
        for slice in Slice::all_from(0).filter(|slice| members.contains(*slice)) {
            // A member that does not read will check its entry when it runs again.
            let _ = self.send(slice, bytes, &[]);
        }
    }

    /// See what is ready, waiting `timeout_ms` at most; then [`next_event`](Links::next_event) gives it piece by piece.
    pub(super) fn look(&mut self, timeout_ms: i32) {
        self.ready = self
            .epoll
            .as_ref()
            .map_or_else(Ready::default, |epoll| epoll.ready(timeout_ms));
        self.cursor = 0;
        self.turn = 0;
    }

    /// The next piece of what [`look`](Links::look) found. `buffer` takes a message; it should hold a whole train.
    pub(super) fn next_event<'b>(&mut self, buffer: &'b mut [u8]) -> Option<Event<'b>> {
        loop {
            match *self.ready.tokens().get(self.cursor)? {
                TOKEN_LISTENER => {
                    self.cursor += 1;
                    self.accept_waiting(None);
                }
                token if token & TOKEN_SERVICE != 0 && token < TOKEN_OTHER => {
                    self.cursor += 1;
                    self.accept_waiting(Some(token as u32));
                }
                TOKEN_TIMER => {
                    self.cursor += 1;
                    if let Some(timer) = &self.timer {
                        timer.acknowledge();
                    }
                    self.timer_at_ns = None;
                    return Some(Event::Timer);
                }
                TOKEN_OTHER => {
                    self.cursor += 1;
                    return Some(Event::Other);
                }
                token => {
                    let number = token as usize;
                    let Some(link) = self.links.get(number).and_then(Option::as_ref) else {
                        self.next_link();
                        continue;
                    };
                    match link.connection.recv(buffer) {
                        Ok(length) if length > 0 => {
                            self.turn += 1;
                            if self.turn == MESSAGES_A_TURN_MAX {
                                self.next_link();
                            }
                            return Some(self.heard(number, &buffer[..length]));
                        }
                        Err(error) if is_nothing_now(&error) => self.next_link(),
                        // It has gone without reading all that we sent, which is told once, and before what it sent.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
                        Ok(_) | Err(_) => {
                            self.next_link();
                            if let Some(slice) = self.hang_up(number) {
                                return Some(Event::Left(slice));
                            }
                        }
                    }
                }
            }
        }
    }

    /// In a forked child: close everything, telling nobody. (The set of descriptors is shared with the parent, so
    /// nothing may be taken out of it.)
    pub(super) fn close(&mut self) {
        self.listener = None;
        self.services.close();
        self.timer = None;
        self.links.fill_with(|| None);
        self.epoll = None;
        self.ready = Ready::default();
    }

    fn next_link(&mut self) {
        self.cursor += 1;
        self.turn = 0;
    }

    /// Of those who join, or of those who have a request for a service of ours.
    fn accept_waiting(&mut self, service: Option<u32>) {
        for _ in 0..ACCEPTS_A_TURN_MAX {
            let listener = match service {
                Some(key) => self.services.listener(key),
                None => self.listener.as_ref(),
            };
            let Some(connection) = listener.and_then(Listener::accept) else {
                return;
            };
            self.keep(connection, None);
        }
    }

    /// Put a connection into the table; `false` when that is full.
    fn keep(&mut self, connection: Connection, peer: Option<Slice>) -> bool {
        let Some(number) = self.links.iter().position(Option::is_none) else {
            return false;
        };
        let Some(epoll) = &self.epoll else { return false };
        if epoll.add(connection.as_raw_fd(), number as u64).is_err() {
            return false;
        }
        self.links[number] = Some(Link { connection, peer });
        if let Some(slice) = peer {
            self.routes[slice.index()] = Some(number as u16);
        }
        true
    }

    /// What a message on link `number` means.
    fn heard<'b>(&mut self, number: usize, bytes: &'b [u8]) -> Event<'b> {
        let Some(link) = self.links[number].as_mut() else {
            return Event::Noise;
        };
        match (link.peer, LinkMessage::parse(bytes)) {
            (None, Some(LinkMessage::Hello { from })) if from != self.own => {
                link.peer = Some(from);
                let route = &mut self.routes[from.index()];
                if route.is_some() {
                    // Both of us connected; the link that is there already serves.
                    return Event::Noise;
                }
                *route = Some(number as u16);
                Event::Joined(from)
            }
            // Who brings a request does not say who it is, and goes at once.
            (None, Some(LinkMessage::Adopt(adopted))) => Event::Request(adopted),
            (Some(peer), Some(message)) => Event::Message(peer, message),
            (None, _) | (_, None) => Event::Noise,
        }
    }

    /// Close a link; the slice whose owner is now not linked any more.
    fn hang_up(&mut self, number: usize) -> Option<Slice> {
        let slice = self.links[number].take()?.peer?;
        let route = &mut self.routes[slice.index()];
        if *route != Some(number as u16) {
            return None;
        }
        let another = self
            .links
            .iter()
            .position(|link| link.as_ref().is_some_and(|link| link.peer == Some(slice)));
        *route = another.map(|number| number as u16);
        another.is_none().then_some(slice)
    }
}

fn is_nothing_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::super::sys::random_u64;
    use super::*;

    /// All that the links of a member have to tell now, in words.
    fn heard(links: &mut Links) -> Vec<String> {
        let mut buffer = vec![0; 1 << 16];
        let mut all = Vec::new();
        // The first look may find a new connection alone.
        for _ in 0..3 {
            links.look(0);
            while let Some(event) = links.next_event(&mut buffer) {
                all.push(format!("{event:?}"));
            }
        }
        all
    }

    #[test]
    fn what_a_member_said_before_it_left_is_heard_though_it_left_without_listening() {
        let [_, a, b, c] = random_u64().to_be_bytes()[..4] else {
            unreachable!("four bytes")
        };
        let address = IpAddr::V4(Ipv4Addr::new(127, a | 1, b, c));
        let mut stays = Links::claim(address, 0, 1).unwrap();
        let mut leaves = Links::claim(address, 0, 1).unwrap();
        leaves.connect_all(|_| {});
        let leaver = leaves.own();
        assert_eq!(heard(&mut stays), [format!("Joined({leaver:?})")]);
        // One message lies unread at the leaver, which has sent two meanwhile.
        let mut out = [0; MESSAGE_BYTES_MAX];
        let question = LinkMessage::Missed { round: 1 };
        stays.send(leaver, question.write(&mut out), &[]).unwrap();
        for round in [2, 3] {
            let message = LinkMessage::Missed { round };
            leaves.send(stays.own(), message.write(&mut out), &[]).unwrap();
        }
        drop(leaves);
        let said = |round: u32| format!("{:?}", Event::Message(leaver, LinkMessage::Missed { round }));
        assert_eq!(heard(&mut stays), [said(2), said(3), format!("Left({leaver:?})")]);
    }
}
