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
    pd: Option<usize>,
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
    let mut opened = registry.cm().devices.opened.lock();
    let opened = open(&mut opened, listed)?;
    let context = opened.context as *mut ibv_context;
    if let Some(pd) = opened.pd {
        let pd = pd as *mut ibv_pd;
        return Ok(Device { context, pd });
    }
    // SAFETY: open for good.
    let pd = made(
        unsafe { memory::ibv_alloc_pd(context) },
        "the device has no protection domain for ids",
    )?;
    opened.pd = Some(pd as usize);
    Ok(Device { context, pd })
}

fn open(opened: &mut Vec<Opened>, listed: *mut ibv_device) -> Result<&mut Opened> {
    let position = match opened.iter().position(|known| known.listed == listed as usize) {
        Some(position) => position,
        None => {
            // SAFETY: listed.
            let context = made(unsafe { ibv_open_device(listed) }, "the device does not open")?;
            opened.push(Opened {
                listed: listed as usize,
                context: context as usize,
                pd: None,
                xrc_domain: None,
            });
            opened.len() - 1
        }
    };
    Ok(&mut opened[position])
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
        let mut opened = registry.cm().devices.opened.lock();
        let mut list: Vec<*mut ibv_context> = Vec::new();
        for device in registry.all_listed() {
            list.push(open(&mut opened, device)?.context as *mut _);
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
