//! libibverbs.so.1 and librdmacm.so.1 as a drop-in: unmodified programs run on softroce.
//!
//! The shared object has the symbols, version nodes and struct layouts of both (`symbols`); behind them stand
//! the traits of `verbs-api`, implemented by `softroce`. Contracts that hold for every entry:
//!
//! - an object that a program holds a pointer to is a `handle::Handle`, which begins with the C struct;
//! - a panic never crosses into C: it becomes the error EIO (`entry`);
//! - errors are those of the man pages: NULL or -1 with `errno`, or the number itself. Why, in words, goes to standard
//!   error when a device cannot be listed or opened, and for every failing call when `SOFTROCE_DEBUG` is set;
//! - what is not offered answers EOPNOTSUPP.
//!
//! Pointers that come from C are trusted to be what their type says, as in the real library; NULL is refused.

mod cm;
mod completion;
mod context;
mod cq_ex;
mod datagram;
mod device;
mod device_memory;
mod domain;
mod entry;
mod faults;
mod handle;
mod import;
// Unit tests end by the C library's `_exit`.
#[cfg(not(test))]
mod leaving;
mod list;
mod memory;
mod post;
mod qp;
mod qp_ex;
mod query;
mod rsocket;
mod sockaddr;
mod spanning;
mod srq;
mod symbols;
mod texts;
mod unsupported;
mod wait;
mod window;
mod xrc;

use verbs_api::Provider;

/// The provider beneath.
type P = softroce::Softroce;
type DeviceContext = <P as Provider>::Context;
type Pd = <P as Provider>::Pd;
type Mr = <P as Provider>::Mr;
type Channel = <P as Provider>::Channel;
type Cq = <P as Provider>::Cq;
type Qp = <P as Provider>::Qp;
type Srq = <P as Provider>::Srq;
type Ah = <P as Provider>::Ah;
type Mw = <P as Provider>::Mw;
type Dm = <P as Provider>::Dm;
type Cm = softroce::Cm;
type CmId = softroce::CmId;
type XrcDomain = <P as Provider>::XrcDomain;

/// Tells our own users of libibverbs that this is not the system's. Never called.
#[unsafe(no_mangle)]
pub extern "C" fn softroce_dropin() {}
