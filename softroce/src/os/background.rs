//! Threads that the program does not know of, and must not be kept alive by.
//!
//! A process ends with its last thread. A program whose main thread ends by `pthread_exit` counts on that; with a card it
//! has no other threads than its own. So a background thread that finds none but its like ends as well, and the C library
//! sees the last one off as it would have the program's: by `exit`, with status 0.

use std::fs::File;
use std::io::Read;
use std::sync::atomic::{AtomicU32, Ordering};

static RUNNING: AtomicU32 = AtomicU32::new(0);

/// One background thread, as long as it lives.
#[derive(Debug)]
pub(crate) struct BackgroundThread(());

impl BackgroundThread {
    pub(crate) fn begin() -> BackgroundThread {
        RUNNING.fetch_add(1, Ordering::Relaxed);
        BackgroundThread(())
    }

    /// Whether all threads of the program have ended: then its main thread is one of the dead, which stays until the
    /// process ends. Some 10 µs. False where it cannot be known.
    pub(crate) fn is_without_program(&self) -> bool {
        let mut text = [0; 512];
        let length = File::open("/proc/self/stat").and_then(|mut stat| stat.read(&mut text));
        let threads = length.ok().and_then(|length| threads_after_main(&text[..length]));
        threads.is_some_and(|threads| threads <= RUNNING.load(Ordering::Relaxed))
    }
}

impl Drop for BackgroundThread {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// In a forked child, which has none of its parent's threads.
pub(crate) fn no_background_threads() {
    RUNNING.store(0, Ordering::Relaxed);
}

/// How many threads live, of a process whose main thread has ended; from the text of `/proc/self/stat`.
fn threads_after_main(text: &[u8]) -> Option<u32> {
    // Fields 3 and 20 of proc_pid_stat(5); the name before them may hold anything.
    const THREADS_AFTER_STATE: usize = 20 - 3 - 1;
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let mut fields = str::from_utf8(&text[name_end + 1..])
        .ok()?
        .split_ascii_whitespace();
    if fields.next()? != "Z" {
        return None;
    }
    let threads: u32 = fields.nth(THREADS_AFTER_STATE)?.parse().ok()?;
    threads.checked_sub(1)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn threads_are_counted_once_the_main_thread_has_ended() {
        let stat = |state: &str| {
            format!("77 (a) Z (b) {state} 1 77 77 0 -1 4194560 9 0 0 0 1 2 0 0 20 0 3 0 812 0 0 1844 0\n")
        };
        assert_eq!(threads_after_main(stat("Z").as_bytes()), Some(2));
        assert_eq!(threads_after_main(stat("S").as_bytes()), None);
        assert_eq!(threads_after_main(b"77 (a) Z 1"), None);
        assert_eq!(threads_after_main(b""), None);
    }

    #[test]
    fn a_program_that_runs_is_there() {
        assert!(!BackgroundThread::begin().is_without_program());
    }
}
