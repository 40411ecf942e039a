//! Questions about a device, its ports and their tables.

use std::ffi::c_int;
use std::mem::MaybeUninit;

use verbs_api::{DeviceAttr, Error, Gid, GidEntry, GidType, PortAttr, Result};
use verbs_sys::convert::{device_attr_from_c, gid_entry_from_c, port_attr_from_c};
use verbs_sys::*;

use crate::Context;
use crate::library::{Library, check};
use crate::tables::extended_op;

/// What the extended query tells beyond [`DeviceAttr`].
pub(crate) struct Extended {
    pub(crate) odp_general_caps: u64,
    pub(crate) timestamp_mask: u64,
    /// Of the device's clock; 0 when it is not told.
    pub(crate) clock_khz: u64,
}

/// The attributes, `max_inline_data` excepted, which C does not tell.
pub(crate) fn device(context: &Context) -> Result<DeviceAttr> {
    let (mut attr, extended) = match extended_attr(context) {
        Ok(all) => (device_attr_from_c(&all.orig_attr), Some(all)),
        Err(_) => (plain_attr(context)?, None),
    };
    if let Some(all) = extended {
        attr.max_dm_bytes = all.max_dm_size;
        attr.device_cap_flags |= all.device_cap_flags_ex;
    }
    // SAFETY: the context is alive.
    let vectors = unsafe { (*context.as_ptr()).num_comp_vectors };
    attr.num_comp_vectors = vectors.try_into().unwrap_or(1);
    Ok(attr)
}

fn plain_attr(context: &Context) -> Result<DeviceAttr> {
    // SAFETY: the context is alive.
    unsafe { plain_attr_of(&context.0.library, context.as_ptr()) }
}

/// The same for a context that is not ours.
///
/// # Safety
/// `context` is open.
pub(crate) unsafe fn plain_attr_of(library: &Library, context: *mut ibv_context) -> Result<DeviceAttr> {
    let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
    let query = library.ibv_query_device()?;
    // SAFETY: the context is alive, `attr` a valid place.
    check("querying the device", unsafe {
        query(context, attr.as_mut_ptr())
    })?;
    // SAFETY: zeroed at least, and filled in by the library.
    Ok(device_attr_from_c(unsafe { attr.assume_init_ref() }))
}

fn extended_attr(context: &Context) -> Result<ibv_device_attr_ex> {
    let query = extended_op!(context.as_ptr(), query_device_ex)?;
    let mut attr = MaybeUninit::<ibv_device_attr_ex>::zeroed();
    let input = ibv_query_device_ex_input { comp_mask: 0 };
    // SAFETY: the context is alive, `attr` has the length that is passed.
    check("querying the device", unsafe {
        query(
            context.as_ptr(),
            &input,
            attr.as_mut_ptr(),
            size_of::<ibv_device_attr_ex>(),
        )
    })?;
    // SAFETY: zeroed at least, and filled in by the library.
    Ok(unsafe { attr.assume_init() })
}

/// What the extended query tells; zeroes where there is none.
pub(crate) fn extended(context: &Context) -> Extended {
    match extended_attr(context) {
        Ok(attr) => Extended {
            odp_general_caps: attr.odp_caps.general_caps,
            timestamp_mask: attr.completion_timestamp_mask,
            clock_khz: attr.hca_core_clock,
        },
        Err(_) => Extended {
            odp_general_caps: 0,
            timestamp_mask: 0,
            clock_khz: 0,
        },
    }
}

/// Ticks of the device's clock in nanoseconds.
pub(crate) fn ticks_to_ns(ticks: u64, clock_khz: u64) -> u64 {
    match clock_khz {
        0 => ticks,
        khz => u64::try_from(u128::from(ticks) * 1_000_000 / u128::from(khz)).unwrap_or(u64::MAX),
    }
}

pub(crate) fn clock_ns(context: &Context) -> Result<u64> {
    let query = extended_op!(context.as_ptr(), query_rt_values)?;
    let mut values = ibv_values_ex {
        comp_mask: IBV_VALUES_MASK_RAW_CLOCK,
        raw_clock: libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        },
    };
    // SAFETY: the context is alive, the place valid.
    check("reading the device clock", unsafe {
        query(context.as_ptr(), &mut values)
    })?;
    if values.comp_mask & IBV_VALUES_MASK_RAW_CLOCK == 0 {
        return Err(Error::unsupported("the raw clock of ibv_query_rt_values_ex"));
    }
    // The library passes ticks through a timespec, as nanoseconds and whole seconds of them.
    let ticks = (values.raw_clock.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(values.raw_clock.tv_nsec as u64);
    Ok(ticks_to_ns(ticks, extended(context).clock_khz))
}

