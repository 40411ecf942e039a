//! A process with open devices gets a child by the system call itself, past the C library.
//!
//! Such a child keeps the allocator as it was, locked if another thread was in it. So these tests have a process of their
//! own, and come one after the other.

#[path = "provider/child.rs"]
mod child;
#[path = "provider/pair.rs"]
mod pair;

use std::os::unix::fs::FileTypeExt as _;
use std::sync::{Mutex, PoisonError};

use verbs_api::{CompletionQueue, QueuePair, Wc};

use child::{in_child_made_by, ping};
use pair::over_udp;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A child made by the system call itself: no handler of the C library runs.
fn in_unseen_child(body: impl FnOnce(), parent: impl FnOnce()) {
    in_child_made_by(
        || {
            // SAFETY: as `fork`, for which the child has its own copy of everything.
            unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) as libc::pid_t }
        },
        body,
        parent,
    );
}

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn a_child_made_past_the_c_library_notices_at_its_first_call_and_closes_what_it_inherited() {
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (a, b) = over_udp();
    ping(&a, &b, 10);
    in_unseen_child(
        || {
            let inherited = open_descriptors();
            let mut wc = [Wc::default()];
            assert_eq!(a.cq.poll(&mut wc).unwrap_err().errno(), libc::ENODEV);
            assert_eq!(b.qp.query().unwrap_err().errno(), libc::ENODEV);
            // The event descriptors of the background threads and channels may stay, sockets may not.
            let left = open_descriptors();
            assert!(left + 10 < inherited, "{inherited}, {left}");
            let (c, d) = over_udp();
            ping(&c, &d, 10);
        },
        || ping(&a, &b, 100),
    );
    ping(&a, &b, 10);
}

#[test]
fn a_child_made_past_the_c_library_keeps_files_of_its_own_under_numbers_of_its_parents() {
    const FILES: usize = 60;
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let (a, b) = over_udp();
    ping(&a, &b, 10);
    in_unseen_child(
        || {
            // SAFETY: the child uses nothing of what this closes.
            unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 0) };
            let files: Vec<_> = (0..FILES)
                .map(|_| std::fs::File::open("/dev/null").unwrap())
                .collect();
            let mut wc = [Wc::default()];
            assert_eq!(a.cq.poll(&mut wc).unwrap_err().errno(), libc::ENODEV);
            let (c, d) = over_udp();
            ping(&c, &d, 10);
            for file in &files {
                assert!(file.metadata().unwrap().file_type().is_char_device());
            }
        },
        || ping(&a, &b, 100),
    );
    ping(&a, &b, 10);
}
