use verbs_api::*;

use super::*;

fn address_vector(port: u8) -> AddressVector {
    AddressVector {
        dgid: Some(Gid([7; 16])),
        sgid_index: 3,
        flow_label: 0xABCDE,
        hop_limit: 64,
        traffic_class: 0x68,
        dlid: 0x1234,
        service_level: 5,
        src_path_bits: 1,
        static_rate: 2,
        port,
    }
}

fn all_attributes() -> QpAttr {
    QpAttr {
        state: Some(QpState::Rts),
        cur_state: Some(QpState::Rtr),
        en_sqd_async_notify: Some(true),
        access: Some(Access::REMOTE_READ | Access::REMOTE_ATOMIC),
        pkey_index: Some(1),
        port: Some(1),
        qkey: Some(0x1111_1111),
        av: Some(address_vector(1)),
        path_mtu: Some(Mtu::Mtu2048),
        timeout: Some(14),
        retry_cnt: Some(7),
        rnr_retry: Some(6),
        rq_psn: Some(0xFF_FFFF),
        max_rd_atomic: Some(16),
        alt_path: Some(AltPath {
            av: address_vector(2),
            pkey_index: 4,
            timeout: 9,
        }),
        min_rnr_timer: Some(12),
        sq_psn: Some(0x80_0000),
        max_dest_rd_atomic: Some(8),
        path_mig_state: Some(MigState::Armed),
        cap: Some(QpCap {
            max_send_wr: 1,
            max_recv_wr: 2,
            max_send_sge: 3,
            max_recv_sge: 4,
            max_inline_data: 5,
        }),
        dest_qpn: Some(0x12_3456),
        rate_limit: Some(1000),
        sq_draining: true,
    }
}

#[test]
fn all_attributes_of_a_queue_pair_survive_the_way_to_c_and_back() {
    let attr = all_attributes();
    let (c, mask) = qp_attr_to_c(&attr);
    assert_eq!(qp_attr_from_c(&c, mask).unwrap(), attr);
}

#[test]
fn only_attributes_that_the_mask_names_are_taken() {
    let (c, _) = qp_attr_to_c(&all_attributes());
    let attr = qp_attr_from_c(&c, (QpAttrMask::STATE | QpAttrMask::SQ_PSN).bits() as i32).unwrap();
    assert_eq!(attr.mask(), QpAttrMask::STATE | QpAttrMask::SQ_PSN);
}

#[test]
fn numbers_that_mean_nothing_are_refused_by_name() {
    let (mut c, mask) = qp_attr_to_c(&all_attributes());
    c.path_mtu = 6;
    let error = qp_attr_from_c(&c, mask).unwrap_err();
    assert_eq!(error.errno(), libc::EINVAL);
    assert!(error.to_string().starts_with("6 is no path MTU"), "{error}");
    c.path_mtu = 1;
    c.qp_state = -1;
    assert!(qp_attr_from_c(&c, mask).is_err());
    assert!(qp_attr_from_c(&c, 1 << 30).is_err());
    assert!(qp_type_from_c(0).is_err());
}

#[test]
fn a_completion_survives_the_way_to_c_and_back() {
    let wc = Wc {
        wr_id: 0x0123_4567_89AB_CDEF,
        status: WcStatus::Success,
        opcode: WcOpcode::RecvRdmaWithImm,
        vendor_err: 0x99,
        byte_len: 4096,
        imm: 0x0102_0304,
        qp_num: 17,
        src_qp: 18,
        flags: WcFlags::WITH_IMM,
        pkey_index: 1,
        sl: 2,
        timestamp_ns: 0,
    };
    let c = wc_to_c(&wc);
    assert_eq!(c.imm_data.to_ne_bytes(), [1, 2, 3, 4], "network order in C");
    assert_eq!(wc_from_c(&c), wc);
    let invalidated = Wc {
        flags: WcFlags::WITH_INV,
        ..wc
    };
    assert_eq!(
        wc_to_c(&invalidated).imm_data,
        0x0102_0304,
        "a key is in host order"
    );
    assert_eq!(wc_from_c(&wc_to_c(&invalidated)), invalidated);
}

#[test]
fn device_and_port_survive_the_way_to_c_and_back() {
    let device = DeviceAttr {
        fw_ver: "0.1.0".into(),
        node_guid: 0x0211_22FF_FE33_4455,
        max_qp: 1 << 16,
        max_sge: 32,
        atomic_cap: AtomicCap::Hca,
        phys_port_cnt: 1,
        max_pkeys: 1,
        ..DeviceAttr::default()
    };
    assert_eq!(
        device_attr_to_c(&device).node_guid.to_ne_bytes()[..2],
        [0x02, 0x11],
        "a GUID is big endian in C"
    );
    assert_eq!(device_attr_from_c(&device_attr_to_c(&device)), device);
    let port = PortAttr {
        state: PortState::Active,
        max_mtu: Mtu::Mtu4096,
        active_mtu: Mtu::Mtu1024,
        gid_tbl_len: 8,
        port_cap_flags: 1 << 16,
        max_msg_sz: 1 << 30,
        bad_pkey_cntr: 0,
        qkey_viol_cntr: 0,
        pkey_tbl_len: 1,
        lid: 0,
        sm_lid: 0,
        lmc: 0,
        active_width: 1,
        active_speed: 32,
        phys_state: 5,
        link_layer: LinkLayer::Ethernet,
    };
    assert_eq!(port_attr_from_c(&port_attr_to_c(&port)), port);
}

#[test]
fn texts_are_cut_to_fit_and_terminated() {
    assert_eq!(text_from_c(&text_to_c::<4>("abcdef")), "abc");
    assert_eq!(text_from_c(&text_to_c::<8>("")), "");
}

#[test]
fn lists_of_entries_with_impossible_counts_are_refused() {
    // SAFETY: the pointers are never followed.
    unsafe {
        assert!(sge_list(std::ptr::null(), 1).is_none());
        assert!(sge_list(std::ptr::null(), -1).is_none());
        assert_eq!(sge_list(std::ptr::null(), 0), Some(&[][..]));
    }
}

#[test]
fn of_a_flow_label_twenty_bits_count() {
    let mut attr = ah_attr_to_c(&address_vector(1));
    attr.grh.flow_label = u32::MAX;
    assert_eq!(ah_attr_from_c(&attr).flow_label, 0xf_ffff);
    attr.grh.flow_label = 0xABC_ABCDE;
    assert_eq!(ah_attr_from_c(&attr), address_vector(1));
}
