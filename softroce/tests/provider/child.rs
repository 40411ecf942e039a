//! A child process and what it does.

use std::thread;
use std::time::{Duration, Instant};

use crate::pair::End;

/// Run `body` in a child that `fork` makes; its exit status must be 0 within ten seconds. Meanwhile `parent` runs here.
pub fn in_child_made_by(fork: impl FnOnce() -> libc::pid_t, body: impl FnOnce(), parent: impl FnOnce()) {
    let pid = fork();
    assert!(pid >= 0);
    if pid == 0 {
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if outcome.is_ok() { 0 } else { 1 }) };
    }
    parent();
    let start = Instant::now();
    loop {
        let mut status = 0;
        // SAFETY: a live place for the status of our own child.
        if unsafe { libc::waitpid(pid, &raw mut status, libc::WNOHANG) } == pid {
            assert!(
                libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0,
                "the child failed: {status:#x}"
            );
            return;
        }
        if start.elapsed() > Duration::from_secs(10) {
            // SAFETY: our own child.
            unsafe { libc::kill(pid, libc::SIGKILL) };
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn ping(a: &End, b: &End, rounds: u64) {
    for wr_id in 0..rounds {
        b.recv(wr_id, 0, 64);
        a.send(wr_id, 0, 64);
        b.success(wr_id);
        a.success(wr_id);
    }
}
