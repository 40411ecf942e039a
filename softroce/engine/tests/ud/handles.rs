//! Address handles: values that their domain counts.

use softroce_engine::{SendOperation, SendRequest};
use verbs_api::{AddressVector, ErrorKind, Gid, Payload, SendFlags};

use super::bench::{Bench, PEER_QPN, QKEY, av, send_to};

fn kind_of_post(bench: &mut Bench, op: SendOperation) -> Result<(), ErrorKind> {
    let request = SendRequest {
        wr_id: 1,
        op,
        payload: Payload::Inline(b"x"),
        flags: SendFlags::SIGNALED,
        xrc_srqn: None,
    };
    let posted = bench.node.engine.post_send(bench.now, bench.qpn, &request);
    posted.map_err(|error| error.kind())
}

#[test]
fn a_domain_is_busy_while_it_has_handles() {
    let mut bench = Bench::new();
    let engine = &mut bench.node.engine;
    let pd = engine.alloc_pd().unwrap();
    let av = av("10.0.0.2".parse().unwrap());
    let (one, two) = (
        engine.create_ah(pd, &av).unwrap(),
        engine.create_ah(pd, &av).unwrap(),
    );
    assert_eq!(engine.objects().ahs, 2);
    engine.destroy_ah(one).unwrap();
    assert_eq!(engine.dealloc_pd(pd).unwrap_err().kind(), ErrorKind::Busy);
    // Giving the same one back again takes nothing from the other.
    assert_eq!(engine.destroy_ah(one).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(engine.dealloc_pd(pd).unwrap_err().kind(), ErrorKind::Busy);
    engine.destroy_ah(two).unwrap();
    engine.dealloc_pd(pd).unwrap();
    assert_eq!(engine.create_ah(pd, &av).unwrap_err().kind(), ErrorKind::Invalid);
}

#[test]
fn addresses_that_lead_nowhere_are_refused() {
    let mut bench = Bench::new();
    let good = av("10.0.0.2".parse().unwrap());
    let to = |address: &str| Some(Gid::from(address.parse::<std::net::IpAddr>().unwrap()));
    let cases: [(&str, AddressVector); 9] = [
        ("no GID", AddressVector { dgid: None, ..good }),
        (
            "the zero GID",
            AddressVector {
                dgid: Some(Gid([0; 16])),
                ..good
            },
        ),
        (
            "0.0.0.0",
            AddressVector {
                dgid: to("0.0.0.0"),
                ..good
            },
        ),
        (
            "the broadcast address",
            AddressVector {
                dgid: to("255.255.255.255"),
                ..good
            },
        ),
        (
            "another family",
            AddressVector {
                dgid: to("2001:db8::2"),
                ..good
            },
        ),
        (
            "a group of another family",
            AddressVector {
                dgid: to("ff0e::1"),
                ..good
            },
        ),
        ("port 0", AddressVector { port: 0, ..good }),
        ("port 2", AddressVector { port: 2, ..good }),
        (
            "a GID index beyond the table",
            AddressVector {
                sgid_index: 1,
                ..good
            },
        ),
    ];
    for (what, av) in cases {
        let error = bench.node.engine.create_ah(bench.node.pd, &av).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{what}: {error}");
    }
    assert_eq!(bench.node.engine.objects().ahs, 0);
}

#[test]
fn a_handle_of_another_domain_or_one_that_is_gone_is_refused_when_posted() {
    let mut bench = Bench::new();
    let own = bench.handle();
    let foreign_pd = bench.node.engine.alloc_pd().unwrap();
    let av = av(bench.meta.src);
    let foreign = bench.node.engine.create_ah(foreign_pd, &av).unwrap();
    assert_eq!(
        kind_of_post(&mut bench, send_to(foreign, None)),
        Err(ErrorKind::Invalid)
    );
    assert_eq!(kind_of_post(&mut bench, send_to(own, None)), Ok(()));
    bench.node.engine.destroy_ah(own).unwrap();
    assert_eq!(
        kind_of_post(&mut bench, send_to(own, None)),
        Err(ErrorKind::Invalid)
    );
    // What was posted before goes where it was meant to.
    let sent = bench.sent_one();
    assert_eq!(sent.meta.dst, bench.meta.src);
    assert_eq!(sent.headers.bth.dest_qp.value(), PEER_QPN);
    assert_eq!(sent.headers.deth.unwrap().qkey.0, QKEY);
}

#[test]
fn the_devices_limit_is_kept() {
    let mut bench = Bench::new();
    let limit = bench.node.engine.device_attr().max_ah;
    let handles: Vec<_> = (0..limit).map(|_| bench.handle()).collect();
    let av = av(bench.meta.src);
    let error = bench.node.engine.create_ah(bench.node.pd, &av).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoMemory);
    bench.node.engine.destroy_ah(handles[7]).unwrap();
    bench.handle();
}
