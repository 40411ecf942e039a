//! The directory that stands in for `/`: where the tree of files lies.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Bytes of the longest root that is taken.
pub(crate) const LENGTH_MAX: usize = 1024;

/// A path that is set once, while the program starts, and read from then on without locks.
pub(crate) struct Root {
    /// 0 while there is none.
    length: AtomicUsize,
    bytes: [AtomicU8; LENGTH_MAX],
}

impl Root {
    pub(crate) const fn new() -> Self {
        Root {
            length: AtomicUsize::new(0),
            bytes: [const { AtomicU8::new(0) }; LENGTH_MAX],
        }
    }

    /// Take the value of the variable, unless it is no absolute path, too long, or one stands already.
    ///
    /// Copied, since some programs write over their environment to show a title.
    pub(crate) fn set(&self, value: &[u8]) {
        let value = match value {
            [value @ .., b'/'] => value,
            value => value,
        };
        if value.first() != Some(&b'/') || value.len() > LENGTH_MAX || self.is_set() {
            return;
        }
        for (to, from) in self.bytes.iter().zip(value) {
            to.store(*from, Ordering::Relaxed);
        }
        self.length.store(value.len(), Ordering::Release);
    }

    /// Whether paths are to be changed at all.
    pub(crate) fn is_set(&self) -> bool {
        self.length.load(Ordering::Relaxed) != 0
    }

    /// Its bytes.
    pub(crate) fn bytes(&self) -> impl Iterator<Item = u8> + '_ {
        let length = self.length.load(Ordering::Acquire);
        self.bytes[..length]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
    }

    /// Bytes of `path` that are the root, if it lies at or below it.
    pub(crate) fn prefix_of(&self, path: &[u8]) -> Option<usize> {
        if !self.is_set() {
            return None;
        }
        let mut length = 0;
        for byte in self.bytes() {
            if path.get(length) != Some(&byte) {
                return None;
            }
            length += 1;
        }
        matches!(path.get(length), None | Some(b'/')).then_some(length)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(value: &[u8]) -> Root {
        let root = Root::new();
        root.set(value);
        root
    }

    #[test]
    fn only_an_absolute_path_of_bounded_length_becomes_the_root() {
        assert!(root(b"/tmp/tree").is_set());
        for refused in [&b""[..], b"/", b"tree", &[b'/'; LENGTH_MAX + 2]] {
            assert!(!root(refused).is_set(), "{refused:?}");
        }
        assert_eq!(root(b"/tmp/tree/").bytes().collect::<Vec<_>>(), b"/tmp/tree");
    }

    #[test]
    fn the_first_root_stays() {
        let root = root(b"/a");
        root.set(b"/b");
        assert_eq!(root.bytes().collect::<Vec<_>>(), b"/a");
    }

    #[test]
    fn a_path_below_the_root_is_told_from_one_that_begins_alike() {
        let root = root(b"/tmp/tree");
        assert_eq!(root.prefix_of(b"/tmp/tree/sys"), Some(9));
        assert_eq!(root.prefix_of(b"/tmp/tree"), Some(9));
        assert_eq!(root.prefix_of(b"/tmp/trees"), None);
        assert_eq!(root.prefix_of(b"/tmp"), None);
        assert_eq!(Root::new().prefix_of(b"/tmp"), None);
    }
}
