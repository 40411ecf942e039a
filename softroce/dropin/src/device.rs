//! The list of devices.
//!
//! The devices of a process are made once, at the first look, and stay: programs keep pointers to them. A forked child
//! makes its own. No lock is involved, so that a child forked at any moment finds none held.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::{self, null_mut};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Weak};

use softroce::faults::Verb;
use softroce::lock::{Mutex, MutexGuard};
use softroce::{Options, Softroce};
use verbs_api::{DeviceInfo, Provider, Result};
use verbs_sys::convert::{text_from_c, text_to_c};
use verbs_sys::{IBV_NODE_CA, IBV_TRANSPORT_IB, ibv_context, ibv_device, verbs_context};

use crate::entry::{self, explain, null, value};
use crate::{DeviceContext, cm, context, entry::pointer, faults, list};

/// A device as C sees it. Vendor libraries read private members behind the public ones, to see whether a device is
/// theirs: they find zeroes.
#[repr(C)]
struct ListedDevice {
    device: ibv_device,
    private: [usize; 64],
    guid: u64,
}

/// What the process has.
pub(crate) struct Registry {
    process: u32,
    provider: Softroce,
    devices: Box<[*mut ListedDevice]>,
    /// Open devices that can be imported. Closed ones are let go when another opens.
    families: Mutex<Vec<Known>>,
    /// Contexts that were closed while something made on them may have been left, with what their family shares.
    left_behind: Mutex<Vec<(usize, usize)>>,
    /// What of RDMA CM there is.
    cm: cm::Process,
    /// The parent process's, whose devices the program may hold. Also tells leak checkers that it is not lost.
    parent: *const Registry,
}

/// What contexts of one open device share: the first one and those that were imported from it.
pub(crate) struct Family {
    /// That of the descriptor by which it is imported.
    pub(crate) file: (u64, u64),
    pub(crate) listed: *mut ibv_device,
    pub(crate) device: Arc<DeviceContext>,
    pub(crate) shared: Arc<context::Shared>,
}

/// A family that may be closed.
struct Known {
    file: (u64, u64),
    listed: *mut ibv_device,
    device: Weak<DeviceContext>,
    shared: Weak<context::Shared>,
}

impl Known {
    fn open(&self) -> Option<Family> {
        Some(Family {
            file: self.file,
            listed: self.listed,
            device: self.device.upgrade()?,
            shared: self.shared.upgrade()?,
        })
    }
}

static REGISTRY: AtomicPtr<Registry> = AtomicPtr::new(null_mut());

impl ListedDevice {
    /// The device at this position of the list. Where the kernel would show it is where `softroce run` shows it.
    fn new(position: usize, info: &DeviceInfo) -> *mut ListedDevice {
        let name = &info.name;
        let device = ibv_device {
            _ops: [null_mut::<c_void>(); 2],
            node_type: IBV_NODE_CA,
            transport_type: IBV_TRANSPORT_IB,
            name: text_to_c(name),
            dev_name: text_to_c(&format!("uverbs{position}")),
            dev_path: text_to_c(&format!("/sys/class/infiniband_verbs/uverbs{position}")),
            ibdev_path: text_to_c(&format!("/sys/class/infiniband/{name}")),
        };
        Box::into_raw(Box::new(ListedDevice {
            device,
            private: [0; 64],
            guid: info.guid,
        }))
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        for device in &self.devices {
            // SAFETY: made by `ListedDevice::new`; a registry is only dropped before its devices are listed.
            drop(unsafe { Box::from_raw(*device) });
        }
    }
}

impl Registry {
    /// This process's, made at the first call.
    pub(crate) fn this() -> Result<&'static Registry> {
        let process = std::process::id();
        let current = REGISTRY.load(Ordering::Acquire);
        // SAFETY: what is stored once is never freed.
        if let Some(registry) = unsafe { current.as_ref() }.filter(|registry| registry.process == process) {
            return Ok(registry);
        }
        // Before anything is handed from one thread to another.
        softroce::announce::start();
        softroce_log::start()
            .map_err(|error| verbs_api::Error::invalid(format!("{}: {error}", softroce_log::VARIABLE)))?;
        softroce::journal::start();
        let provider = Softroce::new(Options::from_env()?)?;
        let devices = provider.list();
        let devices = devices
            .iter()
            .enumerate()
            .map(|(position, info)| ListedDevice::new(position, info))
            .collect();
        let made = Box::into_raw(Box::new(Registry {
            process,
            provider,
            devices,
            parent: current,
            families: Mutex::default(),
            left_behind: Mutex::default(),
            cm: cm::Process::default(),
        }));
        let winner = match REGISTRY.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => made,
            Err(theirs) => {
                // Another thread was faster; ours holds no device open, and nobody has seen it.
                // SAFETY: made above, and not handed out.
                drop(unsafe { Box::from_raw(made) });
                theirs
            }
        };
        // SAFETY: as above.
        Ok(unsafe { &*winner })
    }
}

