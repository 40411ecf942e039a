//! The devices as ids name them: opened at the first need, one context a device for all ids, and never closed, as
//! programs keep `id->verbs`.

use std::ffi::c_int;

use softroce::lock::Mutex;
use verbs_api::{Error, ErrorKind, Result};
use verbs_sys::*;

use super::made;
use crate::device::{Registry, ibv_open_device};
use crate::entry::pointer;
use crate::{list, memory, xrc};

/// What ids of this process have opened.
#[derive(Default)]
pub(crate) struct Devices {
    opened: Mutex<Vec<Opened>>,
}

/// Pointers as numbers: what is behind them lives as long as the process.
struct Opened {
    listed: usize,
    context: usize,
    pd: usize,
    xrc_domain: Option<usize>,
}

/// A device as ids name it.
#[derive(Clone, Copy)]
pub(super) struct Device {
    pub(super) context: *mut ibv_context,
    /// For programs that name none.
    pub(super) pd: *mut ibv_pd,
}

/// The device of this name, opened.
pub(super) fn device(name: &str) -> Result<Device> {
    let registry = Registry::this()?;
    let listed = registry
        .listed(name)
        .ok_or_else(|| Error::new(ErrorKind::NotFound, format!("the device {name} is not listed")))?;
    open(registry, listed)
}

fn open(registry: &Registry, listed: *mut ibv_device) -> Result<Device> {
    let mut opened = registry.cm().devices.opened.lock();
    if let Some(known) = opened.iter().find(|known| known.listed == listed as usize) {
        return Ok(Device {
            context: known.context as *mut _,
            pd: known.pd as *mut _,
        });
    }
    // SAFETY: listed.
    let context = made(unsafe { ibv_open_device(listed) }, "the device does not open")?;
    // SAFETY: just opened.
    let pd = made(
        unsafe { memory::ibv_alloc_pd(context) },
        "the device has no protection domain for ids",
    )?;
    opened.push(Opened {
        listed: listed as usize,
        context: context as usize,
        pd: pd as usize,
        xrc_domain: None,
    });
    Ok(Device { context, pd })
}

/// The XRC domain of a device for programs that name none.
///
/// # Safety
/// `context` came from [`device`].
pub(super) unsafe fn xrc_domain(context: *mut ibv_context) -> Result<*mut ibv_xrcd> {
    let mut opened = Registry::this()?.cm().devices.opened.lock();
    let known = opened
        .iter_mut()
        .find(|known| known.context == context as usize)
        .ok_or_else(|| Error::invalid("the context is none of those that ids have"))?;
    if let Some(domain) = known.xrc_domain {
        return Ok(domain as *mut _);
    }
    let mut init = ibv_xrcd_init_attr {
        comp_mask: IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS,
        fd: -1,
        oflags: libc::O_CREAT,
    };
    // SAFETY: the context is open for good.
    let domain = made(
        unsafe { xrc::open_xrcd(context, &mut init) },
        "the device has no XRC domain for ids",
    )?;
    known.xrc_domain = Some(domain as usize);
    Ok(domain)
}

/// `rdma_get_devices`: all devices, opened, and NULL behind them. Without one that opens: NULL.
///
/// # Safety
/// `count` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn rdma_get_devices(count: *mut c_int) -> *mut *mut ibv_context {
    pointer("rdma_get_devices", || {
        let registry = Registry::this()?;
        let mut list: Vec<*mut ibv_context> = Vec::new();
        for device in registry.all_listed() {
            list.push(open(registry, device)?.context);
        }
        if !count.is_null() {
            // SAFETY: the caller's promise.
            unsafe { *count = list.len() as c_int };
        }
        Ok(list::hand_out(list))
    })
}

/// `rdma_free_devices`: the list; the devices stay open.
///
/// # Safety
/// `list` is NULL or came from `rdma_get_devices` and was not freed.
pub(crate) unsafe extern "C" fn rdma_free_devices(list: *mut *mut ibv_context) {
    // SAFETY: the caller's promise.
    unsafe { list::take_back(list) };
}
