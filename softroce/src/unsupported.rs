//! Handles of what the card does not offer yet. None can exist, so their methods cannot be reached.

use verbs_api::{
    DeviceMemory, MemoryWindow, MwType, Object, PostError, RKey, RecvWr, Refused, Result, SharedReceiveQueue,
    SrqAttr,
};

use crate::provider::Softroce;

/// Device memory.
#[derive(Debug)]
pub enum Dm {}
/// A memory window.
#[derive(Debug)]
pub enum Mw {}
/// A shared receive queue.
#[derive(Clone, Debug)]
pub enum Srq {}
/// An XRC domain.
#[derive(Debug)]
pub enum XrcDomain {}
/// An address handle.
#[derive(Debug)]
pub enum Ah {}

macro_rules! never_destroyed {
    ($($handle:ident),*) => {$(
        impl Object for $handle {
            fn destroy(self) -> Result<(), Refused<Self>> {
                match self {}
            }
        }
    )*};
}
never_destroyed!(Dm, Mw, Srq, XrcDomain, Ah);

impl DeviceMemory for Dm {
    type P = Softroce;
    fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        match *self {}
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
        match *self {}
    }
}

impl MemoryWindow for Mw {
    type P = Softroce;
    fn rkey(&self) -> RKey {
        match *self {}
    }
    fn mw_type(&self) -> MwType {
        match *self {}
    }
}

impl SharedReceiveQueue for Srq {
    type P = Softroce;
    fn srqn(&self) -> u32 {
        match *self {}
    }
    fn post_recv(&self, _: &[RecvWr<'_>]) -> Result<(), PostError> {
        match *self {}
    }
    fn modify(&self, _: Option<u32>, _: Option<u32>) -> Result<()> {
        match *self {}
    }
    fn query(&self) -> Result<SrqAttr> {
        match *self {}
    }
}
