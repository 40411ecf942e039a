//! Which optional features the engine offers.
#![forbid(unsafe_code)]

use verbs_api::Capabilities;

use super::Engine;
use crate::memory::HAS_ON_DEMAND;

impl Engine {
    /// What is said here works, and what is not said here answers EOPNOTSUPP.
    ///
    /// Multicast also needs a fabric that can join groups.
    pub fn capabilities(&self) -> Capabilities {
        Capabilities {
            qp_rc: true,
            qp_uc: true,
            qp_ud: true,
            multicast: true,
            qp_xrc: true,
            srq: true,
            mw_type1: true,
            mw_type2: true,
            device_memory: true,
            atomic_write: true,
            flush: true,
            null_mr: true,
            rereg_mr: true,
            zero_based: true,
            resize_cq: true,
            cq_timestamps: true,
            on_demand_paging: HAS_ON_DEMAND,
            ..Capabilities::default()
        }
    }
}
