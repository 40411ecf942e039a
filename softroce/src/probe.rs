//! Whether memory that a program registers is there at all.
//!
//! A card pins the pages at registration and answers EFAULT when it cannot. `MADV_POPULATE_*` does nearly that: it
//! faults every page in for reading or writing without changing a byte. Kernels before 5.14, and mappings that it does
//! not know, are judged by `/proc/self/maps`.

use std::fs;

use verbs_api::{Error, ErrorKind, Result};

use crate::os;

/// What the engine will do with the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Read,
    Write,
}

/// EFAULT unless all of `addr .. addr + length` can be reached so. An empty or wrapping range is the engine's to judge.
pub(crate) fn check(addr: usize, length: usize, reach: Reach) -> Result<()> {
    let Some(end) = addr.checked_add(length) else {
        return Ok(());
    };
    if length == 0 {
        return Ok(());
    }
    let page = os::page_size();
    let start = addr & !(page - 1);
    let Some(end_of_pages) = end.checked_next_multiple_of(page) else {
        return Ok(());
    };
    match os::populate(start, end_of_pages - start, reach == Reach::Write) {
        Ok(()) => Ok(()),
        Err(libc::EINVAL) if mapped(addr, end, reach) => Ok(()),
        Err(_) => Err(Error::new(
            ErrorKind::Fault,
            format!(
                "the range {addr:#x}..{end:#x} cannot be {} by this process: it is not mapped, or not with that right",
                match reach {
                    Reach::Read => "read",
                    Reach::Write => "written",
                }
            ),
        )),
    }
}

/// Whether the list of mappings covers the range with the right. An unreadable list is no reason to refuse.
fn mapped(start: usize, end: usize, reach: Reach) -> bool {
    let Ok(maps) = fs::read_to_string("/proc/self/maps") else {
        return true;
    };
    covers(&maps, start, end, reach)
}

fn covers(maps: &str, start: usize, end: usize, reach: Reach) -> bool {
    let mut reached = start;
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (Some(range), Some(rights)) = (fields.next(), fields.next()) else {
            continue;
        };
        let Some((low, high)) = range.split_once('-') else {
            continue;
        };
        let (Ok(low), Ok(high)) = (usize::from_str_radix(low, 16), usize::from_str_radix(high, 16)) else {
            continue;
        };
        if high <= reached {
            continue;
        }
        let right = match reach {
            Reach::Read => 'r',
            Reach::Write => 'w',
        };
        if low > reached || !rights.contains(right) {
            return false;
        }
        reached = high;
        if reached >= end {
            return true;
        }
    }
    false
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn own_memory_can_be_reached_and_keeps_its_bytes() {
        let mut bytes = vec![7u8; 10_000];
        let addr = bytes.as_mut_ptr() as usize;
        check(addr + 1, 9_000, Reach::Write).unwrap();
        check(addr + 1, 9_000, Reach::Read).unwrap();
        assert!(bytes.iter().all(|b| *b == 7));
    }

    #[test]
    fn unmapped_memory_is_refused() {
        for reach in [Reach::Read, Reach::Write] {
            assert_eq!(check(0x1000, 8, reach).unwrap_err().errno(), libc::EFAULT);
            assert_eq!(
                check(0xffff_8000_0000_0000, 8, reach).unwrap_err().errno(),
                libc::EFAULT
            );
        }
    }

    #[test]
    fn read_only_memory_is_refused_for_writing_alone() {
        static CONSTANT: [u8; 64] = [1; 64];
        let addr = CONSTANT.as_ptr() as usize;
        check(addr, 64, Reach::Read).unwrap();
        assert_eq!(check(addr, 64, Reach::Write).unwrap_err().errno(), libc::EFAULT);
    }

    #[test]
    fn a_range_with_a_hole_is_not_covered() {
        let maps = "1000-3000 rw-p 0 0:0 0\n3000-4000 r--p 0 0:0 0 /x\n6000-7000 rw-p 0 0:0 0\n";
        assert!(covers(maps, 0x1800, 0x2fff, Reach::Write));
        assert!(covers(maps, 0x1800, 0x4000, Reach::Read));
        assert!(!covers(maps, 0x1800, 0x3800, Reach::Write));
        assert!(!covers(maps, 0x3000, 0x6001, Reach::Read));
        assert!(!covers(maps, 0x6800, 0x7001, Reach::Read));
        assert!(!covers(maps, 0x500, 0x1001, Reach::Read));
    }
}
