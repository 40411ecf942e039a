//! Objects, their parents, and what a destroyed or foreign one does.

use softroce::{Options, Softroce};
use verbs_api::{
    Access, AddressVector, Buffer, CompletionQueue, Context as _, CqInit, MemoryRegion, MwType, Object,
    ProtectionDomain, Provider, QpInit, QpState, QpType, QueuePair, Rereg, Result, SrqInit,
};

use super::pair::{End, fresh_address, open, over_udp};

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EFAULT: i32 = 14;
const ENODEV: i32 = 19;
const EOPNOTSUPP: i32 = 95;

#[test]
fn parents_refuse_to_go_before_their_children() {
    let End {
        qp,
        cq,
        mr,
        buffer,
        pd,
        context,
    } = End::new(open(), None);
    let refused = pd.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    let pd = refused.object;
    let refused = cq.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    let cq = refused.object;
    let refused = context.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    let context = refused.object;

    qp.destroy().unwrap();
    cq.destroy().unwrap();
    assert_eq!(
        pd.clone().destroy().unwrap_err().error.errno(),
        EBUSY,
        "a clone is another owner"
    );
    mr.destroy().unwrap();
    pd.destroy().unwrap();
    context.destroy().unwrap();
    drop(buffer);
}

#[test]
fn handles_may_be_dropped_in_any_order() {
    let (a, b) = over_udp();
    let End {
        qp,
        cq,
        mr,
        buffer,
        pd,
        context,
    } = a;
    drop(context);
    drop(pd);
    drop(buffer);
    drop(cq);
    drop(mr);
    assert_eq!(qp.state().unwrap(), QpState::Rts);
    drop(qp);
    drop(b);
}

#[test]
fn a_device_opens_again_after_its_last_handle_is_gone() {
    let options = Options {
        addresses: vec![fresh_address()],
        ..Options::default()
    };
    let provider = Softroce::new(options).unwrap();
    for _ in 0..20 {
        let end = End::new(provider.open("softroce0").unwrap(), None);
        let again = provider.open("softroce0").unwrap();
        assert_eq!(end.gid(), again.query_gid(1, 0).unwrap().gid);
    }
}

#[test]
fn an_unknown_device_is_refused_with_the_list() {
    let provider = Softroce::new(Options::default()).unwrap();
    assert_eq!(provider.devices().unwrap()[0].name, "softroce0");
    let error = provider.open("mlx5_0").unwrap_err();
    assert_eq!(error.errno(), ENODEV);
    assert!(
        error.to_string().contains("mlx5_0") && error.to_string().contains("softroce0"),
        "{error}"
    );
}

#[test]
fn senseless_addresses_are_refused() {
    for list in [&["0.0.0.0"][..], &["224.0.0.1"], &["127.0.0.3", "127.0.0.3"]] {
        let addresses = list.iter().map(|a| a.parse().unwrap()).collect();
        let error = Softroce::new(Options {
            addresses,
            ..Options::default()
        })
        .unwrap_err();
        assert_eq!(error.errno(), EINVAL);
        assert!(error.to_string().contains(list[0]), "{error}");
    }
}

#[test]
fn objects_of_two_contexts_do_not_mix() {
    let (one, two) = (open(), open());
    let (pd, cq) = (one.alloc_pd().unwrap(), two.create_cq(&CqInit::new(8)).unwrap());
    assert_eq!(pd.create_qp(&QpInit::rc(&cq)).unwrap_err().errno(), EINVAL);
    let channel = one.create_channel().unwrap();
    let init = CqInit {
        channel: Some(&channel),
        ..CqInit::new(8)
    };
    assert_eq!(two.create_cq(&init).unwrap_err().errno(), EINVAL);
}

/// What is offered may fail for other reasons; what is not fails for this one.
#[track_caller]
fn agrees<T>(offered: bool, what: &str, result: Result<T>) {
    let is_unsupported = result.is_err_and(|error| error.errno() == EOPNOTSUPP);
    assert_eq!(offered, !is_unsupported, "{what}");
}

