//! All ways from state to state, of every type: with what they need, with one attribute less, with one too many.

use verbs_api::{QpAttr, QpAttrMask, QpState, QpType};

use super::subject::{Subject, TYPES, Values, attributes, is_refused};
use super::table;

/// Every pair of states that a queue pair of this type can try, with a fresh one in the first of them.
fn for_all_pairs(mut check: impl FnMut(&mut Subject, QpState, QpState)) {
    for qp_type in TYPES {
        let mut subject = Subject::new(qp_type);
        for from in QpState::ALL {
            for to in QpState::ALL {
                if bring_anew(&mut subject, from) {
                    check(&mut subject, from, to);
                }
            }
        }
    }
}

fn bring_anew(subject: &mut Subject, state: QpState) -> bool {
    subject.renew();
    subject.bring_to(state)
}

/// What query must say after `given` was set.
fn expected(before: &QpAttr, given: &QpAttr, to: QpState) -> QpAttr {
    QpAttr {
        state: Some(to),
        cur_state: Some(to),
        en_sqd_async_notify: given.en_sqd_async_notify.or(before.en_sqd_async_notify),
        access: given.access.or(before.access),
        pkey_index: given.pkey_index.or(before.pkey_index),
        port: given.port.or(before.port),
        qkey: given.qkey.or(before.qkey),
        av: given.av.or(before.av),
        path_mtu: given.path_mtu.or(before.path_mtu),
        timeout: given.timeout.or(before.timeout),
        retry_cnt: given.retry_cnt.or(before.retry_cnt),
        rnr_retry: given.rnr_retry.or(before.rnr_retry),
        rq_psn: given.rq_psn.or(before.rq_psn),
        max_rd_atomic: given.max_rd_atomic.or(before.max_rd_atomic),
        alt_path: given.alt_path.or(before.alt_path),
        min_rnr_timer: given.min_rnr_timer.or(before.min_rnr_timer),
        sq_psn: given.sq_psn.or(before.sq_psn),
        max_dest_rd_atomic: given.max_dest_rd_atomic.or(before.max_dest_rd_atomic),
        dest_qpn: given.dest_qpn.or(before.dest_qpn),
        ..*before
    }
}

fn assert_refused(subject: &mut Subject, attr: &QpAttr) {
    let before = subject.query();
    let result = subject.modify(attr);
    assert!(
        is_refused(&result),
        "{:?} {:?} {attr:?}: {result:?}",
        subject.qp_type,
        before.state
    );
    assert_eq!(subject.query(), before, "{:?} {attr:?}", subject.qp_type);
    assert_eq!((subject.sent(), subject.events()), (vec![], vec![]));
}

#[test]
fn each_way_is_taken_with_what_it_needs_and_each_attribute_that_it_takes_is_then_set() {
    for_all_pairs(|subject, from, to| {
        let Some(way) = table::way(subject.qp_type, from, to) else {
            return;
        };
        let singles = way.optional.iter().map(|one| way.required | one);
        let masks = [way.required, way.required | way.optional]
            .into_iter()
            .chain(singles);
        for mask in masks {
            assert!(bring_anew(subject, from));
            let before = subject.query();
            let given = attributes(mask, from, to, Values::Second);
            let what = format!("{:?} {from:?} {to:?} {mask:?}", subject.qp_type);
            subject
                .modify(&given)
                .unwrap_or_else(|error| panic!("{what}: {error}"));
            if to == QpState::Reset {
                let after = subject.query();
                subject.renew();
                assert_eq!(after, subject.query(), "{what}");
            } else {
                assert_eq!(subject.query(), expected(&before, &given, to), "{what}");
            }
        }
    });
}

#[test]
fn without_one_of_the_attributes_that_it_needs_no_way_is_taken_and_nothing_changes() {
    for_all_pairs(|subject, from, to| {
        let Some(way) = table::way(subject.qp_type, from, to) else {
            return;
        };
        for missing in way.required {
            assert_refused(
                subject,
                &attributes(way.required - missing, from, to, Values::Second),
            );
        }
    });
}

#[test]
fn with_an_attribute_that_does_not_belong_to_it_no_way_is_taken_and_nothing_changes() {
    for_all_pairs(|subject, from, to| {
        let Some(way) = table::way(subject.qp_type, from, to) else {
            return;
        };
        for foreign in QpAttrMask::all() - way.required - way.optional - QpAttrMask::STATE {
            assert_refused(
                subject,
                &attributes(way.required | foreign, from, to, Values::Second),
            );
        }
    });
}

#[test]
fn where_there_is_no_way_every_call_is_refused_and_nothing_changes() {
    for_all_pairs(|subject, from, to| {
        if table::way(subject.qp_type, from, to).is_some() {
            return;
        }
        assert_refused(
            subject,
            &attributes(QpAttrMask::empty(), from, to, Values::Second),
        );
        for one in QpAttrMask::all() - QpAttrMask::STATE {
            assert_refused(subject, &attributes(one, from, to, Values::Second));
        }
        assert_refused(subject, &attributes(QpAttrMask::all(), from, to, Values::Second));
    });
}

#[test]
fn only_unreliable_services_can_be_in_sqe() {
    for qp_type in TYPES {
        let can = matches!(qp_type, QpType::Uc | QpType::Ud);
        assert_eq!(Subject::new(qp_type).bring_to(QpState::Sqe), can, "{qp_type:?}");
    }
}
