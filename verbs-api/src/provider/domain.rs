//! Protection domains and memory: regions, windows, device memory.

use crate::{
    Access, AddressVector, Buffer, Error, LKey, Object, Provider, QpInit, RKey, Result, Sge, SrqInit, Wc,
};

/// The kind of a memory window; the numbers are those of `ibv_mw_type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum MwType {
    Type1 = 1,
    Type2 = 2,
}

/// A protection domain: regions, windows, queues and handles of different domains do not work together.
pub trait ProtectionDomain: Object + Clone {
    /// The family.
    type P: Provider<Pd = Self>;

    /// Register the whole of `buffer`. The region keeps the buffer alive.
    fn reg_mr(&self, buffer: &Buffer, access: Access) -> Result<<Self::P as Provider>::Mr> {
        self.reg_mr_iova(buffer, 0..buffer.len(), buffer.addr(), access)
    }

    /// Register a part of `buffer` under the address `iova`.
    fn reg_mr_iova(
        &self,
        buffer: &Buffer,
        range: std::ops::Range<usize>,
        iova: u64,
        access: Access,
    ) -> Result<<Self::P as Provider>::Mr>;

    /// Register memory that the caller owns.
    ///
    /// # Safety
    /// From now until the region is destroyed, `addr .. addr + length` may be read, and with a writing access written,
    /// at any time by the card: no reference to it may be live while that can happen.
    unsafe fn reg_mr_raw(
        &self,
        addr: *mut u8,
        length: usize,
        iova: u64,
        access: Access,
    ) -> Result<<Self::P as Provider>::Mr>;

    /// A region that swallows writes and reads as zeroes.
    fn alloc_null_mr(&self) -> Result<<Self::P as Provider>::Mr> {
        Err(Error::unsupported("the null memory region"))
    }
    /// Register a part of device memory.
    fn reg_dm_mr(
        &self,
        dm: &<Self::P as Provider>::Dm,
        offset: u64,
        length: usize,
        access: Access,
    ) -> Result<<Self::P as Provider>::Mr> {
        let _ = (dm, offset, length, access);
        Err(Error::unsupported("device memory"))
    }
    /// A new memory window.
    fn alloc_mw(&self, mw_type: MwType) -> Result<<Self::P as Provider>::Mw> {
        let _ = mw_type;
        Err(Error::unsupported("memory windows"))
    }
    /// A new queue pair, in state RESET.
    fn create_qp(&self, init: &QpInit<'_, Self::P>) -> Result<<Self::P as Provider>::Qp>;
    /// A new shared receive queue.
    fn create_srq(&self, init: &SrqInit<'_, Self::P>) -> Result<<Self::P as Provider>::Srq> {
        let _ = init;
        Err(Error::unsupported("shared receive queues"))
    }
    /// A new address handle.
    fn create_ah(&self, av: &AddressVector) -> Result<<Self::P as Provider>::Ah> {
        let _ = av;
        Err(Error::unsupported("address handles"))
    }
    /// An address handle back to the sender of a received UD message whose GRH area is `grh`.
    fn create_ah_from_wc(&self, wc: &Wc, grh: &[u8; 40], port: u8) -> Result<<Self::P as Provider>::Ah> {
        let _ = (wc, grh, port);
        Err(Error::unsupported("address handles"))
    }
    /// Tell the card that ranges of on-demand memory will be needed soon.
    fn advise_mr(&self, advice: Advice, sges: &[Sge]) -> Result<()> {
        let _ = (advice, sges);
        Err(Error::unsupported("memory advice"))
    }
    /// A parent domain above this one: the same domain with caller-chosen resources.
    fn parent_domain(&self) -> Result<Self> {
        Err(Error::unsupported("parent domains"))
    }
}

/// What [`ProtectionDomain::advise_mr`] says; the numbers are those of `ibv_advise_mr_advice`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    /// Reads will follow.
    Prefetch = 0,
    /// Writes will follow.
    PrefetchWrite = 1,
    /// Reads will follow, but fault nothing in.
    PrefetchNoFault = 2,
}

/// What of a region [`MemoryRegion::rereg`] changes.
#[derive(Debug)]
pub struct Rereg<'a, P: Provider> {
    /// Another domain.
    pub pd: Option<&'a P::Pd>,
    /// Another buffer.
    pub buffer: Option<&'a Buffer>,
    /// Other rights.
    pub access: Option<Access>,
}

/// A memory region.
pub trait MemoryRegion: Object {
    /// The family.
    type P: Provider<Mr = Self>;

    /// Its local key.
    fn lkey(&self) -> LKey;
    /// Its remote key.
    fn rkey(&self) -> RKey;
    /// The address under which it was registered (`iova`).
    fn addr(&self) -> u64;
    /// Bytes.
    fn length(&self) -> u64;
    /// Change domain, memory or rights in place. On an error the region is as before.
    fn rereg(&mut self, change: &Rereg<'_, Self::P>) -> Result<()> {
        let _ = change;
        Err(Error::unsupported("re-registering memory"))
    }
}

/// Device memory.
pub trait DeviceMemory: Object {
    /// The family.
    type P: Provider<Dm = Self>;
    /// Copy into it.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Copy out of it.
    fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()>;
}

/// A memory window.
pub trait MemoryWindow: Object {
    /// The family.
    type P: Provider<Mw = Self>;
    /// Its current remote key.
    fn rkey(&self) -> RKey;
    /// Its kind.
    fn mw_type(&self) -> MwType;
}