#[test]
fn what_the_capabilities_deny_is_unsupported_and_nothing_else_is() {
    let context = open();
    let has = context.capabilities();
    let pd = context.alloc_pd().unwrap();
    let cq = context.create_cq(&CqInit::new(8)).unwrap();
    for (offered, qp_type) in [
        (has.qp_rc, QpType::Rc),
        (has.qp_uc, QpType::Uc),
        (has.qp_ud, QpType::Ud),
        (has.qp_xrc, QpType::XrcInitiator),
    ] {
        let init = QpInit {
            qp_type,
            recv_cq: (qp_type != QpType::XrcInitiator).then_some(&cq),
            ..QpInit::rc(&cq)
        };
        agrees(offered, &format!("{qp_type:?}"), pd.create_qp(&init));
    }
    let srq = SrqInit {
        max_wr: 8,
        max_sge: 1,
        limit: 0,
        cookie: 0,
        xrc: None,
    };
    agrees(has.srq, "SRQ", pd.create_srq(&srq));
    agrees(has.qp_xrc, "XRC domain", context.open_xrc_domain(None));
    agrees(has.mw_type1, "MW type 1", pd.alloc_mw(MwType::Type1));
    agrees(has.mw_type2, "MW type 2", pd.alloc_mw(MwType::Type2));
    agrees(has.qp_ud, "AH", pd.create_ah(&AddressVector::default()));
    agrees(has.device_memory, "DM", context.alloc_dm(64, 0));
    let timestamps = CqInit {
        timestamps: true,
        ..CqInit::new(8)
    };
    agrees(has.cq_timestamps, "timestamps", context.create_cq(&timestamps));
    agrees(has.resize_cq, "resizing", cq.resize(16));
    agrees(has.null_mr, "null MR", pd.alloc_null_mr());
    agrees(has.parent_domain, "parent domain", pd.parent_domain());
    let buffer = Buffer::new(64);
    agrees(
        has.zero_based,
        "zero based",
        pd.reg_mr(&buffer, Access::ZERO_BASED),
    );
    let odp = pd.reg_mr(&buffer, Access::ON_DEMAND);
    agrees(has.on_demand_paging, "on demand", odp);
}

#[test]
fn memory_that_is_not_there_is_not_registered() {
    let pd = open().alloc_pd().unwrap();
    // SAFETY: nothing is mapped at the address, so nobody holds a reference to it.
    let error = unsafe { pd.reg_mr_raw(0x1000 as *mut u8, 4096, 0x1000, Access::LOCAL_WRITE) }.unwrap_err();
    assert_eq!(error.errno(), EFAULT);
    static CONSTANT: [u8; 16] = *b"read only memory";
    let addr = CONSTANT.as_ptr().cast_mut();
    // SAFETY: refused, or else only read.
    let error = unsafe { pd.reg_mr_raw(addr, 16, addr as u64, Access::LOCAL_WRITE) }.unwrap_err();
    assert_eq!(error.errno(), EFAULT);
    // SAFETY: the access permits reading only, and shared references permit that too.
    unsafe { pd.reg_mr_raw(addr, 16, addr as u64, Access::REMOTE_READ) }.unwrap();
}

#[test]
fn a_part_of_a_buffer_registers_and_a_part_beyond_does_not() {
    let pd = open().alloc_pd().unwrap();
    let buffer = Buffer::new(8192);
    let mr = pd
        .reg_mr_iova(&buffer, 100..200, 0x5000, Access::LOCAL_WRITE)
        .unwrap();
    assert_eq!((mr.addr(), mr.length()), (0x5000, 100));
    assert_eq!(
        pd.reg_mr_iova(&buffer, 8000..8193, 0, Access::LOCAL_WRITE)
            .unwrap_err()
            .errno(),
        EINVAL
    );
    let backwards = std::ops::Range { start: 20, end: 10 };
    assert_eq!(
        pd.reg_mr_iova(&buffer, backwards, 0, Access::LOCAL_WRITE)
            .unwrap_err()
            .errno(),
        EINVAL
    );
}

#[test]
fn a_region_changes_buffer_and_keeps_it_alive() {
    let (a, mut b) = over_udp();
    let replacement = Buffer::new(4096);
    b.mr.rereg(&Rereg {
        pd: None,
        buffer: Some(&replacement),
        access: None,
    })
    .unwrap();
    assert_eq!(b.mr.addr(), replacement.addr());
    assert_eq!(b.mr.length(), 4096);
    b.buffer = replacement;
    a.buffer.write(0, b"new home");
    b.recv(1, 0, 64);
    a.send(2, 0, 8);
    b.success(1);
    assert_eq!(b.buffer.to_vec(0..8), b"new home");
}

#[test]
fn the_only_port_and_p_key_are_the_first() {
    let context = open();
    assert_eq!(context.query_pkey(1, 0).unwrap(), 0xffff);
    assert_eq!(context.query_pkey(1, 1).unwrap_err().errno(), EINVAL);
    assert_eq!(context.query_pkey(2, 0).unwrap_err().errno(), EINVAL);
    assert_eq!(context.query_port(0).unwrap_err().errno(), EINVAL);
    assert_eq!(context.query_port(1).unwrap().state, verbs_api::PortState::Active);
    assert!(context.query_gid(1, 0).is_ok() && context.query_gid(1, 99).is_err());
}
