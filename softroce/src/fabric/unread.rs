//! What processes on this machine have not read yet of what was sent to them over UC and UD.
//!
//! Nobody acknowledges those services, and a socket of the usual size overflows while its owner waits for a processor.
//! A wire would carry the packets no faster than a card takes them in; here the receiver says how far it has come: behind
//! every [`MARK_BYTES`] goes a mark, a control packet with the sum of all bytes before it, and who reads it sends it back.
//! Marks are for peers on this machine alone, where sockets keep the order of packets.
//!
//! Sans-I/O. A peer that does not send marks back (it is stopped, or another program) is waited for once, for
//! [`PATIENCE_NS`], and then no more until it does.

use std::net::IpAddr;

use super::slice::Slice;

/// Bytes between two marks, at least.
const MARK_BYTES: u64 = 24 << 10;
/// How long a mark may take: a process gets a processor in that time even when several want each.
const PATIENCE_NS: u64 = 200_000_000;
/// Peers that are followed at once; of further ones nothing is known.
const PEERS_MAX: usize = 64;

/// A process: its address and its slice of the queue pair numbers.
pub(super) type Process = (IpAddr, Slice);

/// Whether marks come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Peer {
    Answers,
    Silent,
}

#[derive(Clone, Copy, Debug)]
struct Account {
    process: Process,
    /// Sums of bytes since the account was opened: sent, sent before the last mark, read by the peer.
    sent: u64,
    marked: u64,
    read: u64,
    peer: Peer,
    /// When the oldest mark that is under way left, or the last one came back.
    waiting_since_ns: u64,
    used_at_ns: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Unread {
    accounts: Vec<Account>,
    /// The account that was used last.
    last: usize,
}

impl Unread {
    pub(super) fn new() -> Self {
        Unread {
            accounts: Vec::with_capacity(PEERS_MAX),
            last: 0,
        }
    }

    /// So many bytes, as the receiving socket counts them, have gone to a peer. Returns the number for a mark that must
    /// follow them, if one must.
    pub(super) fn note_sent(&mut self, now_ns: u64, process: Process, bytes: u64) -> Option<u64> {
        let account = self.account(now_ns, process);
        account.used_at_ns = now_ns;
        account.sent += bytes;
        if account.sent - account.marked < MARK_BYTES {
            return None;
        }
        if account.marked == account.read || account.peer == Peer::Silent {
            account.waiting_since_ns = now_ns;
        }
        account.marked = account.sent;
        Some(account.marked)
    }

    /// A mark has come back.
    pub(super) fn note_read(&mut self, now_ns: u64, process: Process, number: u64) {
        let Some(account) = self
            .accounts
            .iter_mut()
            .find(|account| account.process == process)
        else {
            return;
        };
        // Anybody may send such a packet: it cannot confirm what was not sent, nor take anything back.
        if (account.read..=account.marked).contains(&number) {
            account.read = number;
            account.peer = Peer::Answers;
            account.waiting_since_ns = now_ns;
        }
    }

    /// Most bytes that lie unread at one peer.
    pub(super) fn most(&mut self, now_ns: impl FnOnce() -> u64) -> u64 {
        let unread = |account: &Account| account.sent - account.read;
        if self.accounts.iter().all(|account| unread(account) < MARK_BYTES) {
            return 0; // The usual case, and no look at the clock.
        }
        let now_ns = now_ns();
        let mut most = 0;
        for account in &mut self.accounts {
            let waits = account.marked > account.read;
            if waits && now_ns.saturating_sub(account.waiting_since_ns) > PATIENCE_NS {
                account.peer = Peer::Silent;
            }
            if account.peer == Peer::Answers {
                most = most.max(unread(account));
            }
        }
        most
    }

    fn account(&mut self, now_ns: u64, process: Process) -> &mut Account {
        let known = |account: &Account| account.process == process;
        if !self.accounts.get(self.last).is_some_and(known) {
            self.last = match self.accounts.iter().position(known) {
                Some(at) => at,
                None => self.open_account(now_ns, process),
            };
        }
        &mut self.accounts[self.last]
    }

    /// A new account, in the place of the one that was not used for longest when there are too many.
    fn open_account(&mut self, now_ns: u64, process: Process) -> usize {
        let account = Account {
            process,
            sent: 0,
            marked: 0,
            read: 0,
            peer: Peer::Answers,
            waiting_since_ns: now_ns,
            used_at_ns: now_ns,
        };
        if self.accounts.len() < PEERS_MAX {
            self.accounts.push(account);
            return self.accounts.len() - 1;
        }
        let ages = self
            .accounts
            .iter()
            .enumerate()
            .min_by_key(|(_, account)| account.used_at_ns);
        let at = ages.map_or(0, |(at, _)| at);
        self.accounts[at] = account;
        at
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn process(number: u8) -> Process {
        (IpAddr::V4(Ipv4Addr::LOCALHOST), Slice::new(number).unwrap())
    }

    #[test]
    fn a_mark_follows_so_many_bytes_and_its_return_tells_that_they_were_read() {
        let mut unread = Unread::new();
        assert_eq!(unread.note_sent(0, process(1), MARK_BYTES - 1), None);
        assert_eq!(unread.note_sent(0, process(1), 1), Some(MARK_BYTES));
        assert_eq!(unread.note_sent(5, process(1), 10), None);
        assert_eq!(unread.most(|| 6), MARK_BYTES + 10);
        unread.note_read(7, process(1), MARK_BYTES);
        assert_eq!(
            unread.most(|| 8),
            0,
            "what no mark follows is too little to count"
        );
    }

    #[test]
    fn a_peer_that_is_silent_is_waited_for_once_until_it_answers() {
        let mut unread = Unread::new();
        unread.note_sent(0, process(1), MARK_BYTES);
        assert_eq!(unread.most(|| PATIENCE_NS), MARK_BYTES);
        assert_eq!(unread.most(|| PATIENCE_NS + 1), 0);
        unread.note_sent(PATIENCE_NS + 2, process(1), MARK_BYTES);
        assert_eq!(unread.most(|| PATIENCE_NS + 3), 0);
        unread.note_read(PATIENCE_NS + 4, process(1), MARK_BYTES);
        assert_eq!(unread.most(|| PATIENCE_NS + 5), MARK_BYTES);
    }

    #[test]
    fn a_number_that_was_not_sent_or_is_older_than_the_last_one_means_nothing() {
        let mut unread = Unread::new();
        unread.note_sent(0, process(1), MARK_BYTES);
        unread.note_sent(0, process(1), MARK_BYTES);
        unread.note_read(1, process(1), 2 * MARK_BYTES + 1);
        unread.note_read(1, process(2), MARK_BYTES);
        assert_eq!(unread.most(|| 2), 2 * MARK_BYTES);
        unread.note_read(1, process(1), 2 * MARK_BYTES);
        unread.note_read(1, process(1), MARK_BYTES);
        assert_eq!(unread.most(|| 2), 0);
    }

    #[test]
    fn of_too_many_peers_the_one_unused_for_longest_is_forgotten() {
        let mut unread = Unread::new();
        for number in 1..=PEERS_MAX as u8 + 1 {
            unread.note_sent(number.into(), process(number), MARK_BYTES);
        }
        assert_eq!(unread.accounts.len(), PEERS_MAX);
        assert!(
            unread
                .accounts
                .iter()
                .all(|account| account.process != process(1))
        );
    }
}
