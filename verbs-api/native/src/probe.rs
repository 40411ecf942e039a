//! What a device can do. Some of it the library tells; the rest is found out by trying, once.

use verbs_api::{
    Access, Buffer, Capabilities, CompletionQueue, Context as _, CqInit, MemoryRegion, MwType,
    ProtectionDomain, QpCap, QpInit, QpType, Rereg, device_caps,
};

use verbs_sys::{IBV_QP_EX_WITH_ATOMIC_WRITE, IBV_QP_EX_WITH_FLUSH};

use crate::{Context, Cq, Mr, Native, Pd, Transport, query};

/// What was found out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Probed {
    pub(crate) capabilities: Capabilities,
    /// The most bytes that a queue pair may be asked to carry inline.
    pub(crate) max_inline_data: u32,
}

/// A card with more than that is not known.
const INLINE_MAX: u32 = 1 << 14;

impl Probed {
    pub(crate) fn find_out(context: &Context) -> Probed {
        let (Ok(pd), Ok(cq)) = (context.alloc_pd(), context.create_cq(&CqInit::new(1))) else {
            return Probed::default();
        };
        Probed {
            capabilities: capabilities(context, &pd, &cq),
            max_inline_data: max_inline_data(&pd, &cq),
        }
    }
}

fn queue_pair(cq: &Cq, qp_type: QpType, max_inline_data: u32) -> QpInit<'_, Native> {
    QpInit {
        qp_type,
        cap: QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data,
        },
        ..QpInit::rc(cq)
    }
}

/// The largest size that is granted, by halving.
fn max_inline_data(pd: &Pd, cq: &Cq) -> u32 {
    let grants = |bytes| pd.create_qp(&queue_pair(cq, QpType::Rc, bytes)).is_ok();
    let (mut granted, mut refused) = (0, INLINE_MAX + 1);
    while refused - granted > 1 {
        let middle = granted + (refused - granted) / 2;
        match grants(middle) {
            true => granted = middle,
            false => refused = middle,
        }
    }
    granted
}

/// FLUSH and ATOMIC WRITE: whether a queue pair comes with the builder's functions for them.
fn newer_operations(pd: &Pd, cq: &Cq) -> (bool, bool) {
    pd.create_qp(&queue_pair(cq, QpType::Rc, 0))
        .map(|qp| {
            (
                qp.offers(IBV_QP_EX_WITH_FLUSH),
                qp.offers(IBV_QP_EX_WITH_ATOMIC_WRITE),
            )
        })
        .unwrap_or_default()
}

fn capabilities(context: &Context, pd: &Pd, cq: &Cq) -> Capabilities {
    let attr = query::device(context).unwrap_or_default();
    let extended = query::extended(context);
    let has_type = |qp_type| pd.create_qp(&queue_pair(cq, qp_type, 0)).is_ok();
    let has_window = |mw_type| pd.alloc_mw(mw_type).is_ok();
    let buffer = Buffer::new(4096);
    let registers = |access: Access| pd.reg_mr(&buffer, access).is_ok();
    let (flush, atomic_write) = newer_operations(pd, cq);
    Capabilities {
        qp_rc: has_type(QpType::Rc),
        qp_uc: has_type(QpType::Uc),
        qp_ud: has_type(QpType::Ud),
        qp_xrc: context.open_xrc_domain(None).is_ok(),
        srq: attr.max_srq > 0,
        mw_type1: has_window(MwType::Type1),
        mw_type2: has_window(MwType::Type2),
        device_memory: attr.max_dm_bytes > 0,
        null_mr: pd.alloc_null_mr().is_ok(),
        rereg_mr: pd
            .reg_mr(&buffer, Access::LOCAL_WRITE)
            .is_ok_and(|mut mr: Mr| changes(&mut mr, pd)),
        zero_based: registers(Access::LOCAL_WRITE | Access::ZERO_BASED),
        resize_cq: context
            .create_cq(&CqInit::new(1))
            .is_ok_and(|cq| cq.resize(2).is_ok()),
        cq_timestamps: extended.timestamp_mask != 0
            && context
                .create_cq(&CqInit {
                    timestamps: true,
                    ..CqInit::new(1)
                })
                .is_ok(),
        multicast: attr.max_mcast_grp > 0 && context.transport() != Transport::Iwarp,
        atomic_write: atomic_write && attr.device_cap_flags & device_caps::ATOMIC_WRITE != 0,
        flush: flush && attr.device_cap_flags & device_caps::FLUSH_GLOBAL != 0,
        parent_domain: pd.parent_domain().is_ok(),
        on_demand_paging: extended.odp_general_caps & 1 != 0,
    }
}

/// Whether a region can be registered anew, with all that may change.
fn changes(mr: &mut Mr, pd: &Pd) -> bool {
    let another = Buffer::new(4096);
    mr.rereg(&Rereg {
        pd: Some(pd),
        buffer: Some(&another),
        access: Some(Access::LOCAL_WRITE | Access::REMOTE_READ),
    })
    .is_ok()
}
