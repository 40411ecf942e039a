//! Conversions between the structs of C and the values of `verbs-api`, in both directions.
//!
//! Values from C are hostile: an unknown number is an error that names it, never a panic.

mod device;
mod qp;
mod sockaddr;
mod work;

use std::ffi::c_char;

pub use device::{
    device_attr_from_c, device_attr_to_c, gid_entry_from_c, gid_entry_to_c, port_attr_from_c, port_attr_to_c,
};
pub use qp::{
    ah_attr_from_c, ah_attr_to_c, cap_from_c, cap_to_c, qp_attr_from_c, qp_attr_to_c, qp_type_from_c,
};
pub use sockaddr::{sockaddr_from_c, sockaddr_to_c};
pub use work::{opcode_to_c, sge_list, wc_from_c, wc_to_c};

/// A fixed-size C string, cut to fit and always terminated.
pub fn text_to_c<const N: usize>(text: &str) -> [c_char; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = from as c_char;
    }
    out
}

/// The text of a fixed-size C string, terminated or not.
pub fn text_from_c(chars: &[c_char]) -> String {
    let bytes: Vec<u8> = chars.iter().map(|c| *c as u8).take_while(|b| *b != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests;
