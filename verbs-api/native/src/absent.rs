//! The handle types of what this provider does not offer: they have no values.

use verbs_api::{
    DeviceMemory, MemoryWindow, MwType, Object, PostError, RKey, RecvWr, Refused, Result, SharedReceiveQueue,
    SrqAttr,
};

use crate::Native;

/// No value has this type.
#[derive(Clone, Debug)]
pub enum Absent {}

impl Object for Absent {
    fn destroy(self) -> Result<(), Refused<Self>> {
        match self {}
    }
}

impl DeviceMemory for Absent {
    type P = Native;
    fn write(&self, _: u64, _: &[u8]) -> Result<()> {
        match *self {}
    }
    fn read(&self, _: u64, _: &mut [u8]) -> Result<()> {
        match *self {}
    }
}

impl MemoryWindow for Absent {
    type P = Native;
    fn rkey(&self) -> RKey {
        match *self {}
    }
    fn mw_type(&self) -> MwType {
        match *self {}
    }
}

impl SharedReceiveQueue for Absent {
    type P = Native;
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
