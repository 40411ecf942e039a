//! The attributes of a queue pair one by one.

use verbs_api::{AltPath, MigState, Provider, QpAttr, QpAttrMask, QpState, QpType};

use crate::pair::Pair;

/// The order in which they are tried.
const ONE_BY_ONE: [QpAttrMask; 19] = [
    QpAttrMask::ACCESS_FLAGS,
    QpAttrMask::PKEY_INDEX,
    QpAttrMask::PORT,
    QpAttrMask::QKEY,
    QpAttrMask::AV,
    QpAttrMask::PATH_MTU,
    QpAttrMask::TIMEOUT,
    QpAttrMask::RETRY_CNT,
    QpAttrMask::RNR_RETRY,
    QpAttrMask::RQ_PSN,
    QpAttrMask::MAX_QP_RD_ATOMIC,
    QpAttrMask::MIN_RNR_TIMER,
    QpAttrMask::SQ_PSN,
    QpAttrMask::MAX_DEST_RD_ATOMIC,
    QpAttrMask::PATH_MIG_STATE,
    QpAttrMask::EN_SQD_ASYNC_NOTIFY,
    QpAttrMask::ALT_PATH,
    QpAttrMask::RATE_LIMIT,
    QpAttrMask::DEST_QPN,
];

/// Every attribute with a harmless value.
pub(super) fn every_attribute<P: Provider>(pair: &Pair<P>) -> Vec<(QpAttrMask, QpAttr)> {
    let (own, peer) = (&pair.left.endpoint, &pair.right.endpoint);
    // A reliable connection has a value for nearly all.
    let setup = pair.setup.with_type(QpType::Rc);
    let (init, rtr, rts) = (
        setup.to_init(own.gid.port),
        setup.to_rtr(own, peer),
        setup.to_rts(own),
    );
    let all = QpAttr {
        access: init.access,
        pkey_index: init.pkey_index,
        port: init.port,
        qkey: Some(0x1111),
        av: rtr.av,
        path_mtu: rtr.path_mtu,
        timeout: rts.timeout,
        retry_cnt: rts.retry_cnt,
        rnr_retry: rts.rnr_retry,
        rq_psn: rtr.rq_psn,
        max_rd_atomic: rts.max_rd_atomic,
        min_rnr_timer: rtr.min_rnr_timer,
        sq_psn: rts.sq_psn,
        max_dest_rd_atomic: rtr.max_dest_rd_atomic,
        path_mig_state: Some(MigState::Migrated),
        en_sqd_async_notify: Some(true),
        alt_path: Some(AltPath {
            av: own.vector_to(peer),
            pkey_index: 0,
            timeout: 14,
        }),
        rate_limit: Some(1),
        dest_qpn: rtr.dest_qpn,
        ..QpAttr::default()
    };
    ONE_BY_ONE.map(|one| (one, without(all, !one))).to_vec()
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
    base.en_sqd_async_notify = extra.en_sqd_async_notify.or(base.en_sqd_async_notify);
    base.alt_path = extra.alt_path.or(base.alt_path);
    base.rate_limit = extra.rate_limit.or(base.rate_limit);
    base.dest_qpn = extra.dest_qpn.or(base.dest_qpn);
    base
}

/// The same without the attributes of `mask`.
pub(super) fn without(mut attr: QpAttr, mask: QpAttrMask) -> QpAttr {
    use QpAttrMask as M;
    let gone = |bit| mask.contains(bit);
    attr.access = attr.access.filter(|_| !gone(M::ACCESS_FLAGS));
    attr.pkey_index = attr.pkey_index.filter(|_| !gone(M::PKEY_INDEX));
    attr.port = attr.port.filter(|_| !gone(M::PORT));
    attr.qkey = attr.qkey.filter(|_| !gone(M::QKEY));
    attr.av = attr.av.filter(|_| !gone(M::AV));
    attr.path_mtu = attr.path_mtu.filter(|_| !gone(M::PATH_MTU));
    attr.timeout = attr.timeout.filter(|_| !gone(M::TIMEOUT));
    attr.retry_cnt = attr.retry_cnt.filter(|_| !gone(M::RETRY_CNT));
    attr.rnr_retry = attr.rnr_retry.filter(|_| !gone(M::RNR_RETRY));
    attr.rq_psn = attr.rq_psn.filter(|_| !gone(M::RQ_PSN));
    attr.max_rd_atomic = attr.max_rd_atomic.filter(|_| !gone(M::MAX_QP_RD_ATOMIC));
    attr.min_rnr_timer = attr.min_rnr_timer.filter(|_| !gone(M::MIN_RNR_TIMER));
    attr.sq_psn = attr.sq_psn.filter(|_| !gone(M::SQ_PSN));
    attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.filter(|_| !gone(M::MAX_DEST_RD_ATOMIC));
    attr.path_mig_state = attr.path_mig_state.filter(|_| !gone(M::PATH_MIG_STATE));
    attr.en_sqd_async_notify = attr.en_sqd_async_notify.filter(|_| !gone(M::EN_SQD_ASYNC_NOTIFY));
    attr.alt_path = attr.alt_path.filter(|_| !gone(M::ALT_PATH));
    attr.rate_limit = attr.rate_limit.filter(|_| !gone(M::RATE_LIMIT));
    attr.dest_qpn = attr.dest_qpn.filter(|_| !gone(M::DEST_QPN));
    attr
}

/// What each transition permits beyond what it requires.
pub(super) fn optional(qp_type: QpType, from: QpState, to: QpState) -> QpAttrMask {
    use QpAttrMask as M;
    if qp_type == QpType::Ud {
        return match (from, to) {
            (QpState::Init, QpState::Init) => M::PKEY_INDEX | M::PORT | M::QKEY,
            (QpState::Init, QpState::Rtr) | (QpState::Sqd, QpState::Sqd) => M::PKEY_INDEX | M::QKEY,
            (QpState::Rtr | QpState::Rts | QpState::Sqd, QpState::Rts) => M::CUR_STATE | M::QKEY,
            (QpState::Rts, QpState::Sqd) => M::EN_SQD_ASYNC_NOTIFY,
            _ => M::empty(),
        };
    }
    let (answers, requests) = match qp_type {
        QpType::Rc => (true, true),
        QpType::XrcTarget => (true, false),
        QpType::XrcInitiator => (false, true),
        _ => (false, false),
    };
    let when = |given: bool, mask: M| if given { mask } else { M::empty() };
    let rnr_timer = when(answers, M::MIN_RNR_TIMER);
    match (from, to) {
        (QpState::Init, QpState::Init) => M::PKEY_INDEX | M::PORT | M::ACCESS_FLAGS,
        (QpState::Init, QpState::Rtr) => M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX,
        (QpState::Rtr | QpState::Rts | QpState::Sqd, QpState::Rts) => {
            M::CUR_STATE | M::ALT_PATH | M::ACCESS_FLAGS | M::PATH_MIG_STATE | rnr_timer
        }
        (QpState::Rts, QpState::Sqd) => M::EN_SQD_ASYNC_NOTIFY,
        (QpState::Sqd, QpState::Sqd) => {
            let all = M::AV | M::ALT_PATH | M::ACCESS_FLAGS | M::PKEY_INDEX | M::PATH_MIG_STATE;
            let reliable = when(answers || requests, M::PORT | M::TIMEOUT);
            let requester = when(requests, M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC);
            let responder = when(answers, M::MAX_DEST_RD_ATOMIC) | rnr_timer;
            all | reliable | requester | responder
        }
        _ => M::empty(),
    }
}
