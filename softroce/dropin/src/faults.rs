//! Programs that unmap memory which is still registered.
//!
//! A card does not care: it pinned the pages. Here the copy faults, and without help the program would die of it. So
//! the handlers of SIGSEGV and SIGBUS are ours, in front of those that the program had when it opened its first device:
//! a fault within the copy's own code ends the copy, and with it the one request, as a protection error; all other
//! faults are the program's, as if we were not there. A program that installs a handler of its own later has the
//! faults of the copy, too.

#[cfg(target_arch = "x86_64")]
pub(crate) use handler::install;

/// Elsewhere the copy has no way out.
#[cfg(not(target_arch = "x86_64"))]
pub(crate) fn install() {}

#[cfg(target_arch = "x86_64")]
mod handler {
    use std::ffi::{c_int, c_void};
    use std::mem::MaybeUninit;
    use std::ptr::{null, null_mut};
    use std::sync::Once;
    use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

    use softroce::copy_code_range;

    /// What the program had: for SIGSEGV and SIGBUS.
    static BEFORE: [AtomicPtr<libc::sigaction>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];
    /// First and last address of the copy's code and what is behind it.
    static CODE: [AtomicUsize; 2] = [const { AtomicUsize::new(0) }; 2];

    type WithInfo = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
    type Plain = extern "C" fn(c_int);

    /// Catch faults of the copy from now on. Once a process; a forked child inherits it.
    pub(crate) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let code = copy_code_range();
            CODE[0].store(code.start, Ordering::Relaxed);
            CODE[1].store(code.end, Ordering::Relaxed);
            for (signal, before) in [libc::SIGSEGV, libc::SIGBUS].into_iter().zip(&BEFORE) {
                install_for(signal, before);
            }
        });
    }

    fn install_for(signal: c_int, before: &AtomicPtr<libc::sigaction>) {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: a valid place; nothing is changed.
        if unsafe { libc::sigaction(signal, null(), old.as_mut_ptr()) } != 0 {
            return;
        }
        // SAFETY: filled in by the call.
        let old = unsafe { old.assume_init() };
        let mut ours = old;
        ours.sa_sigaction = on_fault as WithInfo as usize;
        // The program's handler may count on its own stack, and on what is blocked while it runs; calls of a program
        // without a handler go on.
        let goes_on = match old.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => libc::SA_RESTART,
            _ => old.sa_flags & libc::SA_RESTART,
        };
        ours.sa_flags = old.sa_flags & libc::SA_NODEFER | goes_on | libc::SA_SIGINFO | libc::SA_ONSTACK;
        // Before ours can run; kept for good.
        before.store(Box::into_raw(Box::new(old)), Ordering::Release);
        // SAFETY: a filled action, whose handler does only what handlers may.
        unsafe { libc::sigaction(signal, &raw const ours, null_mut()) };
    }

    extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        // SAFETY: the kernel passes these to a handler with SA_SIGINFO. A signal that somebody sent is no fault.
        let is_fault = unsafe { (*info).si_code } > 0;
        // SAFETY: as above.
        if is_fault && unsafe { end_the_copy(context) } {
            return;
        }
        pass_on(signal, info, context);
    }

    /// Return 1 from the function that faulted, if it is one of the copy's.
    ///
    /// # Safety
    /// `context` is what the kernel passed.
    unsafe fn end_the_copy(context: *mut c_void) -> bool {
        // SAFETY: the caller's promise.
        let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
        let code = CODE[0].load(Ordering::Relaxed)..CODE[1].load(Ordering::Relaxed);
        if !code.contains(&(registers[libc::REG_RIP as usize] as usize)) {
            return false;
        }
        let sp = registers[libc::REG_RSP as usize];
        // SAFETY: the copy's functions leave the stack alone: on top of it is where they return to.
        registers[libc::REG_RIP as usize] = unsafe { *(sp as *const i64) };
        registers[libc::REG_RSP as usize] = sp + 8;
        registers[libc::REG_RAX as usize] = 1;
        true
    }

    /// What would have happened without us.
    fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
        let before = &BEFORE[usize::from(signal == libc::SIGBUS)];
        // SAFETY: NULL, or stored once and kept for good.
        let before = unsafe { before.load(Ordering::Acquire).as_ref() };
        let handler = before.map_or(libc::SIG_DFL, |before| before.sa_sigaction);
        let wants_info = before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0);
        // SAFETY: the kernel passed it.
        let is_fault = unsafe { (*info).si_code } > 0;
        match handler {
            // Nobody is waiting for what somebody sent.
            libc::SIG_IGN if !is_fault => {}
            // SAFETY: restoring the default is allowed in a handler; the fault comes again, and ends the program.
            libc::SIG_DFL | libc::SIG_IGN => unsafe {
                libc::signal(signal, libc::SIG_DFL);
                if !is_fault {
                    libc::raise(signal);
                }
            },
            handler if wants_info => {
                // SAFETY: the program installed it as a handler of this kind.
                let handler = unsafe { std::mem::transmute::<usize, WithInfo>(handler) };
                handler(signal, info, context);
            }
            handler => {
                // SAFETY: as above.
                let handler = unsafe { std::mem::transmute::<usize, Plain>(handler) };
                handler(signal);
            }
        }
    }
}
