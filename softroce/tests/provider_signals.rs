//! Signals that arrive in the middle of any call do no harm, and never run on the background thread.

#[path = "provider/pair.rs"]
mod pair;

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use verbs_api::{CompletionChannel, CompletionQueue, Context as _, Notify, Object, ProtectionDomain, QpInit};

use pair::{End, join, open};

static SIGNALS: AtomicU64 = AtomicU64::new(0);
static ON_BACKGROUND_THREADS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
    let mut name = [0u8; 16];
    // SAFETY: sixteen writable bytes, as the call wants; it is a plain system call.
    unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) };
    if name.starts_with(b"softroce0-") {
        ON_BACKGROUND_THREADS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Raise SIGALRM every `microseconds` (0: never more), handled without restarting interrupted calls.
fn alarm_every(microseconds: i64) {
    let interval = libc::timeval {
        tv_sec: 0,
        tv_usec: microseconds,
    };
    let timer = libc::itimerval {
        it_interval: interval,
        it_value: interval,
    };
    // SAFETY: the structures are live and fully set; the handler only uses what a handler may.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut());
        libc::setitimer(libc::ITIMER_REAL, &raw const timer, std::ptr::null_mut());
    }
}

#[test]
fn a_storm_of_signals_disturbs_no_call() {
    let context = open();
    let channel = context.create_channel().unwrap();
    let (a, b) = (End::new(open(), None), End::new(context, Some(&channel)));
    join(&a, &b);
    alarm_every(200);
    for wr_id in 0..3_000 {
        b.cq.req_notify(Notify::Any).unwrap();
        b.recv(wr_id, 0, 4096);
        a.send(wr_id, 0, 4096);
        let event = channel.wait(Some(Duration::from_secs(10))).unwrap();
        drop(event.expect("an event within 10 s"));
        b.success(wr_id);
        a.success(wr_id);
        a.pd.create_qp(&QpInit::rc(&a.cq)).unwrap().destroy().unwrap();
    }
    alarm_every(0);
    assert!(SIGNALS.load(Ordering::Relaxed) > 10);
    assert_eq!(ON_BACKGROUND_THREADS.load(Ordering::Relaxed), 0);
    assert_eq!(a.context.device().counters().engine.retransmitted_bytes, 0);
}
