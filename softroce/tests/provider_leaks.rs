//! A process that opens, uses and closes a device 1,000 times ends with the descriptors and memory that it had.
#![forbid(unsafe_code)]

#[path = "provider/pair.rs"]
mod pair;

use std::fs;
use std::net::IpAddr;

use softroce::{Options, Softroce};
use verbs_api::{
    Access, AddressVector, BindInfo, Buffer, Context as _, CqInit, DeviceMemory, Gid, MwType,
    ProtectionDomain, Provider, QpInit, QpType, QueuePair, RecvWr, SharedReceiveQueue, SrqInit,
};

use pair::{End, fresh_address, join};

/// A fifth where there is little time (`SOFTROCE_QUICK=1`): then descriptors, threads and objects are what is looked at.
fn rounds() -> usize {
    let is_quick = std::env::var_os("SOFTROCE_QUICK").is_some();
    if is_quick { 200 } else { 1000 }
}
/// Of the rounds, after this part allocator and libraries have what they keep.
const WARM_PART: usize = 5;
/// Slack for the allocator: 1,000 leaks of the least object would be more.
const SLACK_KIB: u64 = 512;

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn threads() -> usize {
    fs::read_dir("/proc/self/task").unwrap().count()
}

/// Resident memory of this process, KiB.
fn resident_kib() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Open a device on each address, make everything that there is, use it, and let it go.
fn round(addresses: [IpAddr; 2]) {
    let contexts = addresses.map(|address| {
        let options = Options {
            addresses: vec![address],
            ..Options::default()
        };
        Softroce::new(options).unwrap().open("softroce0").unwrap()
    });
    let devices = contexts.each_ref().map(|context| context.device().clone());
    let [a, b] = contexts.map(|context| End::new(context, None));
    join(&a, &b);
    b.recv(1, 0, 64);
    a.send(2, 0, 64);
    b.success(1);
    a.success(2);
    use_every_kind(&a);
    drop((a, b));
    for device in devices {
        assert!(device.objects().is_zero(), "{:?}", device.objects());
    }
}

fn use_every_kind(end: &End) {
    let (context, pd) = (&end.context, &end.pd);
    let can = context.capabilities();
    let channel = context.create_channel().unwrap();
    let cq = context
        .create_cq(&CqInit {
            channel: Some(&channel),
            ..CqInit::new(8)
        })
        .unwrap();
    let srq = SrqInit {
        max_wr: 8,
        max_sge: 1,
        limit: 0,
        cookie: 0,
        xrc: None,
    };
    let shared = pd.create_srq(&srq).unwrap();
    let sges = [end.sge(0, 64)];
    shared
        .post_recv(&[RecvWr {
            wr_id: 1,
            sges: &sges,
        }])
        .unwrap();
    let buffer = Buffer::new(4096);
    let _below = pd.reg_mr(&buffer, Access::LOCAL_WRITE | Access::MW_BIND).unwrap();
    let mut window = pd.alloc_mw(MwType::Type1).unwrap();
    let bind = BindInfo {
        mr: &_below,
        addr: buffer.addr(),
        length: 64,
        access: Access::REMOTE_READ,
    };
    end.qp.bind_mw(&mut window, 3, &bind, true).unwrap();
    end.success(3);
    let memory = context.alloc_dm(4096, 0).unwrap();
    memory.write(0, &[7; 64]).unwrap();
    let _on_card = pd
        .reg_dm_mr(&memory, 0, 4096, Access::LOCAL_WRITE | Access::ZERO_BASED)
        .unwrap();
    let _null = pd.alloc_null_mr().unwrap();
    let _uc = pd.create_qp(&QpInit {
        qp_type: QpType::Uc,
        srq: Some(&shared),
        ..QpInit::rc(&cq)
    });
    if can.qp_ud {
        let _ah = pd
            .create_ah(&AddressVector {
                dgid: Some(end.gid()),
                port: 1,
                ..AddressVector::default()
            })
            .unwrap();
        let ud = pd
            .create_qp(&QpInit {
                qp_type: QpType::Ud,
                ..QpInit::rc(&cq)
            })
            .unwrap();
        if can.multicast {
            let group: IpAddr = "239.1.2.3".parse().unwrap();
            ud.attach_mcast(Gid::from(group), 0).unwrap();
        }
    }
    if can.qp_xrc {
        let domain = context.open_xrc_domain(None).unwrap();
        let _srq = pd
            .create_srq(&SrqInit {
                xrc: Some((&domain, &cq)),
                ..srq
            })
            .unwrap();
    }
}

#[test]
fn a_device_opened_used_and_closed_many_times_leaves_nothing_behind() {
    let addresses = [fresh_address(), fresh_address()];
    let mut before = (0, 0, 0);
    let (rounds, warm) = (rounds(), rounds() / WARM_PART);
    for number in 0..rounds {
        if number == warm {
            before = (descriptors(), threads(), resident_kib());
        }
        round(addresses);
    }
    assert_eq!((descriptors(), threads()), (before.0, before.1));
    let (then, now) = (before.2, resident_kib());
    println!("resident memory: {then} KiB after {warm} rounds, {now} KiB after {rounds}");
    assert!(
        now <= then + SLACK_KIB,
        "resident memory grew from {then} to {now} KiB"
    );
}
