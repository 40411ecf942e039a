//! A thread of which nothing is lost to leak checkers in a forked child.
//!
//! A child has none of its parent's threads, but their memory: what only a thread's stack pointed at looks lost when the
//! child ends, and LeakSanitizer would report it in a program that knows nothing of the thread. So it is told to leave
//! alone what the thread allocates, from the start on: that is why the thread is not one of the standard library, which
//! allocates before and after.

use std::ffi::{CStr, CString, c_void};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

type Work = Box<dyn FnOnce() + Send>;

/// A running thread. Dropped without being [joined](Self::join), it runs on.
#[derive(Debug)]
pub(crate) struct Thread {
    id: libc::pthread_t,
}

impl Thread {
    /// Run `work` on a new thread with a stack of so many bytes; of the name the kernel keeps 15 bytes.
    ///
    /// # Errors
    /// EAGAIN: there are too many threads.
    pub(crate) fn spawn(
        name: &str,
        stack_bytes: usize,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<Thread> {
        let checker = LeakChecker::find();
        checker.look_away();
        let name = CString::new(name.as_bytes()).unwrap_or_default();
        let named = move || {
            name_this_thread(&name);
            work();
        };
        let started = start(stack_bytes, Box::new(named));
        checker.look_again();
        started.map(|id| Thread { id })
    }

    /// Wait for its end.
    pub(crate) fn join(self) {
        // SAFETY: the thread was made joinable, and this is the one place that joins it.
        unsafe { libc::pthread_join(self.id, std::ptr::null_mut()) };
    }
}

fn start(stack_bytes: usize, work: Work) -> io::Result<libc::pthread_t> {
    let work = Box::into_raw(Box::new(work));
    let mut id = 0;
    // SAFETY: the attributes are initialised first; `run` takes the box over when the thread starts.
    let code = unsafe {
        let mut attributes = std::mem::zeroed::<libc::pthread_attr_t>();
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstacksize(&raw mut attributes, stack_bytes);
        let code = libc::pthread_create(&raw mut id, &raw const attributes, run, work.cast());
        libc::pthread_attr_destroy(&raw mut attributes);
        code
    };
    if code == 0 {
        return Ok(id);
    }
    // SAFETY: no thread has it.
    drop(unsafe { Box::from_raw(work) });
    Err(io::Error::from_raw_os_error(code))
}

extern "C" fn run(work: *mut c_void) -> *mut c_void {
    // For good: this thread works on what others own.
    LeakChecker::find().look_away();
    // SAFETY: `start` gave the box away to this thread.
    let work = unsafe { Box::from_raw(work.cast::<Work>()) };
    // The message of a panic is written by its hook.
    let _ = catch_unwind(AssertUnwindSafe(work));
    std::ptr::null_mut()
}

fn name_this_thread(name: &CStr) {
    // The kernel refuses longer ones.
    const NAME_MAX: usize = 15;
    let mut short = [0; NAME_MAX + 1];
    let bytes = name.to_bytes();
    let length = bytes.len().min(NAME_MAX);
    short[..length].copy_from_slice(&bytes[..length]);
    // SAFETY: the name ends with a zero byte.
    unsafe { libc::pthread_setname_np(libc::pthread_self(), short.as_ptr().cast()) };
}

/// LeakSanitizer, where the program runs under it.
struct LeakChecker {
    disable: *mut c_void,
    enable: *mut c_void,
}

impl LeakChecker {
    fn find() -> LeakChecker {
        // SAFETY: C strings; a name that nobody has gives NULL.
        let find = |name: &CStr| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        LeakChecker {
            disable: find(c"__lsan_disable"),
            enable: find(c"__lsan_enable"),
        }
    }

    /// What this thread allocates from now on is no leak.
    fn look_away(&self) {
        call(self.disable);
    }

    /// The end of one [`look_away`](Self::look_away).
    fn look_again(&self) {
        call(self.enable);
    }
}

fn call(function: *mut c_void) {
    if !function.is_null() {
        // SAFETY: both functions of the sanitizer take nothing and return nothing.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(function)() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn work_is_done_by_a_thread_of_that_name_before_it_is_joined() {
        let done = Arc::new(AtomicBool::new(false));
        let flag = done.clone();
        let work = move || {
            let name = std::fs::read_to_string("/proc/thread-self/comm").unwrap_or_default();
            flag.store(name == "a-name-of-more-\n", Ordering::Release);
        };
        Thread::spawn("a-name-of-more-than-fifteen", 64 * 1024, work)
            .unwrap()
            .join();
        assert!(done.load(Ordering::Acquire));
        assert_eq!(Arc::strong_count(&done), 1);
    }

    #[test]
    fn a_panic_ends_the_thread_alone() {
        Thread::spawn("panics", 256 * 1024, || panic!("expected by this test"))
            .unwrap()
            .join();
    }
}
