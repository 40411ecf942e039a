//! The copies for x86-64 Linux. Each function is a leaf in the section `softroce_copy`, uses no stack, and returns 0;
//! the text of [`super`] says why.
//!
//! x86 keeps stores in order and loads in order, so going up is release and acquire order.

use std::arch::{global_asm, naked_asm};
use std::ops::Range;

use super::Outcome;

impl Outcome {
    fn from_register(rax: u64) -> Self {
        if rax == 0 { Outcome::Done } else { Outcome::Faulted }
    }
}

/// Copy `length` bytes of the program's memory to ours.
///
/// # Safety
/// `from` was promised by the program, `to` is exclusively ours; both ranges are `length` bytes.
#[inline]
pub(in super::super) unsafe fn from_program(to: *mut u8, from: *const u8, length: usize) -> Outcome {
    // SAFETY: the caller's promise.
    Outcome::from_register(unsafe { softroce_copy_from_program(to, from, length) })
}

/// Copy `length` bytes of ours to the program's memory.
///
/// # Safety
/// `to` was promised by the program, nobody writes to `from`; both ranges are `length` bytes.
#[inline]
pub(in super::super) unsafe fn to_program(to: *mut u8, from: *const u8, length: usize) -> Outcome {
    // SAFETY: the caller's promise.
    Outcome::from_register(unsafe { softroce_copy_to_program(to, from, length) })
}

/// Atomically replace `*word` by `swap` if it equals `compare`; its old value goes to `old`.
///
/// # Safety
/// `word` was promised by the program and is aligned.
pub(in super::super) unsafe fn compare_swap(
    word: *mut u64,
    compare: u64,
    swap: u64,
    old: &mut u64,
) -> Outcome {
    // SAFETY: the caller's promise; `old` is ours.
    Outcome::from_register(unsafe { softroce_compare_swap(word, compare, swap, old) })
}

/// Atomically add to `*word`; its old value goes to `old`.
///
/// # Safety
/// `word` was promised by the program and is aligned.
pub(in super::super) unsafe fn fetch_add(word: *mut u64, add: u64, old: &mut u64) -> Outcome {
    // SAFETY: the caller's promise; `old` is ours.
    Outcome::from_register(unsafe { softroce_fetch_add(word, add, old) })
}

// Each shared object has its own: they must not be among its dynamic symbols.
global_asm!(".hidden __start_softroce_copy", ".hidden __stop_softroce_copy");

/// The addresses of the functions below.
pub(super) fn code_range() -> Range<usize> {
    unsafe extern "C" {
        // The linker defines these two for every section whose name is an identifier.
        #[link_name = "__start_softroce_copy"]
        static START: u8;
        #[link_name = "__stop_softroce_copy"]
        static STOP: u8;
    }
    // Without a function in it, a binary has no such section, and nobody defines the symbols.
    std::hint::black_box(softroce_copy_to_program as *const ());
    (&raw const START).addr()..(&raw const STOP).addr()
}

