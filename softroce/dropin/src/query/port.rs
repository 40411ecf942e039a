//! Questions about ports.

use std::ffi::c_int;

use verbs_api::{Context, Error, PortAttr, Result};
use verbs_sys::convert::port_attr_to_c;
use verbs_sys::*;

use super::copy_prefix;
use crate::context::{ask, object};
use crate::entry::{null, number, place};

/// How many GIDs the table has room for: as on a card, more than there are addresses, and the rest is empty.
pub(super) fn gid_table_length(port: &PortAttr) -> u32 {
    const ROOM: u32 = 16;
    port.gid_tbl_len.max(ROOM)
}

fn query_port(context: *mut ibv_context, port: u8, attr: *mut ibv_port_attr, length: usize) -> Result<()> {
    if attr.is_null() {
        return Err(null("the place for attributes"));
    }
    // SAFETY: NULL or open, by the promise of our callers' callers.
    let mut port = ask(unsafe { object(context) }?, |context| context.query_port(port))?;
    port.gid_tbl_len = gid_table_length(&port);
    let all = port_attr_to_c(&port);
    // SAFETY: as above.
    unsafe { copy_prefix(&all, attr, length) };
    Ok(())
}

/// `ibv_query_port` as exported: the struct ends where it did when the function was first exported.
///
/// # Safety
/// `context` is NULL or open, `attr` NULL or valid for writes up to `port_cap_flags2`.
pub(crate) unsafe extern "C" fn ibv_query_port(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
) -> c_int {
    let historic = std::mem::offset_of!(ibv_port_attr, port_cap_flags2);
    number("ibv_query_port", || query_port(context, port, attr, historic))
}

/// `query_port` of the second table: the caller says how much it knows.
///
/// # Safety
/// `context` is NULL or open, `attr` NULL or valid for writes of `length` bytes.
pub(crate) unsafe extern "C" fn query_port_sized(
    context: *mut ibv_context,
    port: u8,
    attr: *mut ibv_port_attr,
    length: usize,
) -> c_int {
    number("ibv_query_port", || query_port(context, port, attr, length))
}

/// `ibv_query_port_speed`: in units of 100 Mbit/s, lanes times their speed.
///
/// # Safety
/// `context` is NULL or open, `speed` NULL or valid for a write.
pub(crate) unsafe extern "C" fn ibv_query_port_speed(
    context: *mut ibv_context,
    port: u32,
    speed: *mut u64,
) -> c_int {
    number("ibv_query_port_speed", || {
        // SAFETY: the caller's promise.
        let (context, speed) = unsafe { (object(context)?, place(speed, "the place for the speed")?) };
        let port = u8::try_from(port).map_err(|_| Error::invalid(format!("there is no port {port}")))?;
        let attr = ask(context, |context| context.query_port(port))?;
        *speed = lanes(attr.active_width) * speed_of_a_lane(attr.active_speed);
        Ok(())
    })
}

/// Of the code of a width; 0 for one that means nothing.
fn lanes(width: u8) -> u64 {
    match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 0,
    }
}

/// Of the code of a speed, in units of 100 Mbit/s.
fn speed_of_a_lane(speed: u8) -> u64 {
    match speed {
        1 => 25,
        2 => 50,
        4 | 8 => 100,
        16 => 140,
        32 => 250,
        64 => 500,
        128 => 1000,
        _ => 0,
    }
}