impl Registry {
    fn families(&self) -> MutexGuard<'_, Vec<Known>> {
        self.families.lock()
    }

    /// It can be imported from now on.
    pub(crate) fn add_family(&self, family: &Family) {
        let mut families = self.families();
        families.retain(|known| known.device.strong_count() > 0);
        families.push(Known {
            file: family.file,
            listed: family.listed,
            device: Arc::downgrade(&family.device),
            shared: Arc::downgrade(&family.shared),
        });
    }

    /// The open device that `file` is a descriptor of.
    pub(crate) fn family_of(&self, file: (u64, u64)) -> Option<Family> {
        let families = self.families();
        families
            .iter()
            .filter(|known| known.file == file)
            .find_map(Known::open)
    }

    /// Objects point at this closed context: it stays, and leak checkers find where it begins.
    pub(crate) fn leave_behind(&self, family: *const context::Shared, context: *mut verbs_context) {
        let mut left = self.left_behind.lock();
        left.push((family as usize, context as usize));
    }

    /// The last context of a family is closed, and nothing is left that could point at the others.
    pub(crate) fn take_left_behind(&self, family: *const context::Shared) -> Vec<*mut verbs_context> {
        let mut left = self.left_behind.lock();
        let (gone, stay) = left.drain(..).partition(|(of, _)| *of == family as usize);
        *left = stay;
        let gone: Vec<(usize, usize)> = gone;
        gone.into_iter()
            .map(|(_, context)| context as *mut verbs_context)
            .collect()
    }

    /// The provider beneath.
    pub(crate) fn provider(&self) -> &Softroce {
        &self.provider
    }

    pub(crate) fn cm(&self) -> &cm::Process {
        &self.cm
    }

    /// Those of the processes from which this one was forked.
    pub(crate) fn parents(&self) -> impl Iterator<Item = &Registry> {
        // SAFETY: what was stored once is never freed.
        let parent_of = |registry: &&Registry| unsafe { registry.parent.as_ref() };
        std::iter::successors(parent_of(&self), parent_of)
    }

    /// All devices, as C knows them.
    pub(crate) fn all_listed(&self) -> impl Iterator<Item = *mut ibv_device> {
        self.devices.iter().map(|device| device.cast())
    }

    /// The device of this name.
    pub(crate) fn listed(&self, name: &str) -> Option<*mut ibv_device> {
        self.all_listed().find(|device| {
            // SAFETY: listed devices stay, and never change.
            text_from_c(unsafe { &(**device).name }) == name
        })
    }

    /// Open a device for this process alone.
    pub(crate) fn open(&self, name: &str) -> Result<DeviceContext> {
        self.provider.open(name)
    }
}

/// `ibv_get_device_list`
///
/// # Safety
/// `count` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_get_device_list(count: *mut c_int) -> *mut *mut ibv_device {
    pointer("ibv_get_device_list", || {
        let registry = Registry::this().inspect_err(|error| explain("ibv_get_device_list", error))?;
        registry.provider.faults().verb(Verb::GetDeviceList)?;
        let devices = &registry.devices;
        if !count.is_null() {
            // SAFETY: the caller's promise.
            unsafe { *count = devices.len() as c_int };
        }
        Ok(list::hand_out(
            devices.iter().map(|device| device.cast()).collect(),
        ))
    })
}

/// `ibv_free_device_list`
///
/// # Safety
/// `list` is NULL or came from `ibv_get_device_list` and was not freed.
pub(crate) unsafe extern "C" fn ibv_free_device_list(list: *mut *mut ibv_device) {
    // SAFETY: the caller's promise.
    unsafe { list::take_back(list) };
}

/// `ibv_get_device_name`
///
/// # Safety
/// `device` is a listed device.
pub(crate) unsafe extern "C" fn ibv_get_device_name(device: *mut ibv_device) -> *const c_char {
    // SAFETY: the caller's promise; only the address is taken.
    unsafe { (&raw const (*device).name).cast() }
}

/// `ibv_get_device_guid`: big endian.
///
/// # Safety
/// `device` is a listed device.
pub(crate) unsafe extern "C" fn ibv_get_device_guid(device: *mut ibv_device) -> u64 {
    // SAFETY: the caller's promise.
    unsafe { (*device.cast::<ListedDevice>()).guid.to_be() }
}

