//! What the tests share: hosts, numbers of errors.
#![allow(dead_code)] // Each test file uses a part.

use std::fmt::Debug;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use softroce::faults::Rules;
use softroce::{Cm, Softroce};
use softroce_rsocket::OpenChannel;

/// Numbers of errors, as sockets have them.
pub mod libc_errno {
    pub const EBADF: i32 = 9;
    pub const EAGAIN: i32 = 11;
    pub const ENOMEM: i32 = 12;
    pub const EFAULT: i32 = 14;
    pub const EEXIST: i32 = 17;
    pub const EINVAL: i32 = 22;
    pub const EPIPE: i32 = 32;
    pub const EPROTO: i32 = 71;
    pub const EMSGSIZE: i32 = 90;
    pub const EAFNOSUPPORT: i32 = 97;
    pub const EADDRINUSE: i32 = 98;
    pub const EADDRNOTAVAIL: i32 = 99;
    pub const ENETDOWN: i32 = 100;
    pub const ECONNRESET: i32 = 104;
    pub const EISCONN: i32 = 106;
    pub const ENOTCONN: i32 = 107;
    pub const EDESTADDRREQ: i32 = 89;
    pub const ECONNREFUSED: i32 = 111;
    pub const EALREADY: i32 = 114;
    pub const EINPROGRESS: i32 = 115;
}

/// A loopback address that no other test uses.
pub fn fresh_address() -> IpAddr {
    static NEXT: AtomicU16 = AtomicU16::new(1);
    let [_, _, c, d] = std::process::id().to_be_bytes();
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    IpAddr::V4(Ipv4Addr::new(127, 100 + (next % 100) as u8, c, d.clamp(1, 254)))
}

/// A program with a card.
pub struct Host {
    pub provider: Softroce,
    pub open: OpenChannel<Cm>,
}

impl Host {
    pub fn on(address: IpAddr) -> Host {
        Host::new(softroce::Options {
            addresses: vec![address],
            ..softroce::Options::default()
        })
    }

    pub fn with_faults(address: IpAddr, rules: &str) -> Host {
        Host::new(softroce::Options {
            addresses: vec![address],
            faults: Some(Arc::new(Rules::parse(rules).unwrap())),
            ..softroce::Options::default()
        })
    }

    /// A card that may [fail](Host::fail).
    pub fn that_may_fail(address: IpAddr) -> Host {
        Host::with_faults(address, "")
    }

    /// The card fails for good.
    pub fn fail(&self) {
        let rules = Rules::parse("[[event]]\nat = \"0s\"\ndo = \"device-fatal\"").unwrap();
        self.provider.set_faults(Some(rules)).unwrap();
    }

    fn new(options: softroce::Options) -> Host {
        let provider = Softroce::new(options).unwrap();
        let for_channels = provider.clone();
        Host {
            provider,
            open: Arc::new(move || Cm::new(&for_channels)),
        }
    }
}

pub fn errno<T: Debug>(result: verbs_api::Result<T>) -> i32 {
    result.unwrap_err().errno()
}
