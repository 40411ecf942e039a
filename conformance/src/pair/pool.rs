//! A shared receive queue, ready to use.

use verbs_api::{Context as _, ProtectionDomain, Provider, RecvWr, Sge, SharedReceiveQueue, SrqInit};

use super::Setup;
use crate::outcome::{CaseResult, Failure};
use crate::scene::Scene;
use crate::testbed::{Side, Testbed};

/// The cookie of every shared receive queue made here.
pub const POOL_COOKIE: u64 = 0x5047;

/// A shared receive queue and its domain.
#[derive(Debug)]
pub struct ReceivePool<P: Provider> {
    /// The queue.
    pub srq: P::Srq,
    /// Its domain.
    pub pd: P::Pd,
}

impl<P: Provider> ReceivePool<P> {
    /// Post one receive.
    pub fn recv(&self, wr_id: u64, sges: &[Sge]) -> CaseResult {
        Ok(self.srq.post_recv(&[RecvWr { wr_id, sges }])?)
    }
}

impl<B: Testbed> Scene<B> {
    /// A shared receive queue for `max_wr` receives of up to four entries, in a domain of its own.
    pub fn receive_pool(&self, side: Side, max_wr: u32) -> Result<ReceivePool<B::P>, Failure> {
        let pd = self.bed.device(side, Setup::default().family).alloc_pd()?;
        let srq = pd.create_srq(&SrqInit {
            max_wr,
            max_sge: 4,
            limit: 0,
            cookie: POOL_COOKIE,
            xrc: None,
        })?;
        Ok(ReceivePool { srq, pd })
    }
}
