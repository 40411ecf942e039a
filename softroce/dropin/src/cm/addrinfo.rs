//! Names to addresses.

use std::ffi::{c_char, c_int, c_void};
use std::net::SocketAddr;
use std::ptr::null_mut;

use verbs_api::{CmEventKind, Error, QpType, Result};
use verbs_sys::cm_constants::{
    RAI_FAMILY, RAI_NUMERICHOST, RAI_PASSIVE, RDMA_PS_IB, RDMA_PS_IPOIB, RDMA_PS_TCP, RDMA_PS_UDP,
};
use verbs_sys::{rdma_addrinfo, rdma_cm_id};

use super::calls::{Then, call};
use super::id;
use super::sockaddr;
use crate::entry::{self, place};

/// What a program wants to know, without what it left out.
struct Wanted {
    flags: c_int,
    family: c_int,
    qp_type: c_int,
    port_space: c_int,
    source: Option<SocketAddr>,
    destination: Option<SocketAddr>,
}

/// `rdma_getaddrinfo`: 0, or an error number of `getaddrinfo`, or -1 and `errno`.
///
/// # Safety
/// `node` and `service` are NULL or C strings, `hints` NULL or valid with its addresses, `found` NULL or valid for a write.
pub(crate) unsafe extern "C" fn rdma_getaddrinfo(
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
    found: *mut *mut rdma_addrinfo,
) -> c_int {
    entry::count("rdma_getaddrinfo", || {
        // SAFETY: the caller's promise.
        let (found, wanted) = unsafe { (place(found, "the place for addresses")?, wanted(hints)?) };
        let is_passive = wanted.flags & RAI_PASSIVE != 0;
        let addresses = if node.is_null() && service.is_null() {
            let said = if is_passive {
                wanted.source
            } else {
                wanted.destination
            };
            if hints.is_null() || said.or(wanted.source).is_none() {
                return Err(Error::invalid(
                    "neither a node nor a service nor an address is given",
                ));
            }
            said.into_iter().collect()
        } else {
            // SAFETY: the caller's promise.
            match unsafe { look_up(node, service, &wanted) } {
                Ok(addresses) => addresses,
                Err(code) => return Ok(code),
            }
        };
        *found = list(&wanted, &addresses);
        Ok(0)
    })
}

/// `rdma_resolve_addrinfo`: the same, and the answer is an event of the id.
///
/// # Safety
/// As `rdma_getaddrinfo`.
pub(crate) unsafe extern "C-unwind" fn rdma_resolve_addrinfo(
    id: *mut rdma_cm_id,
    node: *const c_char,
    service: *const c_char,
    hints: *const rdma_addrinfo,
) -> c_int {
    const VERB: &str = "rdma_resolve_addrinfo";
    // Looking up may take long: the id is held before, to see whether there is one, and after.
    let exists = entry::count(VERB, || id::hold(id)?.expect_alive(VERB).map(|()| 0));
    if exists != 0 {
        return exists;
    }
    let mut found = null_mut();
    // SAFETY: the caller's promise.
    let (kind, status) = match unsafe { rdma_getaddrinfo(node, service, hints, &mut found) } {
        0 => (CmEventKind::AddrInfoResolved, 0),
        _ => (CmEventKind::AddrInfoError, -libc::EADDRNOTAVAIL),
    };
    let result = call(VERB, id, |held| {
        // The list of an earlier call is freed below.
        std::mem::swap(&mut held.state.found, &mut found);
        held.tell_program(kind, status, 0);
        Ok(Then::Event)
    });
    // SAFETY: made by this library, and now nobody's.
    unsafe { rdma_freeaddrinfo(found) };
    result
}

/// `rdma_query_addrinfo`: what was found, which is the program's from then on (`rdma_freeaddrinfo`).
///
/// # Safety
/// `found` is NULL or valid for a write.
pub(crate) unsafe extern "C" fn rdma_query_addrinfo(
    id: *mut rdma_cm_id,
    found: *mut *mut rdma_addrinfo,
) -> c_int {
    entry::count("rdma_query_addrinfo", || {
        let mut held = id::hold(id)?;
        // SAFETY: the caller's promise.
        let place = unsafe { place(found, "the place for addresses") }?;
        let list = std::mem::replace(&mut held.state.found, null_mut());
        if list.is_null() {
            return Err(Error::invalid(
                "nothing was resolved; call rdma_resolve_addrinfo first",
            ));
        }
        *place = list;
        Ok(0)
    })
}

