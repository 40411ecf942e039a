use std::fmt::Write;

use verbs_api::{AddressVector, AltPath, ErrorKind, MigState, Mtu, QpCap};

use super::*;

const TYPES: [QpType; 7] = [
    QpType::Rc,
    QpType::Uc,
    QpType::Ud,
    QpType::Gsi,
    QpType::XrcInitiator,
    QpType::XrcTarget,
    QpType::RawPacket,
];

/// Some legal value for every attribute of `mask`; `from` is what CUR_STATE must say.
fn attr_with(mask: QpAttrMask, from: QpState, to: QpState) -> QpAttr {
    fn some<T>(mask: QpAttrMask, bit: QpAttrMask, value: T) -> Option<T> {
        mask.contains(bit).then_some(value)
    }
    QpAttr {
        state: Some(to),
        cur_state: some(mask, M::CUR_STATE, from),
        en_sqd_async_notify: some(mask, M::EN_SQD_ASYNC_NOTIFY, true),
        access: some(mask, M::ACCESS_FLAGS, Default::default()),
        pkey_index: some(mask, M::PKEY_INDEX, 0),
        port: some(mask, M::PORT, 1),
        qkey: some(mask, M::QKEY, 0x1234),
        av: some(mask, M::AV, AddressVector::default()),
        path_mtu: some(mask, M::PATH_MTU, Mtu::Mtu1024),
        timeout: some(mask, M::TIMEOUT, 14),
        retry_cnt: some(mask, M::RETRY_CNT, 7),
        rnr_retry: some(mask, M::RNR_RETRY, 7),
        rq_psn: some(mask, M::RQ_PSN, 0xff_ffff),
        max_rd_atomic: some(mask, M::MAX_QP_RD_ATOMIC, 1),
        alt_path: some(mask, M::ALT_PATH, AltPath::default()),
        min_rnr_timer: some(mask, M::MIN_RNR_TIMER, 12),
        sq_psn: some(mask, M::SQ_PSN, 0),
        max_dest_rd_atomic: some(mask, M::MAX_DEST_RD_ATOMIC, 1),
        path_mig_state: some(mask, M::PATH_MIG_STATE, MigState::Migrated),
        cap: some(mask, M::CAP, QpCap::default()),
        dest_qpn: some(mask, M::DEST_QPN, 17),
        rate_limit: some(mask, M::RATE_LIMIT, 1_000),
        ..QpAttr::default()
    }
}

/// Every cell: kind, way, required | optional.
fn print_table() -> String {
    let mut text = String::new();
    for qp_type in TYPES {
        writeln!(text, "{qp_type:?}").unwrap();
        for from in QpState::ALL {
            for to in QpState::ALL {
                let way = format!("{} -> {}", state_name(from), state_name(to));
                let cell = match attributes(qp_type, from, to) {
                    None => "no".to_string(),
                    Some(Attributes { required, optional }) => {
                        format!("needs [{}] may [{}]", names(required), names(optional))
                    }
                };
                writeln!(text, "  {way:14} {cell}").unwrap();
            }
        }
    }
    text
}

#[test]
fn every_cell_of_the_table_is_as_it_was_reviewed() {
    let now = print_table();
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/qp/transition/table.txt");
        std::fs::write(path, &now).unwrap();
        return;
    }
    let reviewed = include_str!("table.txt");
    for (line, (now, reviewed)) in now.lines().zip(reviewed.lines()).enumerate() {
        assert_eq!(
            now,
            reviewed,
            "line {} of table.txt; UPDATE_SNAPSHOTS=1 writes it anew",
            line + 1
        );
    }
    assert_eq!(now.len(), reviewed.len());
}

#[test]
fn every_way_is_taken_with_its_required_attributes_and_with_all_optional_ones_too() {
    for (qp_type, from, to, attributes) in ways() {
        for mask in [attributes.required, attributes.required | attributes.optional] {
            let answer = check(qp_type, from, &attr_with(mask, from, to));
            assert_eq!(answer.unwrap(), to, "{qp_type:?} {from:?} {to:?} {mask:?}");
        }
    }
}

#[test]
fn a_missing_attribute_is_refused_by_its_name() {
    for (qp_type, from, to, attributes) in ways() {
        for missing in attributes.required {
            let attr = attr_with(attributes.required - missing, from, to);
            let error = check(qp_type, from, &attr).unwrap_err();
            let sentence = format!(
                "from {} to {} needs {} as well",
                state_name(from),
                state_name(to),
                names(missing)
            );
            assert!(error.to_string().contains(&sentence), "{error}");
            assert_eq!(error.kind(), ErrorKind::Invalid);
        }
    }
}

