//! Shows softroce's devices to programs that look at `/sys/class/infiniband` and `/dev/infiniband`.
//!
//! A small shared object that `softroce run` preloads beside the drop-in. It stands in front of those functions of the C
//! library that take a path, and turns paths below a few places of `/sys` and `/dev` (`places`) into paths of a tree
//! of real files, which `softroce run` has made and which `SOFTROCE_PATHS` names (`root`). No privilege is needed, and
//! no namespace: the kernel sees ordinary files of the user.
//!
//! What every function here keeps to (`with_place`):
//!
//! - a path that is none of ours reaches the C library as it came, after a look at its first bytes: no allocation, no
//!   lock, no system call, and little stack, so that signal handlers and children of `vfork` may call;
//! - `errno` is what the C library left;
//! - a path that is NULL, too long, or climbs by `..` before it reaches one of our places is passed on unchanged;
//! - what the C library answers with a path (`realpath`, `getcwd`) leads back to the place that the program knows.
//!
//! System calls that a program makes without the C library (Go, static programs) are not seen.

#![cfg_attr(test, allow(dead_code))] // In tests the functions have no names by which they could be called.

mod border;
mod functions;
mod place;
mod places;
mod root;