/// # Safety
/// `hints` is NULL or valid with its addresses.
unsafe fn wanted(hints: *const rdma_addrinfo) -> Result<Wanted> {
    // SAFETY: the caller's promise.
    let hints = unsafe { hints.as_ref() };
    let (rc, ud) = (QpType::Rc as c_int, QpType::Ud as c_int);
    let said = hints.map_or((0, 0), |hints| (hints.ai_qp_type, hints.ai_port_space));
    let (qp_type, port_space) = match said {
        (0, 0) => (rc, RDMA_PS_TCP),
        (0, space @ (RDMA_PS_UDP | RDMA_PS_IPOIB)) => (ud, space),
        (0, space) => (rc, space),
        (qp_type, 0) if qp_type == ud => (qp_type, RDMA_PS_UDP),
        (qp_type, 0) => (qp_type, RDMA_PS_TCP),
        said => said,
    };
    let is_datagram = qp_type == ud;
    let fits = match port_space {
        RDMA_PS_UDP | RDMA_PS_IPOIB => is_datagram,
        RDMA_PS_TCP => !is_datagram,
        RDMA_PS_IB => true,
        _ => false,
    };
    if !fits {
        return Err(Error::invalid(format!(
            "queue pairs of type {qp_type} are not for the port space {port_space:#x}"
        )));
    }
    let address = |pointer: Option<*mut c_void>, what| match pointer {
        Some(pointer) if !pointer.is_null() => {
            // SAFETY: the caller's promise.
            unsafe { sockaddr::read(pointer, what) }.map(Some)
        }
        _ => Ok(None),
    };
    Ok(Wanted {
        flags: hints.map_or(0, |hints| hints.ai_flags),
        family: hints.map_or(0, |hints| hints.ai_family),
        qp_type,
        port_space,
        source: address(hints.map(|hints| hints.ai_src_addr), "the source address")?,
        destination: address(hints.map(|hints| hints.ai_dst_addr), "the destination address")?,
    })
}

/// Ask the C library, which knows the system's names. Of the addresses those come first that a device can have.
///
/// # Safety
/// `node` and `service` are NULL or C strings.
unsafe fn look_up(
    node: *const c_char,
    service: *const c_char,
    wanted: &Wanted,
) -> Result<Vec<SocketAddr>, c_int> {
    // SAFETY: zeroes are valid in every member: numbers and NULL pointers.
    let mut hints: libc::addrinfo = unsafe { std::mem::zeroed() };
    if wanted.flags & RAI_PASSIVE != 0 {
        hints.ai_flags |= libc::AI_PASSIVE;
    }
    if wanted.flags & RAI_NUMERICHOST != 0 {
        hints.ai_flags |= libc::AI_NUMERICHOST;
    }
    if wanted.flags & RAI_FAMILY != 0 {
        hints.ai_family = wanted.family;
    }
    hints.ai_socktype = match wanted.qp_type == QpType::Ud as c_int {
        true => libc::SOCK_DGRAM,
        false => libc::SOCK_STREAM,
    };
    let mut first = null_mut();
    // SAFETY: the caller's promise, and valid places.
    let code = unsafe { libc::getaddrinfo(node, service, &hints, &mut first) };
    if code != 0 {
        return Err(code);
    }
    let mut addresses = Vec::new();
    let mut next = first;
    // SAFETY: a list that ends with NULL, until it is freed.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: an address of the family that it says.
        if let Ok(address) = unsafe { sockaddr::read(entry.ai_addr.cast(), "an address found") } {
            addresses.push(address);
        }
        next = entry.ai_next;
    }
    // SAFETY: the list from above, which nothing refers to any more.
    unsafe { libc::freeaddrinfo(first) };
    Ok(addresses)
}

/// A list for C, of boxes, each with its addresses in boxes.
fn list(wanted: &Wanted, addresses: &[SocketAddr]) -> *mut rdma_addrinfo {
    let is_passive = wanted.flags & RAI_PASSIVE != 0;
    let nowhere = [None];
    let found: Vec<Option<SocketAddr>> = addresses.iter().copied().map(Some).collect();
    let entries = if found.is_empty() { &nowhere[..] } else { &found };
    let mut next = null_mut();
    for address in entries.iter().rev() {
        let (source, destination) = match is_passive {
            true => (*address, None),
            false => (wanted.source, *address),
        };
        let (ai_src_addr, ai_src_len) = boxed(source);
        let (ai_dst_addr, ai_dst_len) = boxed(destination);
        let family = match address.or(source) {
            Some(SocketAddr::V6(_)) => libc::AF_INET6,
            Some(SocketAddr::V4(_)) | None => libc::AF_INET,
        };
        next = Box::into_raw(Box::new(rdma_addrinfo {
            ai_flags: wanted.flags,
            ai_family: family,
            ai_qp_type: wanted.qp_type,
            ai_port_space: wanted.port_space,
            ai_src_len,
            ai_dst_len,
            ai_src_addr,
            ai_dst_addr,
            ai_src_canonname: null_mut(),
            ai_dst_canonname: null_mut(),
            ai_route_len: 0,
            ai_route: null_mut(),
            ai_connect_len: 0,
            ai_connect: null_mut(),
            ai_next: next,
        }));
    }
    next
}

/// An address in a box, as C has it, and its length.
fn boxed(address: Option<SocketAddr>) -> (*mut c_void, u32) {
    match address {
        Some(address) => {
            let (storage, length) = crate::sockaddr::to_c(&address);
            (Box::into_raw(Box::new(storage)).cast(), length as u32)
        }
        None => (null_mut(), 0),
    }
}

/// `rdma_freeaddrinfo`
///
/// # Safety
/// `list` is NULL or came from `rdma_getaddrinfo`, and is not used afterwards.
pub(crate) unsafe extern "C" fn rdma_freeaddrinfo(list: *mut rdma_addrinfo) {
    let mut next = list;
    while !next.is_null() {
        // SAFETY: made by `list`, with `boxed` addresses.
        unsafe {
            let entry = Box::from_raw(next);
            for address in [entry.ai_src_addr, entry.ai_dst_addr] {
                if !address.is_null() {
                    drop(Box::from_raw(address.cast::<verbs_sys::sockaddr_storage>()));
                }
            }
            next = entry.ai_next;
        }
    }
}
