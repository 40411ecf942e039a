//! Gives a function the path that it is to work on.

use std::ffi::{CStr, c_char, c_int};

use crate::border::{directory_of, is_worth_a_look};
use crate::places::{climbed, may_lead_to_place, place};
use crate::root::Root;

/// Where the tree is.
pub(crate) static ROOT: Root = Root::new();

/// Bytes of the longest path that the kernel takes, with its end.
const PATH_MAX: usize = 4096;

/// A path that is being written: without allocation, and always with an end.
pub(crate) struct PathBuffer {
    bytes: [u8; PATH_MAX],
    length: usize,
}

impl PathBuffer {
    pub(crate) fn new() -> Self {
        PathBuffer {
            bytes: [0; PATH_MAX],
            length: 0,
        }
    }

    fn push(&mut self, byte: u8) -> Option<()> {
        // The last byte stays zero.
        let place = self.bytes[..PATH_MAX - 1].get_mut(self.length)?;
        *place = byte;
        self.length += 1;
        Some(())
    }

    fn extend(&mut self, bytes: impl IntoIterator<Item = u8>) -> Option<()> {
        bytes.into_iter().try_for_each(|byte| self.push(byte))
    }

    /// Room for a path that the kernel writes; `written` says how many bytes it was, none if it failed.
    pub(crate) fn fill(mut self, write: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<Self> {
        self.length = write(&mut self.bytes[..PATH_MAX - 1])?.min(PATH_MAX - 1);
        Some(self)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    fn as_c(&self) -> Option<&CStr> {
        CStr::from_bytes_with_nul(&self.bytes[..=self.length]).ok()
    }
}

/// Call `function` with the path in the tree that stands for `path`, or with `path` itself if it is none of ours.
/// A relative path is seen from the directory `base` (`AT_FDCWD` for the working directory).
#[inline]
pub(crate) fn with_place<T>(
    base: c_int,
    path: *const c_char,
    function: impl FnOnce(*const c_char) -> T,
) -> T {
    if !ROOT.is_set() || !is_worth_a_look(path) {
        return function(path);
    }
    in_tree(base, path, function)
}

/// Apart from the hot path, whose stack has no room for paths.
#[inline(never)]
fn in_tree<T>(base: c_int, path: *const c_char, function: impl FnOnce(*const c_char) -> T) -> T {
    let mut buffer = PathBuffer::new();
    let found = crate::border::bytes_of(path).and_then(|bytes| translate(&ROOT, base, bytes, &mut buffer));
    match found.and_then(|()| buffer.as_c()) {
        Some(translated) => function(translated.as_ptr()),
        None => function(path),
    }
}

/// Write what stands for `path` into `buffer`; nothing if the path is none of ours.
fn translate(root: &Root, base: c_int, path: &[u8], buffer: &mut PathBuffer) -> Option<()> {
    if path.first() == Some(&b'/') {
        return write(root, path, buffer);
    }
    if !may_lead_to_place(path) {
        return None;
    }
    let directory = directory_of(base)?;
    let (directory, rest) = climbed(directory.bytes(), path);
    let mut absolute = PathBuffer::new();
    absolute.extend(directory.iter().copied())?;
    absolute.push(b'/')?;
    absolute.extend(rest.iter().copied())?;
    write(root, absolute.bytes(), buffer)
}

fn write(root: &Root, absolute: &[u8], buffer: &mut PathBuffer) -> Option<()> {
    let place = place(absolute)?;
    buffer.extend(root.bytes())?;
    for part in [place.directory, place.name, place.rest] {
        buffer.extend(part.iter().copied())?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn translated(base: c_int, path: &[u8]) -> Option<Vec<u8>> {
        let root = Root::new();
        root.set(b"/t");
        let mut buffer = PathBuffer::new();
        translate(&root, base, path, &mut buffer)?;
        Some(buffer.as_c().unwrap().to_bytes().to_vec())
    }

    #[test]
    fn our_paths_lead_into_the_tree() {
        assert_eq!(
            translated(libc::AT_FDCWD, b"/sys/class/infiniband/softroce0").unwrap(),
            b"/t/sys/class/infiniband/softroce0"
        );
        assert_eq!(translated(libc::AT_FDCWD, b"/sys/class/net"), None);
    }

    #[test]
    fn a_relative_path_is_seen_from_its_directory() {
        use std::os::fd::AsRawFd;
        let sys = std::fs::File::open("/sys").unwrap();
        assert_eq!(
            translated(sys.as_raw_fd(), b"class/infiniband").unwrap(),
            b"/t/sys/class/infiniband"
        );
        assert_eq!(
            translated(sys.as_raw_fd(), b"../dev//infiniband/uverbs0").unwrap(),
            b"/t/dev/infiniband/uverbs0"
        );
        assert_eq!(translated(sys.as_raw_fd(), b"infiniband"), None);
        assert_eq!(translated(-7, b"class/infiniband"), None);
        assert_eq!(translated(libc::AT_FDCWD, b"class/infiniband"), None);
    }

    #[test]
    fn a_path_without_room_in_the_tree_is_left_alone() {
        let mut long = b"/dev/infiniband/".to_vec();
        long.resize(PATH_MAX - 3, b'x');
        assert!(translated(libc::AT_FDCWD, &long).is_some());
        long.push(b'x');
        long.push(b'x');
        assert_eq!(translated(libc::AT_FDCWD, &long), None);
        long.resize(100_000, b'x');
        assert_eq!(translated(libc::AT_FDCWD, &long), None);
    }
}
