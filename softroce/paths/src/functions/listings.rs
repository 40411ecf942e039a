//! Listings of the directories above our places: `ls /sys/class` and `ls /dev` show them.
//!
//! A directory is known by its device and inode when it is opened. What is added to it comes after what the kernel
//! lists; entries of the real drivers, which the tree hides, are left out.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::{MaybeUninit, transmute, zeroed};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::{AT_FDCWD, DIR, dirent};

use crate::border::{Next, refuse};
use crate::place::{ROOT, with_place};

static OPENDIR: Next = Next::new("opendir\0");
static FDOPENDIR: Next = Next::new("fdopendir\0");
static READDIR: Next = Next::new("readdir\0");
static READDIR64: Next = Next::new("readdir64\0");
static REWINDDIR: Next = Next::new("rewinddir\0");
static CLOSEDIR: Next = Next::new("closedir\0");

pub(super) static COUNTERPARTS: &[&Next] =
    &[&OPENDIR, &FDOPENDIR, &READDIR, &READDIR64, &REWINDDIR, &CLOSEDIR];

/// A directory above some of our places.
struct Parent {
    path: &'static CStr,
    added: &'static [&'static [u8]],
    /// Which directory that is; an inode of 0 is none.
    device: AtomicU64,
    inode: AtomicU64,
}

impl Parent {
    const fn new(path: &'static CStr, added: &'static [&'static [u8]]) -> Self {
        Parent {
            path,
            added,
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
        }
    }
}

static PARENTS: [Parent; 2] = [
    Parent::new(
        c"/sys/class",
        &[b"infiniband", b"infiniband_mad", b"infiniband_verbs"],
    ),
    Parent::new(c"/dev", &[b"infiniband"]),
];

/// So many listings can go on at once; further ones show what the kernel lists.
const LISTINGS_MAX: usize = 16;

/// A listing of one of those directories that is under way.
struct Listing {
    /// Null while the slot is free.
    directory: AtomicPtr<DIR>,
    parent: AtomicUsize,
    /// How many of the added entries were told.
    told: AtomicU32,
    entry: Entry,
}

/// The added entry told last. As with the C library's own, it is the affair of those who share a directory stream that
/// only one of them reads at a time.
struct Entry(UnsafeCell<MaybeUninit<dirent>>);

// SAFETY: reached only by whoever reads the directory stream, see above.
unsafe impl Sync for Entry {}

static LISTINGS: [Listing; LISTINGS_MAX] = [const {
    Listing {
        directory: AtomicPtr::new(null_mut()),
        parent: AtomicUsize::new(0),
        told: AtomicU32::new(0),
        entry: Entry(UnsafeCell::new(MaybeUninit::uninit())),
    }
}; LISTINGS_MAX];
/// How many there are: nearly always none, and then nobody looks for one.
static UNDER_WAY: AtomicUsize = AtomicUsize::new(0);

/// Note which directories the parents are; while the program starts.
pub(super) fn find_parents() {
    for parent in &PARENTS {
        // SAFETY: a C string, and a place for the answer.
        let found = unsafe {
            let mut found: libc::stat = zeroed();
            (libc::syscall(
                libc::SYS_newfstatat,
                AT_FDCWD,
                parent.path.as_ptr(),
                &raw mut found,
                0,
            ) == 0)
                .then_some(found)
        };
        if let Some(found) = found {
            parent.device.store(found.st_dev, Ordering::Relaxed);
            parent.inode.store(found.st_ino, Ordering::Relaxed);
        }
    }
}

/// Follow the listing of a directory just opened, if it is one of the parents.
fn follow(directory: *mut DIR) {
    if directory.is_null() || !ROOT.is_set() {
        return;
    }
    // SAFETY: an open directory stream, and a place for the answer.
    let found = unsafe {
        let mut found: libc::stat = zeroed();
        (libc::syscall(libc::SYS_fstat, libc::dirfd(directory), &raw mut found) == 0).then_some(found)
    };
    let parent = found.and_then(|found| {
        PARENTS.iter().position(|parent| {
            found.st_ino != 0
                && parent.inode.load(Ordering::Relaxed) == found.st_ino
                && parent.device.load(Ordering::Relaxed) == found.st_dev
        })
    });
    let Some(parent) = parent else { return };
    for listing in &LISTINGS {
        let taken =
            listing
                .directory
                .compare_exchange(null_mut(), directory, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            listing.parent.store(parent, Ordering::Relaxed);
            listing.told.store(0, Ordering::Relaxed);
            UNDER_WAY.fetch_add(1, Ordering::Release);
            return;
        }
    }
}

/// The listing of this directory, if it is followed.
#[inline]
fn listing(directory: *mut DIR) -> Option<&'static Listing> {
    if UNDER_WAY.load(Ordering::Acquire) == 0 || directory.is_null() {
        return None;
    }
    LISTINGS
        .iter()
        .find(|listing| listing.directory.load(Ordering::Acquire) == directory)
}

