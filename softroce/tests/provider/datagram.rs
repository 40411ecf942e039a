//! Datagrams over UDP: what their GRH area tells, the way back, and groups.

use std::net::IpAddr;

use softroce::{Ah, Context, Qp};
use verbs_api::{
    AddressVector, Context as _, Gid, Object, ProtectionDomain, QpAttr, QpInit, QpState, QpType, QueuePair,
    SendOp, SendWr, WcFlags,
};

use super::pair::{End, open};

const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const QKEY: u32 = 0x1122;
/// In front of the payload.
const GRH_BYTES: usize = 40;

/// An end whose queue pair sends and receives datagrams.
fn datagrams(context: Context) -> End {
    let mut end = End::new(context, None);
    end.qp = end
        .pd
        .create_qp(&QpInit {
            qp_type: QpType::Ud,
            ..QpInit::rc(&end.cq)
        })
        .unwrap();
    let step = |attr: QpAttr| end.qp.modify(&attr).unwrap();
    step(QpAttr {
        state: Some(QpState::Init),
        pkey_index: Some(0),
        port: Some(1),
        qkey: Some(QKEY),
        ..QpAttr::default()
    });
    step(QpAttr {
        state: Some(QpState::Rtr),
        ..QpAttr::default()
    });
    step(QpAttr {
        state: Some(QpState::Rts),
        sq_psn: Some(0),
        ..QpAttr::default()
    });
    end
}

fn address(from: &End, to: Gid, traffic_class: u8, hop_limit: u8) -> Ah {
    let av = AddressVector {
        dgid: Some(to),
        traffic_class,
        hop_limit,
        port: 1,
        ..AddressVector::default()
    };
    from.pd.create_ah(&av).unwrap()
}

fn send(from: &End, ah: &Ah, to: u32, wr_id: u64, length: usize) {
    let op = SendOp::SendTo {
        ah,
        remote_qpn: to,
        remote_qkey: QKEY,
        imm: None,
    };
    from.post(wr_id, op, 0, length);
    from.success(wr_id);
}

fn octets(gid: Gid) -> [u8; 4] {
    match gid.ip() {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(v6) => panic!("{v6} is no IPv4 address"),
    }
}

#[test]
fn a_datagram_tells_how_it_came_and_leads_back() {
    let (a, b) = (datagrams(open()), datagrams(open()));
    b.recv(1, 0, 1000);
    a.buffer.write(0, b"hello");
    let ah = address(&a, b.gid(), 0x68, 33);
    send(&a, &ah, b.qp.qpn(), 2, 5);
    let wc = b.success(1);
    assert_eq!((wc.byte_len, wc.src_qp), (GRH_BYTES as u32 + 5, a.qp.qpn()));
    assert!(wc.flags.contains(WcFlags::GRH));
    assert_eq!(b.buffer.to_vec(GRH_BYTES..GRH_BYTES + 5), b"hello");
    let grh: [u8; GRH_BYTES] = b.buffer.to_vec(0..GRH_BYTES).try_into().unwrap();
    // An IPv4 header lies in the second half: traffic class, time to live, both addresses.
    let header = &grh[20..];
    assert_eq!((header[0], header[1], header[8]), (0x45, 0x68, 33));
    assert_eq!(
        (&header[12..16], &header[16..20]),
        (&octets(a.gid())[..], &octets(b.gid())[..])
    );
    let sender = b.context.sender_of(&wc, &grh, 1).unwrap();
    assert_eq!(sender.dgid, Some(a.gid()));
    let back = b.pd.create_ah_from_wc(&wc, &grh, 1).unwrap();
    a.recv(3, 0, 1000);
    send(&b, &back, wc.src_qp, 4, 5);
    a.success(3);
    assert_eq!(b.context.sender_of(&wc, &grh, 2).unwrap_err().errno(), EINVAL);
}

#[test]
fn an_address_handle_keeps_its_domain_and_is_good_on_its_own_device_alone() {
    let (a, b) = (datagrams(open()), datagrams(open()));
    let foreign = address(&b, a.gid(), 0, 0);
    let op = SendOp::SendTo {
        ah: &foreign,
        remote_qpn: a.qp.qpn(),
        remote_qkey: QKEY,
        imm: None,
    };
    let sges = [a.sge(0, 8)];
    let refused = a.qp.post_send(&[SendWr::new(1, op, &sges)]).unwrap_err();
    assert_eq!((refused.posted, refused.error.errno()), (0, EINVAL));
    let pd = a.context.alloc_pd().unwrap();
    let ah = pd
        .create_ah(&AddressVector {
            dgid: Some(b.gid()),
            port: 1,
            ..AddressVector::default()
        })
        .unwrap();
    let pd = pd.destroy().unwrap_err();
    assert_eq!(pd.error.errno(), EBUSY);
    ah.destroy().unwrap();
    pd.object.destroy().unwrap();
}

fn leave_and_destroy(qp: Qp, group: Gid) {
    let refused = qp.destroy().unwrap_err();
    assert_eq!(refused.error.errno(), EBUSY);
    refused.object.detach_mcast(group, 0).unwrap();
    assert_eq!(refused.object.detach_mcast(group, 0).unwrap_err().errno(), EINVAL);
    refused.object.destroy().unwrap();
}

#[test]
fn a_member_of_a_group_gets_what_is_sent_there_and_is_busy_until_it_leaves() {
    let (a, b) = (datagrams(open()), datagrams(open()));
    let group = Gid::from("239.77.1.9".parse::<IpAddr>().unwrap());
    assert!(a.qp.attach_mcast(a.gid(), 0).is_err(), "no group at all");
    // No fabric on an IPv4 address joins this one: and then the queue pair is not attached either.
    let foreign = Gid::from("ff0e::77:9".parse::<IpAddr>().unwrap());
    assert!(a.qp.attach_mcast(foreign, 0).is_err());
    assert_eq!(a.context.device().objects().memberships, 0);

    b.qp.attach_mcast(group, 0).unwrap();
    b.qp.attach_mcast(group, 0).unwrap();
    assert_eq!(b.context.device().objects().memberships, 1);
    b.recv(1, 0, 1000);
    a.buffer.write(0, b"everybody");
    let ah = address(&a, group, 0, 4);
    send(&a, &ah, 0xff_ffff, 2, 9);
    b.success(1);
    assert_eq!(b.buffer.to_vec(GRH_BYTES..GRH_BYTES + 9), b"everybody");
    let to = &b.buffer.to_vec(36..40);
    assert_eq!(to, &octets(group));
    leave_and_destroy(b.qp, group);

    // Dropped in a group, it leaves.
    let c = datagrams(open());
    c.qp.attach_mcast(group, 0).unwrap();
    let device = c.context.device().clone();
    drop(c.qp);
    assert_eq!(device.objects().memberships, 0);
}
