//! Questions about devices, ports and their tables.

use std::ffi::{c_int, c_uint};

use verbs_api::{AtomicCap, Context, DeviceAttr, Error, Result};
use verbs_sys::convert::{device_attr_to_c, gid_entry_to_c};
use verbs_sys::*;

use crate::DeviceContext;
use crate::context::{ask, object};
use crate::entry::{self, number, place};

mod port;

use port::gid_table_length;
pub(crate) use port::{ibv_query_port, ibv_query_port_speed, query_port_sized};

/// Copy the first `length` bytes of `from` to C, which may have been compiled when the struct was shorter.
///
/// # Safety
/// `to` is valid for writes of `length` bytes.
unsafe fn copy_prefix<T: Copy>(from: &T, to: *mut T, length: usize) {
    // SAFETY: the source has `size_of::<T>()` bytes, and the caller vouches for the target.
    unsafe {
        std::ptr::copy_nonoverlapping(
            (&raw const *from).cast::<u8>(),
            to.cast(),
            length.min(size_of::<T>()),
        );
    }
}

/// Ours are atomic with the processor's, too, which is more than cards promise; programs (UCX) look for what cards say,
/// and take anything else for no atomics.
fn plain_attr(device: &DeviceAttr) -> ibv_device_attr {
    let mut attr = device_attr_to_c(device);
    if device.atomic_cap == AtomicCap::Glob {
        attr.atomic_cap = AtomicCap::Hca as c_int;
    }
    attr
}

/// `ibv_query_device`
///
/// # Safety
/// `context` is NULL or open, `attr` NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_query_device(
    context: *mut ibv_context,
    attr: *mut ibv_device_attr,
) -> c_int {
    number("ibv_query_device", || {
        // SAFETY: the caller's promise.
        let (context, attr) = unsafe { (object(context)?, place(attr, "the place for attributes")?) };
        *attr = plain_attr(&ask(context, Context::query_device)?);
        Ok(())
    })
}

/// `query_device_ex` of the second table.
///
/// # Safety
/// `context` is NULL or open, `attr` NULL or valid for writes of `length` bytes.
pub(crate) unsafe extern "C" fn query_device_ex(
    context: *mut ibv_context,
    input: *const ibv_query_device_ex_input,
    attr: *mut ibv_device_attr_ex,
    length: usize,
) -> c_int {
    number("ibv_query_device_ex", || {
        // SAFETY: the caller's promise.
        let context = unsafe { object(context) }?;
        // SAFETY: NULL, or a valid input.
        if unsafe { input.as_ref() }.is_some_and(|input| input.comp_mask != 0) {
            return Err(Error::invalid("ibv_query_device_ex knows no comp_mask bits"));
        }
        if attr.is_null() || length < size_of::<ibv_device_attr>() {
            return Err(Error::invalid("the place for attributes is NULL or too short"));
        }
        let all = ask(context, extended_attributes)?;
        // SAFETY: the caller's promise.
        unsafe { copy_prefix(&all, attr, length) };
        Ok(())
    })
}

/// All that we have to say about a device.
fn extended_attributes(context: &DeviceContext) -> Result<ibv_device_attr_ex> {
    let device = context.query_device()?;
    // SAFETY: zeroes are valid in every member.
    let mut all: ibv_device_attr_ex = unsafe { std::mem::zeroed() };
    all.orig_attr = plain_attr(&device);
    all.device_cap_flags_ex = device.device_cap_flags;
    all.max_dm_size = device.max_dm_bytes;
    all.phys_port_cnt_ex = u32::from(device.phys_port_cnt);
    if context.capabilities().cq_timestamps {
        all.completion_timestamp_mask = u64::MAX;
    }
    all.cq_mod_caps = ibv_cq_moderation_caps {
        max_cq_count: u16::MAX,
        max_cq_period: u16::MAX,
    };
    if context.capabilities().on_demand_paging {
        offer_on_demand_paging(&mut all);
    }
    if context.clock_ns().is_ok() {
        // Nanoseconds, in kHz.
        all.hca_core_clock = 1_000_000;
    }
    Ok(all)
}

