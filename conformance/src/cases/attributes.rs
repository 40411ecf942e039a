//! The attributes of a queue pair one by one.

use verbs_api::{MigState, Provider, QpAttr, QpAttrMask, QpState};

use crate::pair::Pair;

/// Every attribute with a harmless value.
pub(super) fn every_attribute<P: Provider>(pair: &Pair<P>) -> Vec<(QpAttrMask, QpAttr)> {
    let (setup, own, peer) = (&pair.setup, &pair.left.endpoint, &pair.right.endpoint);
    let (init, rtr, rts) = (
        setup.to_init(own.gid.port),
        setup.to_rtr(own, peer),
        setup.to_rts(own),
    );
    let none = QpAttr::default();
    vec![
        (
            QpAttrMask::ACCESS_FLAGS,
            QpAttr {
                access: init.access,
                ..none
            },
        ),
        (
            QpAttrMask::PKEY_INDEX,
            QpAttr {
                pkey_index: init.pkey_index,
                ..none
            },
        ),
        (
            QpAttrMask::PORT,
            QpAttr {
                port: init.port,
                ..none
            },
        ),
        (
            QpAttrMask::QKEY,
            QpAttr {
                qkey: Some(0x1111),
                ..none
            },
        ),
        (QpAttrMask::AV, QpAttr { av: rtr.av, ..none }),
        (
            QpAttrMask::PATH_MTU,
            QpAttr {
                path_mtu: rtr.path_mtu,
                ..none
            },
        ),
        (
            QpAttrMask::TIMEOUT,
            QpAttr {
                timeout: rts.timeout,
                ..none
            },
        ),
        (
            QpAttrMask::RETRY_CNT,
            QpAttr {
                retry_cnt: rts.retry_cnt,
                ..none
            },
        ),
        (
            QpAttrMask::RNR_RETRY,
            QpAttr {
                rnr_retry: rts.rnr_retry,
                ..none
            },
        ),
        (
            QpAttrMask::RQ_PSN,
            QpAttr {
                rq_psn: rtr.rq_psn,
                ..none
            },
        ),
        (
            QpAttrMask::MAX_QP_RD_ATOMIC,
            QpAttr {
                max_rd_atomic: rts.max_rd_atomic,
                ..none
            },
        ),
        (
            QpAttrMask::MIN_RNR_TIMER,
            QpAttr {
                min_rnr_timer: rtr.min_rnr_timer,
                ..none
            },
        ),
        (
            QpAttrMask::SQ_PSN,
            QpAttr {
                sq_psn: rts.sq_psn,
                ..none
            },
        ),
        (
            QpAttrMask::MAX_DEST_RD_ATOMIC,
            QpAttr {
                max_dest_rd_atomic: rtr.max_dest_rd_atomic,
                ..none
            },
        ),
        (
            QpAttrMask::PATH_MIG_STATE,
            QpAttr {
                path_mig_state: Some(MigState::Migrated),
                ..none
            },
        ),
        (
            QpAttrMask::DEST_QPN,
            QpAttr {
                dest_qpn: rtr.dest_qpn,
                ..none
            },
        ),
    ]
}

pub(super) fn merge(mut base: QpAttr, extra: &QpAttr) -> QpAttr {
    base.access = extra.access.or(base.access);
    base.pkey_index = extra.pkey_index.or(base.pkey_index);
    base.port = extra.port.or(base.port);
    base.qkey = extra.qkey.or(base.qkey);
    base.av = extra.av.or(base.av);
    base.path_mtu = extra.path_mtu.or(base.path_mtu);
    base.timeout = extra.timeout.or(base.timeout);
    base.retry_cnt = extra.retry_cnt.or(base.retry_cnt);
    base.rnr_retry = extra.rnr_retry.or(base.rnr_retry);
    base.rq_psn = extra.rq_psn.or(base.rq_psn);
    base.max_rd_atomic = extra.max_rd_atomic.or(base.max_rd_atomic);
    base.min_rnr_timer = extra.min_rnr_timer.or(base.min_rnr_timer);
    base.sq_psn = extra.sq_psn.or(base.sq_psn);
    base.max_dest_rd_atomic = extra.max_dest_rd_atomic.or(base.max_dest_rd_atomic);
    base.path_mig_state = extra.path_mig_state.or(base.path_mig_state);
    base.dest_qpn = extra.dest_qpn.or(base.dest_qpn);
    base
}

/// What each transition of RC permits beyond what it requires.
pub(super) fn optional(from: QpState, to: QpState) -> QpAttrMask {
    use QpAttrMask as M;
    match (from, to) {
        (QpState::Init, QpState::Init) => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        (QpState::Init, QpState::Rtr) => M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX,
        (QpState::Rtr | QpState::Rts, QpState::Rts) | (QpState::Sqd, QpState::Rts) => {
            M::CUR_STATE | M::ALT_PATH | M::ACCESS_FLAGS | M::PATH_MIG_STATE | M::MIN_RNR_TIMER
        }
        (QpState::Rts, QpState::Sqd) => M::EN_SQD_ASYNC_NOTIFY,
        _ => M::empty(),
    }
}
