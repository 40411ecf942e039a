//! The way out of a fault that the module's text describes, tried with a handler.

use super::*;

/// As a provider's handler: faults in the copy's code become a return of 1, all others kill as before.
extern "C" fn handler(signal: i32, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a context of this type to a handler installed with SA_SIGINFO.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let pc = registers[libc::REG_RIP as usize] as usize;
    if !copy_code_range().contains(&pc) {
        // SAFETY: restoring the default is allowed in a handler; the fault comes again and kills.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    }
    let sp = registers[libc::REG_RSP as usize];
    // SAFETY: the functions of the range leave the stack alone, so the return address is on top.
    registers[libc::REG_RIP as usize] = unsafe { *(sp as *const i64) };
    registers[libc::REG_RSP as usize] = sp + 8;
    registers[libc::REG_RAX as usize] = 1;
}

const PAGE: usize = 4096;

/// Three pages, of which the middle one is gone.
fn pages_with_a_hole() -> *mut u8 {
    // SAFETY: a fresh private mapping, and the unmapping of a part of it.
    unsafe {
        let start = libc::mmap(
            std::ptr::null_mut(),
            3 * PAGE,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        );
        assert_ne!(start, libc::MAP_FAILED);
        assert_eq!(libc::munmap(start.add(PAGE), PAGE), 0);
        start.cast()
    }
}

#[test]
fn a_fault_on_memory_that_is_gone_ends_as_an_outcome_when_a_handler_takes_the_way_out() {
    // SAFETY: installs the handler above with a zeroed, then filled, action.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
    }
    let start = pages_with_a_hole();
    let mut own = vec![3u8; 2 * PAGE];
    for (offset, length) in [
        (0, PAGE + 1),
        (PAGE - 3, 8),
        (PAGE - 64, 200),
        (PAGE, 1),
        (PAGE, 2),
        (PAGE + 7, 1000),
    ] {
        // SAFETY: what is gone may fault; that is the test.
        unsafe {
            let program = start.add(offset);
            assert_eq!(
                to_program(program, own.as_ptr(), length),
                Outcome::Faulted,
                "{offset} {length}"
            );
            assert_eq!(
                from_program(own.as_mut_ptr(), program, length),
                Outcome::Faulted,
                "{offset} {length}"
            );
        }
    }
    let mut old = 0;
    // SAFETY: as above; the word is aligned.
    unsafe {
        let gone = start.add(PAGE).cast();
        assert_eq!(compare_swap(gone, 0, 1, &mut old), Outcome::Faulted);
        assert_eq!(fetch_add(gone, 1, &mut old), Outcome::Faulted);
        assert_eq!(to_program(start.add(2 * PAGE), own.as_ptr(), PAGE), Outcome::Done);
        libc::munmap(start.cast(), 3 * PAGE);
    }
}
