//! Queue pair attributes: a mask with values in C, a struct of options here.

use std::ffi::c_int;

use verbs_api::{
    Access, AddressVector, AltPath, Error, Gid, MigState, Mtu, QpAttr, QpAttrMask, QpCap, QpState, QpType,
    Result,
};

use crate::{ibv_ah_attr, ibv_gid, ibv_global_route, ibv_qp_attr, ibv_qp_cap};

/// For C.
pub fn cap_to_c(cap: &QpCap) -> ibv_qp_cap {
    ibv_qp_cap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// From C.
pub fn cap_from_c(cap: &ibv_qp_cap) -> QpCap {
    QpCap {
        max_send_wr: cap.max_send_wr,
        max_recv_wr: cap.max_recv_wr,
        max_send_sge: cap.max_send_sge,
        max_recv_sge: cap.max_recv_sge,
        max_inline_data: cap.max_inline_data,
    }
}

/// From C.
pub fn qp_type_from_c(code: c_int) -> Result<QpType> {
    QpType::from_code(code as u32)
        .ok_or_else(|| Error::invalid(format!("{code} is no queue pair type (see ibv_qp_type)")))
}

/// For C.
pub fn ah_attr_to_c(av: &AddressVector) -> ibv_ah_attr {
    ibv_ah_attr {
        grh: ibv_global_route {
            dgid: ibv_gid {
                raw: av.dgid.unwrap_or_default().0,
            },
            flow_label: av.flow_label,
            sgid_index: av.sgid_index,
            hop_limit: av.hop_limit,
            traffic_class: av.traffic_class,
        },
        dlid: av.dlid,
        sl: av.service_level,
        src_path_bits: av.src_path_bits,
        static_rate: av.static_rate,
        is_global: u8::from(av.dgid.is_some()),
        port_num: av.port,
    }
}

/// From C. A flow label has 20 bits; programs that want any at all set all 32, of which cards look at no others.
pub fn ah_attr_from_c(attr: &ibv_ah_attr) -> AddressVector {
    AddressVector {
        dgid: (attr.is_global != 0).then_some(Gid(attr.grh.dgid.raw)),
        sgid_index: attr.grh.sgid_index,
        flow_label: attr.grh.flow_label & 0xf_ffff,
        hop_limit: attr.grh.hop_limit,
        traffic_class: attr.grh.traffic_class,
        dlid: attr.dlid,
        service_level: attr.sl,
        src_path_bits: attr.src_path_bits,
        static_rate: attr.static_rate,
        port: attr.port_num,
    }
}

/// For C: the values, and the mask of those that are present.
pub fn qp_attr_to_c(attr: &QpAttr) -> (ibv_qp_attr, c_int) {
    let alt = attr.alt_path.unwrap_or_default();
    let values = ibv_qp_attr {
        qp_state: attr.state.unwrap_or_default() as c_int,
        cur_qp_state: attr.cur_state.or(attr.state).unwrap_or_default() as c_int,
        path_mtu: attr.path_mtu.map_or(0, |mtu| mtu as c_int),
        path_mig_state: attr.path_mig_state.unwrap_or_default() as c_int,
        qkey: attr.qkey.unwrap_or_default(),
        rq_psn: attr.rq_psn.unwrap_or_default(),
        sq_psn: attr.sq_psn.unwrap_or_default(),
        dest_qp_num: attr.dest_qpn.unwrap_or_default(),
        qp_access_flags: attr.access.unwrap_or_default().bits(),
        cap: cap_to_c(&attr.cap.unwrap_or_default()),
        ah_attr: ah_attr_to_c(&attr.av.unwrap_or_default()),
        alt_ah_attr: ah_attr_to_c(&alt.av),
        pkey_index: attr.pkey_index.unwrap_or_default(),
        alt_pkey_index: alt.pkey_index,
        en_sqd_async_notify: u8::from(attr.en_sqd_async_notify.unwrap_or_default()),
        sq_draining: u8::from(attr.sq_draining),
        max_rd_atomic: attr.max_rd_atomic.unwrap_or_default(),
        max_dest_rd_atomic: attr.max_dest_rd_atomic.unwrap_or_default(),
        min_rnr_timer: attr.min_rnr_timer.unwrap_or_default(),
        port_num: attr.port.unwrap_or_default(),
        timeout: attr.timeout.unwrap_or_default(),
        retry_cnt: attr.retry_cnt.unwrap_or_default(),
        rnr_retry: attr.rnr_retry.unwrap_or_default(),
        alt_port_num: alt.av.port,
        alt_timeout: alt.timeout,
        rate_limit: attr.rate_limit.unwrap_or_default(),
    };
    (values, attr.mask().bits() as c_int)
}

/// From C: those values that `mask` names. Unknown bits of the mask and unknown numbers are errors.
pub fn qp_attr_from_c(attr: &ibv_qp_attr, mask: c_int) -> Result<QpAttr> {
    let mask = QpAttrMask::from_bits(mask as u32)
        .ok_or_else(|| Error::invalid(format!("the attribute mask {mask:#x} has bits that mean nothing")))?;
    let has = |bit: QpAttrMask| mask.contains(bit);
    let state = |code: c_int| {
        QpState::from_code(code as u32)
            .ok_or_else(|| Error::invalid(format!("{code} is no queue pair state")))
    };
    let mut out = QpAttr {
        en_sqd_async_notify: has(QpAttrMask::EN_SQD_ASYNC_NOTIFY).then_some(attr.en_sqd_async_notify != 0),
        pkey_index: has(QpAttrMask::PKEY_INDEX).then_some(attr.pkey_index),
        port: has(QpAttrMask::PORT).then_some(attr.port_num),
        qkey: has(QpAttrMask::QKEY).then_some(attr.qkey),
        av: has(QpAttrMask::AV).then(|| ah_attr_from_c(&attr.ah_attr)),
        timeout: has(QpAttrMask::TIMEOUT).then_some(attr.timeout),
        retry_cnt: has(QpAttrMask::RETRY_CNT).then_some(attr.retry_cnt),
        rnr_retry: has(QpAttrMask::RNR_RETRY).then_some(attr.rnr_retry),
        rq_psn: has(QpAttrMask::RQ_PSN).then_some(attr.rq_psn),
        max_rd_atomic: has(QpAttrMask::MAX_QP_RD_ATOMIC).then_some(attr.max_rd_atomic),
        min_rnr_timer: has(QpAttrMask::MIN_RNR_TIMER).then_some(attr.min_rnr_timer),
        sq_psn: has(QpAttrMask::SQ_PSN).then_some(attr.sq_psn),
        max_dest_rd_atomic: has(QpAttrMask::MAX_DEST_RD_ATOMIC).then_some(attr.max_dest_rd_atomic),
        cap: has(QpAttrMask::CAP).then(|| cap_from_c(&attr.cap)),
        dest_qpn: has(QpAttrMask::DEST_QPN).then_some(attr.dest_qp_num),
        rate_limit: has(QpAttrMask::RATE_LIMIT).then_some(attr.rate_limit),
        sq_draining: attr.sq_draining != 0,
        ..QpAttr::default()
    };
    if has(QpAttrMask::STATE) {
        out.state = Some(state(attr.qp_state)?);
    }
    if has(QpAttrMask::CUR_STATE) {
        out.cur_state = Some(state(attr.cur_qp_state)?);
    }
    if has(QpAttrMask::ACCESS_FLAGS) {
        let flags = attr.qp_access_flags;
        out.access = Some(
            Access::from_bits(flags)
                .ok_or_else(|| Error::invalid(format!("access flags {flags:#x} have unknown bits")))?,
        );
    }
    if has(QpAttrMask::PATH_MTU) {
        let code = attr.path_mtu;
        out.path_mtu = Some(Mtu::from_code(code as u32).ok_or_else(|| {
            Error::invalid(format!(
                "{code} is no path MTU: 1 (256 bytes) to 5 (4096 bytes) are"
            ))
        })?);
    }
    if has(QpAttrMask::ALT_PATH) {
        let mut av = ah_attr_from_c(&attr.alt_ah_attr);
        av.port = attr.alt_port_num;
        out.alt_path = Some(AltPath {
            av,
            pkey_index: attr.alt_pkey_index,
            timeout: attr.alt_timeout,
        });
    }
    if has(QpAttrMask::PATH_MIG_STATE) {
        let code = attr.path_mig_state;
        out.path_mig_state = Some(
            MigState::from_code(code as u32)
                .ok_or_else(|| Error::invalid(format!("{code} is no path migration state")))?,
        );
    }
    Ok(out)
}