/// Every operation of every transport reaches memory by the same copy.
fn offer_on_demand_paging(attr: &mut ibv_device_attr_ex) {
    const SUPPORT: u64 = 1;
    const IMPLICIT: u64 = 1 << 1;
    const SEND: u32 = 1;
    const RECV: u32 = 1 << 1;
    const WRITE: u32 = 1 << 2;
    const READ: u32 = 1 << 3;
    const ATOMIC: u32 = 1 << 4;
    const SRQ_RECV: u32 = 1 << 5;
    const FLUSH: u32 = 1 << 6;
    const ATOMIC_WRITE: u32 = 1 << 7;
    let unreliable = SEND | RECV | SRQ_RECV;
    let reliable = unreliable | WRITE | READ | ATOMIC | FLUSH | ATOMIC_WRITE;
    attr.odp_caps = ibv_odp_caps {
        general_caps: SUPPORT | IMPLICIT,
        per_transport_caps: [reliable, unreliable | WRITE, unreliable],
    };
    attr.xrc_odp_caps = SEND | WRITE | READ | ATOMIC | SRQ_RECV;
}

/// `query_rt_values` of the second table: the device's clock.
///
/// # Safety
/// `context` is NULL or open, `values` NULL or valid.
pub(crate) unsafe extern "C" fn query_rt_values(
    context: *mut ibv_context,
    values: *mut ibv_values_ex,
) -> c_int {
    const IBV_VALUES_MASK_RAW_CLOCK: u32 = 1;
    number("ibv_query_rt_values_ex", || {
        // SAFETY: the caller's promise.
        let (context, values) = unsafe { (object(context)?, place(values, "the place for values")?) };
        let wants_clock = values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK != 0;
        values.comp_mask = 0;
        if wants_clock {
            let now_ns = context.clock_ns()?;
            // As the raw clock of a card: ticks of the core clock, here nanoseconds.
            values.raw_clock.tv_sec = 0;
            values.raw_clock.tv_nsec = now_ns as i64;
            values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
        }
        Ok(())
    })
}

/// `ibv_query_gid`: an index without an entry holds the zero GID.
///
/// # Safety
/// `context` is NULL or open, `gid` NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_query_gid(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    gid: *mut ibv_gid,
) -> c_int {
    entry::count("ibv_query_gid", || {
        // SAFETY: the caller's promise.
        let (context, gid) = unsafe { (object(context)?, place(gid, "the place for the GID")?) };
        let length = gid_table_length(&context.port(port)?);
        let index = u32::try_from(index)
            .ok()
            .filter(|index| *index < length)
            .ok_or_else(|| {
                Error::invalid(format!(
                    "port {port} has GID indices 0 to {}, not {index}",
                    length.saturating_sub(1)
                ))
            })?;
        let table = context.gid_table()?;
        let entry = table.iter().find(|entry| entry.index == index);
        gid.raw = entry.map(|entry| entry.gid.0).unwrap_or_default();
        Ok(0)
    })
}

/// `_ibv_query_gid_ex`
///
/// # Safety
/// `context` is NULL or open, `entry` NULL or valid for writes of `length` bytes.
pub(crate) unsafe extern "C" fn _ibv_query_gid_ex(
    context: *mut ibv_context,
    port: u32,
    index: u32,
    entry: *mut ibv_gid_entry,
    flags: u32,
    length: usize,
) -> c_int {
    number("ibv_query_gid_ex", || {
        // SAFETY: the caller's promise.
        let context = unsafe { object(context) }?;
        check_table_call(entry, flags, length)?;
        let port = u8::try_from(port).map_err(|_| Error::invalid(format!("there is no port {port}")))?;
        context.port(port)?;
        let table = context.gid_table()?;
        let found = table.iter().find(|entry| entry.index == index).ok_or_else(|| {
            Error::new(
                verbs_api::ErrorKind::System(libc::ENODATA),
                format!("the GID table of port {port} has no entry {index}"),
            )
        })?;
        // SAFETY: the caller's promise.
        unsafe { copy_prefix(&gid_entry_to_c(found), entry, length) };
        Ok(())
    })
}