impl Listing {
    fn added(&self) -> &'static [&'static [u8]] {
        PARENTS[self.parent.load(Ordering::Relaxed) % PARENTS.len()].added
    }

    /// Whether an entry that the kernel lists is hidden by one of ours.
    fn hides(&self, name: &[u8]) -> bool {
        self.added().contains(&name)
    }

    /// The next added entry; none at the end.
    fn next_added(&self) -> *mut dirent {
        let position = self.told.fetch_add(1, Ordering::Relaxed) as usize;
        let Some(name) = self.added().get(position) else {
            self.told.fetch_sub(1, Ordering::Relaxed);
            return null_mut();
        };
        // SAFETY: zeroes are valid in every member.
        let mut entry: dirent = unsafe { zeroed() };
        // Programs take an inode of 0 for an entry that was removed.
        entry.d_ino = 1 + position as u64;
        entry.d_reclen = size_of::<dirent>() as u16;
        entry.d_type = libc::DT_DIR;
        for (to, from) in entry.d_name.iter_mut().zip(*name) {
            *to = *from as c_char;
        }
        let place = self.entry.0.get();
        // SAFETY: of this stream, which nobody else reads now.
        unsafe { (*place).write(entry) }
    }
}

/// Read an entry, of which there is one layout on 64-bit systems.
///
/// # Safety
/// As of `readdir`.
unsafe fn read(next: &Next, directory: *mut DIR) -> *mut dirent {
    type Function = unsafe extern "C-unwind" fn(*mut DIR) -> *mut dirent;
    let Some(next) = next.find() else { return refuse() };
    // SAFETY: the type of this function, and our caller's promise.
    let read = || unsafe { transmute::<*mut c_void, Function>(next)(directory) };
    let Some(listing) = listing(directory) else {
        return read();
    };
    let before = crate::border::errno();
    loop {
        let entry = read();
        if entry.is_null() {
            // An error is told as it is; the end comes without one.
            let at_end = crate::border::errno() == before;
            return if at_end { listing.next_added() } else { entry };
        }
        // SAFETY: an entry's name is a C string.
        let name = unsafe { CStr::from_ptr((*entry).d_name.as_ptr()) };
        if !listing.hides(name.to_bytes()) {
            return entry;
        }
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn opendir(path: *const c_char) -> *mut DIR {
    type Function = unsafe extern "C-unwind" fn(*const c_char) -> *mut DIR;
    let Some(next) = OPENDIR.find() else {
        return refuse();
    };
    // SAFETY: the type of this function; our caller's promises are the C library's.
    let directory = unsafe {
        with_place(AT_FDCWD, path, |path| {
            transmute::<*mut c_void, Function>(next)(path)
        })
    };
    follow(directory);
    directory
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fdopendir(descriptor: c_int) -> *mut DIR {
    type Function = unsafe extern "C-unwind" fn(c_int) -> *mut DIR;
    let Some(next) = FDOPENDIR.find() else {
        return refuse();
    };
    // SAFETY: as in `opendir`.
    let directory = unsafe { transmute::<*mut c_void, Function>(next)(descriptor) };
    follow(directory);
    directory
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readdir(directory: *mut DIR) -> *mut dirent {
    // SAFETY: the caller's promise.
    unsafe { read(&READDIR, directory) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readdir64(directory: *mut DIR) -> *mut dirent {
    // SAFETY: the caller's promise.
    unsafe { read(&READDIR64, directory) }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn rewinddir(directory: *mut DIR) {
    type Function = unsafe extern "C-unwind" fn(*mut DIR);
    if let Some(listing) = listing(directory) {
        listing.told.store(0, Ordering::Relaxed);
    }
    if let Some(next) = REWINDDIR.find() {
        // SAFETY: as in `opendir`.
        unsafe { transmute::<*mut c_void, Function>(next)(directory) }
    }
}

/// As in the C library.
///
/// # Safety
/// As in the C library.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn closedir(directory: *mut DIR) -> c_int {
    type Function = unsafe extern "C-unwind" fn(*mut DIR) -> c_int;
    if let Some(listing) = listing(directory) {
        listing.directory.store(null_mut(), Ordering::Release);
        UNDER_WAY.fetch_sub(1, Ordering::Release);
    }
    let Some(next) = CLOSEDIR.find() else {
        return refuse();
    };
    // SAFETY: as in `opendir`.
    unsafe { transmute::<*mut c_void, Function>(next)(directory) }
}