pub(crate) fn port(context: &Context, port: u8) -> Result<PortAttr> {
    // Zeroed and with room to spare: the exported function fills in the older, shorter struct.
    let mut attr = MaybeUninit::<ibv_port_attr>::zeroed();
    let result = match extended_op!(context.as_ptr(), query_port) {
        // SAFETY: the context is alive, `attr` has the length that is passed.
        Ok(query) => unsafe {
            query(
                context.as_ptr(),
                port,
                attr.as_mut_ptr(),
                size_of::<ibv_port_attr>(),
            )
        },
        Err(_) => {
            let query = context.0.library.ibv_query_port()?;
            // SAFETY: as above.
            unsafe { query(context.as_ptr(), port, attr.as_mut_ptr()) }
        }
    };
    check("querying a port", result)?;
    // SAFETY: zeroed at least, and filled in by the library.
    Ok(port_attr_from_c(unsafe { attr.assume_init_ref() }))
}

pub(crate) fn pkey(context: &Context, port: u8, index: u16) -> Result<u16> {
    let query = context.0.library.ibv_query_pkey()?;
    let mut pkey = 0;
    // SAFETY: the context is alive, `pkey` a valid place.
    let result = unsafe { query(context.as_ptr(), port, c_int::from(index), &mut pkey) };
    check("querying a P_Key", result)?;
    Ok(u16::from_be(pkey))
}

pub(crate) fn gid_table(context: &Context) -> Result<Vec<GidEntry>> {
    let Ok(query) = context.0.library._ibv_query_gid_table() else {
        return gid_table_one_by_one(context);
    };
    let room = entries_at_most(context)?;
    let mut entries: Vec<ibv_gid_entry> = Vec::with_capacity(room);
    // SAFETY: there is room for the entries that are asked for.
    let count = unsafe {
        query(
            context.as_ptr(),
            entries.as_mut_ptr(),
            room,
            0,
            size_of::<ibv_gid_entry>(),
        )
    };
    if count < 0 {
        let errno = i32::try_from(-count).unwrap_or(libc::EIO);
        check("querying the GID table", errno)?;
    }
    // SAFETY: the library has filled in that many.
    unsafe { entries.set_len((count.max(0) as usize).min(room)) };
    Ok(entries.iter().filter_map(gid_entry_from_c).collect())
}

/// Ports and their tables are what the device says, within reason.
fn entries_at_most(context: &Context) -> Result<usize> {
    const REASON: usize = 1 << 16;
    let ports = plain_attr(context)?.phys_port_cnt;
    let mut entries = 0;
    for number in 1..=ports {
        entries += port(context, number)?.gid_tbl_len as usize;
    }
    Ok(entries.clamp(1, REASON))
}

/// For libraries older than rdma-core 32: kinds and interfaces are not told.
fn gid_table_one_by_one(context: &Context) -> Result<Vec<GidEntry>> {
    let ports = plain_attr(context)?.phys_port_cnt;
    let mut entries = Vec::new();
    for number in 1..=ports {
        for index in 0..port(context, number)?.gid_tbl_len {
            if let Ok(entry) = plain_gid(context, number, index) {
                entries.push(entry);
            }
        }
    }
    Ok(entries)
}

fn plain_gid(context: &Context, port: u8, index: u32) -> Result<GidEntry> {
    let query = context.0.library.ibv_query_gid()?;
    let mut gid = ibv_gid::default();
    // SAFETY: the context is alive, `gid` a valid place.
    check("querying a GID", unsafe {
        query(context.as_ptr(), port, index as c_int, &mut gid)
    })?;
    if gid == ibv_gid::default() {
        return Err(Error::invalid(format!("port {port} has no GID at index {index}")));
    }
    Ok(GidEntry {
        gid: Gid(gid.raw),
        index,
        port,
        gid_type: GidType::Ib,
        interface_index: 0,
    })
}

pub(crate) fn gid(context: &Context, port: u8, index: u32) -> Result<GidEntry> {
    let Ok(query) = context.0.library._ibv_query_gid_ex() else {
        return plain_gid(context, port, index);
    };
    let mut entry = MaybeUninit::<ibv_gid_entry>::zeroed();
    // SAFETY: the context is alive, the place valid and as large as told.
    let result = unsafe {
        query(
            context.as_ptr(),
            port.into(),
            index,
            entry.as_mut_ptr(),
            0,
            size_of::<ibv_gid_entry>(),
        )
    };
    check(
        &format!("querying the GID at index {index} of port {port}"),
        result,
    )?;
    // SAFETY: zeroed at least, and filled in by the library.
    gid_entry_from_c(unsafe { entry.assume_init_ref() }).ok_or_else(|| {
        Error::invalid(format!(
            "the GID at index {index} of port {port} has an unknown kind"
        ))
    })
}