fn check_table_call(entries: *mut ibv_gid_entry, flags: u32, length: usize) -> Result<()> {
    if flags != 0 {
        return Err(Error::new(
            verbs_api::ErrorKind::Unsupported,
            "GID queries know no flags",
        ));
    }
    if entries.is_null() || length < size_of::<ibv_gid_entry>() {
        return Err(Error::invalid("the place for GID entries is NULL or too short"));
    }
    Ok(())
}

/// `_ibv_query_gid_table`: how many entries, or a negative error number.
///
/// # Safety
/// `context` is NULL or open, `entries` NULL or valid for writes of `max` entries of `length` bytes.
pub(crate) unsafe extern "C" fn _ibv_query_gid_table(
    context: *mut ibv_context,
    entries: *mut ibv_gid_entry,
    max: usize,
    flags: u32,
    length: usize,
) -> isize {
    let mut count = 0;
    let result = number("ibv_query_gid_table", || {
        // SAFETY: the caller's promise.
        let context = unsafe { object(context) }?;
        check_table_call(entries, flags, length)?;
        let table = context.gid_table()?;
        if table.len() > max {
            return Err(Error::invalid(format!(
                "the table has {} entries, and there is room for {max}",
                table.len()
            )));
        }
        for (i, found) in table.iter().enumerate() {
            // SAFETY: within `max`, and the caller says how far entries lie apart.
            unsafe { copy_prefix(&gid_entry_to_c(found), entries.byte_add(i * length), length) };
        }
        count = table.len() as isize;
        Ok(())
    });
    if result == 0 { count } else { -(result as isize) }
}

/// `ibv_query_gid_type`, private to rdma-core's own programs: 0 for InfiniBand and RoCE v1, 1 for RoCE v2.
///
/// # Safety
/// `context` is NULL or open, `kind` NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_query_gid_type(
    context: *mut ibv_context,
    port: u8,
    index: c_uint,
    kind: *mut c_int,
) -> c_int {
    entry::count("ibv_query_gid_type", || {
        // SAFETY: the caller's promise.
        let (context, kind) = unsafe { (object(context)?, place(kind, "the place for the type")?) };
        let entry = context.query_gid(port, index);
        *kind = c_int::from(entry.is_ok_and(|entry| entry.gid_type == verbs_api::GidType::RoceV2));
        Ok(0)
    })
}

/// `ibv_query_pkey`: big endian.
///
/// # Safety
/// `context` is NULL or open, `pkey` NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_query_pkey(
    context: *mut ibv_context,
    port: u8,
    index: c_int,
    pkey: *mut u16,
) -> c_int {
    entry::count("ibv_query_pkey", || {
        // SAFETY: the caller's promise.
        let (context, pkey) = unsafe { (object(context)?, place(pkey, "the place for the P_Key")?) };
        let index = u16::try_from(index).map_err(|_| Error::invalid(format!("{index} is no P_Key index")))?;
        *pkey = context.query_pkey(port, index)?.to_be();
        Ok(0)
    })
}

/// `ibv_get_pkey_index`: where a P_Key (big endian) stands.
///
/// # Safety
/// `context` is NULL or open.
pub(crate) unsafe extern "C" fn ibv_get_pkey_index(context: *mut ibv_context, port: u8, pkey: u16) -> c_int {
    entry::count("ibv_get_pkey_index", || {
        // SAFETY: the caller's promise.
        let context = unsafe { object(context) }?;
        let length = context.port(port)?.pkey_tbl_len;
        let wanted = u16::from_be(pkey);
        (0..length)
            .find(|index| {
                context
                    .query_pkey(port, *index)
                    .is_ok_and(|found| found == wanted)
            })
            .map(c_int::from)
            .ok_or_else(|| Error::invalid(format!("port {port} has no P_Key {wanted:#06x}")))
    })
}
