//! A process whose connections rest uses no processor.

#[path = "provider/pair.rs"]
mod pair;

use std::thread;
use std::time::Duration;

use verbs_api::{CompletionQueue, Notify};

use pair::over_udp;

/// Processor time of this process, all threads.
fn processor_time() -> Duration {
    // SAFETY: the structure is plain data, and filled in by the call.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let time = |t: libc::timeval| Duration::new(t.tv_sec as u64, t.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}

// One test only: another one's work would be counted too.
#[test]
fn an_idle_process_uses_no_measurable_processor_time() {
    let (a, b) = over_udp();
    for wr_id in 0..1_000 {
        b.recv(wr_id, 0, 64);
        a.send(wr_id, 0, 64);
        b.success(wr_id);
        a.success(wr_id);
    }
    a.cq.req_notify(Notify::Any).unwrap();
    thread::sleep(Duration::from_millis(50));
    let before = processor_time();
    thread::sleep(Duration::from_secs(2));
    let used = processor_time() - before;
    assert!(used < Duration::from_millis(20), "{used:?} of 2 s");
}