/// `ibv_get_device_index`: the place in the list.
///
/// # Safety
/// `device` is a listed device.
pub(crate) unsafe extern "C" fn ibv_get_device_index(device: *mut ibv_device) -> c_int {
    entry::count("ibv_get_device_index", || {
        let position = Registry::this()?
            .devices
            .iter()
            .position(|listed| listed.cast() == device);
        Ok(position.map_or(-1, |position| position as c_int))
    })
}

/// `ibv_open_device`. A device that a parent process listed is good, too: it is found by name.
///
/// # Safety
/// `device` is NULL or a listed device.
pub(crate) unsafe extern "C" fn ibv_open_device(device: *mut ibv_device) -> *mut ibv_context {
    pointer("ibv_open_device", || {
        // SAFETY: the caller's promise; a listed device never changes.
        let name = text_from_c(&unsafe { value(device, "the device") }?.name);
        let opened = Registry::this().and_then(|registry| registry.open(&name));
        let opened = opened.inspect_err(|error| explain("ibv_open_device", error))?;
        faults::install();
        context::hand_out(device, opened)
    })
}

/// The name of a file of the kernel's drivers, for programs that look for one.
fn sysfs_file(directory: *const c_char, file: *const c_char) -> Result<std::path::PathBuf> {
    if directory.is_null() || file.is_null() {
        return Err(null("a name"));
    }
    // SAFETY: C strings, by the caller's promise.
    let (directory, file) = unsafe {
        (
            std::ffi::CStr::from_ptr(directory),
            std::ffi::CStr::from_ptr(file),
        )
    };
    Ok(std::path::Path::new(&*directory.to_string_lossy()).join(&*file.to_string_lossy()))
}

/// `ibv_read_sysfs_file`: the length of the text without its newline.
///
/// # Safety
/// `directory` and `file` are NULL or C strings; `buffer` is NULL or has `size` bytes.
pub(crate) unsafe extern "C" fn ibv_read_sysfs_file(
    directory: *const c_char,
    file: *const c_char,
    buffer: *mut c_char,
    size: usize,
) -> c_int {
    entry::count("ibv_read_sysfs_file", || {
        let path = sysfs_file(directory, file)?;
        let mut bytes = std::fs::read(&path)
            .map_err(|error| verbs_api::Error::system(format!("reading {}", path.display()), error))?;
        bytes.truncate(size.min(c_int::MAX as usize));
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        if buffer.is_null() {
            return Err(null("the buffer"));
        }
        // SAFETY: not more than `size` bytes, by the caller's promise valid.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), buffer.cast(), bytes.len()) };
        if bytes.len() < size {
            // SAFETY: within `size`.
            unsafe { *buffer.add(bytes.len()) = 0 };
        }
        Ok(bytes.len() as c_int)
    })
}

/// `ibv_get_sysfs_path`: `SYSFS_PATH` if that is set, without the slashes at its end.
pub(crate) extern "C" fn ibv_get_sysfs_path() -> *const c_char {
    static PATH: OnceLock<CString> = OnceLock::new();
    let from_environment = || {
        let path = std::env::var_os("SYSFS_PATH")?.into_encoded_bytes();
        let end = path.iter().rposition(|byte| *byte != b'/')?;
        CString::new(&path[..=end]).ok()
    };
    let path = PATH.get_or_init(|| from_environment().unwrap_or_else(|| c"/sys".to_owned()));
    path.as_ptr()
}

/// `ibv_fork_init`: forking is always safe.
pub(crate) extern "C" fn ibv_fork_init() -> c_int {
    0
}

/// `ibv_is_fork_initialized`: not needed.
pub(crate) extern "C" fn ibv_is_fork_initialized() -> c_int {
    const IBV_FORK_UNNEEDED: c_int = 2;
    IBV_FORK_UNNEEDED
}

/// `ibv_dontfork_range`: nothing to do.
pub(crate) extern "C" fn ibv_dontfork_range(_start: *mut c_void, _size: usize) -> c_int {
    0
}

/// `ibv_dofork_range`: nothing to do.
pub(crate) extern "C" fn ibv_dofork_range(_start: *mut c_void, _size: usize) -> c_int {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_members_of_a_listed_device_lie_behind_the_public_ones() {
        assert_eq!(std::mem::offset_of!(ListedDevice, private), 664);
        assert!(std::mem::offset_of!(ListedDevice, guid) >= 664 + 512);
    }
}