/// The body of a copy of rdx bytes from rsi to rdi. `$program` is the low byte of the register that holds the
/// program's address; `$load` and `$store` are the 16-byte moves, the aligned one on the program's side.
macro_rules! copy_body {
    ($program:literal, $load:literal, $store:literal) => {
        naked_asm!(
            // Move 1, 2, 4 and 8 bytes until the program's address is a multiple of 16. A step that does not fit
            // leaves fewer bytes than any wider one needs.
            concat!("test ", $program, ", 15"),
            "jz 5f",
            concat!("test ", $program, ", 1"),
            "jz 2f",
            "cmp rdx, 1",
            "jb 2f",
            "mov al, [rsi]",
            "mov [rdi], al",
            "add rsi, 1",
            "add rdi, 1",
            "sub rdx, 1",
            "2:",
            concat!("test ", $program, ", 2"),
            "jz 3f",
            "cmp rdx, 2",
            "jb 3f",
            "mov ax, [rsi]",
            "mov [rdi], ax",
            "add rsi, 2",
            "add rdi, 2",
            "sub rdx, 2",
            "3:",
            concat!("test ", $program, ", 4"),
            "jz 4f",
            "cmp rdx, 4",
            "jb 4f",
            "mov eax, [rsi]",
            "mov [rdi], eax",
            "add rsi, 4",
            "add rdi, 4",
            "sub rdx, 4",
            "4:",
            concat!("test ", $program, ", 8"),
            "jz 5f",
            "cmp rdx, 8",
            "jb 5f",
            "mov rax, [rsi]",
            "mov [rdi], rax",
            "add rsi, 8",
            "add rdi, 8",
            "sub rdx, 8",
            // 64 bytes a turn.
            "5:",
            "cmp rdx, 64",
            "jb 7f",
            "6:",
            concat!($load, " xmm0, [rsi]"),
            concat!($load, " xmm1, [rsi + 16]"),
            concat!($load, " xmm2, [rsi + 32]"),
            concat!($load, " xmm3, [rsi + 48]"),
            concat!($store, " [rdi], xmm0"),
            concat!($store, " [rdi + 16], xmm1"),
            concat!($store, " [rdi + 32], xmm2"),
            concat!($store, " [rdi + 48], xmm3"),
            "add rsi, 64",
            "add rdi, 64",
            "sub rdx, 64",
            "cmp rdx, 64",
            "jae 6b",
            // 16 bytes a turn.
            "7:",
            "cmp rdx, 16",
            "jb 8f",
            concat!($load, " xmm0, [rsi]"),
            concat!($store, " [rdi], xmm0"),
            "add rsi, 16",
            "add rdi, 16",
            "sub rdx, 16",
            "jmp 7b",
            // The rest, below 16, widest first.
            "8:",
            "test dl, 8",
            "jz 9f",
            "mov rax, [rsi]",
            "mov [rdi], rax",
            "add rsi, 8",
            "add rdi, 8",
            "9:",
            "test dl, 4",
            "jz 12f",
            "mov eax, [rsi]",
            "mov [rdi], eax",
            "add rsi, 4",
            "add rdi, 4",
            "12:",
            "test dl, 2",
            "jz 13f",
            "mov ax, [rsi]",
            "mov [rdi], ax",
            "add rsi, 2",
            "add rdi, 2",
            "13:",
            "test dl, 1",
            "jz 14f",
            "mov al, [rsi]",
            "mov [rdi], al",
            "14:",
            "xor eax, eax",
            "ret",
        )
    };
}

/// # Safety
/// As [`from_program`].
#[unsafe(naked)]
#[unsafe(link_section = "softroce_copy")]
unsafe extern "sysv64" fn softroce_copy_from_program(to: *mut u8, from: *const u8, length: usize) -> u64 {
    copy_body!("sil", "movdqa", "movdqu")
}

/// # Safety
/// As [`to_program`].
#[unsafe(naked)]
#[unsafe(link_section = "softroce_copy")]
unsafe extern "sysv64" fn softroce_copy_to_program(to: *mut u8, from: *const u8, length: usize) -> u64 {
    copy_body!("dil", "movdqu", "movdqa")
}

/// # Safety
/// As [`compare_swap`].
#[unsafe(naked)]
#[unsafe(link_section = "softroce_copy")]
unsafe extern "sysv64" fn softroce_compare_swap(
    word: *mut u64,
    compare: u64,
    swap: u64,
    old: *mut u64,
) -> u64 {
    naked_asm!(
        "mov rax, rsi",
        "lock cmpxchg [rdi], rdx",
        "mov [rcx], rax",
        "xor eax, eax",
        "ret",
    )
}

/// # Safety
/// As [`fetch_add`].
#[unsafe(naked)]
#[unsafe(link_section = "softroce_copy")]
unsafe extern "sysv64" fn softroce_fetch_add(word: *mut u64, add: u64, old: *mut u64) -> u64 {
    naked_asm!("lock xadd [rdi], rsi", "mov [rdx], rsi", "xor eax, eax", "ret")
}