#[test]
fn an_attribute_that_does_not_belong_to_the_way_is_refused_by_its_name() {
    for (qp_type, from, to, attributes) in ways() {
        let allowed = attributes.required | attributes.optional | M::STATE;
        for extra in M::all() - allowed {
            let error = check(qp_type, from, &attr_with(attributes.required | extra, from, to)).unwrap_err();
            let sentence = format!(
                "from {} to {} does not take {}",
                state_name(from),
                state_name(to),
                names(extra)
            );
            assert!(error.to_string().contains(&sentence), "{error}");
        }
    }
}

#[test]
fn a_way_that_does_not_exist_is_refused_whatever_comes_along_and_the_open_ones_are_named() {
    for qp_type in TYPES {
        for from in QpState::ALL {
            for to in QpState::ALL {
                if attributes(qp_type, from, to).is_none() {
                    for mask in [M::empty(), M::all()] {
                        let error = check(qp_type, from, &attr_with(mask, from, to)).unwrap_err();
                        assert!(error.to_string().contains("cannot go"), "{error}");
                    }
                }
            }
        }
    }
    let error = check(
        QpType::Rc,
        QpState::Reset,
        &attr_with(M::empty(), QpState::Reset, QpState::Rtr),
    )
    .unwrap_err();
    assert_eq!(
        error.to_string(),
        "an RC queue pair cannot go from RESET to RTR; from there it can go to RESET, INIT"
    );
}

#[test]
fn a_call_without_a_state_stays_where_it_is_and_takes_what_that_way_takes() {
    let attr = QpAttr {
        min_rnr_timer: Some(3),
        ..QpAttr::default()
    };
    assert_eq!(check(QpType::Rc, QpState::Rts, &attr).unwrap(), QpState::Rts);
    let error = check(QpType::Uc, QpState::Rts, &attr).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("from RTS to RTS does not take MIN_RNR_TIMER"),
        "{error}"
    );
    assert!(check(QpType::Rc, QpState::Rtr, &attr).is_err());
}

#[test]
fn a_wrong_belief_about_the_current_state_is_refused() {
    let mut attr = attr_with(M::CUR_STATE, QpState::Sqd, QpState::Rts);
    assert_eq!(check(QpType::Rc, QpState::Sqd, &attr).unwrap(), QpState::Rts);
    attr.cur_state = Some(QpState::Rtr);
    let error = check(QpType::Rc, QpState::Sqd, &attr).unwrap_err();
    assert_eq!(
        error.to_string(),
        "CUR_STATE says RTR, but the queue pair is in SQD; query it and decide again"
    );
}

#[test]
fn values_beyond_the_range_of_the_wire_are_refused_with_the_range() {
    let connect = || {
        let attributes = attributes(QpType::Rc, QpState::Init, QpState::Rtr).unwrap();
        attr_with(attributes.required, QpState::Init, QpState::Rtr)
    };
    let run = || {
        let attributes = attributes(QpType::Rc, QpState::Rtr, QpState::Rts).unwrap();
        attr_with(attributes.required, QpState::Rtr, QpState::Rts)
    };
    let flow = AddressVector {
        flow_label: 1 << 20,
        ..AddressVector::default()
    };
    let refused = [
        (
            QpState::Init,
            QpAttr {
                rq_psn: Some(1 << 24),
                ..connect()
            },
            "RQ_PSN is 0x1000000",
        ),
        (
            QpState::Init,
            QpAttr {
                dest_qpn: Some(1 << 24),
                ..connect()
            },
            "DEST_QPN is 0x1000000",
        ),
        (
            QpState::Init,
            QpAttr {
                min_rnr_timer: Some(32),
                ..connect()
            },
            "MIN_RNR_TIMER is 0x20",
        ),
        (
            QpState::Init,
            QpAttr {
                av: Some(flow),
                ..connect()
            },
            "flow label",
        ),
        (
            QpState::Rtr,
            QpAttr {
                sq_psn: Some(u32::MAX),
                ..run()
            },
            "SQ_PSN is 0xffffffff",
        ),
        (
            QpState::Rtr,
            QpAttr {
                timeout: Some(32),
                ..run()
            },
            "TIMEOUT is 0x20; it is at most 0x1f",
        ),
        (
            QpState::Rtr,
            QpAttr {
                retry_cnt: Some(8),
                ..run()
            },
            "RETRY_CNT is 0x8",
        ),
        (
            QpState::Rtr,
            QpAttr {
                rnr_retry: Some(8),
                ..run()
            },
            "RNR_RETRY is 0x8",
        ),
    ];
    for (from, attr, words) in refused {
        let error = check(QpType::Rc, from, &attr).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
    }
}

fn ways() -> impl Iterator<Item = (QpType, QpState, QpState, Attributes)> {
    TYPES.into_iter().flat_map(|qp_type| {
        QpState::ALL.into_iter().flat_map(move |from| {
            QpState::ALL
                .into_iter()
                .filter_map(move |to| Some((qp_type, from, to, attributes(qp_type, from, to)?)))
        })
    })
}
