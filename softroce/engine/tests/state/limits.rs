//! The limits that the device reports are those that it has: each is reached, and not exceeded.

use softroce_engine::{
    Config, CqId, Engine, PdId, PortConfig, QpConfig, SendOperation, SendRequest, SrqConfig, Time,
};
use verbs_api::{
    AddressVector, ErrorKind, Gid, GidEntry, GidType, Mtu, MwType, Payload, PortState, QpAttr, QpAttrMask,
    QpCap, QpState, QpType, RecvWr, Result, SendFlags, Sge, SqSigType,
};

use super::subject::{Values, attributes};
use super::table;

const NOW: Time = Time::ZERO;
const SEND: SendOperation = SendOperation::Send { imm: None };

/// An engine with few queue pair numbers, a domain and a completion queue.
struct Device {
    engine: Engine,
    pd: PdId,
    cq: CqId,
}

impl Device {
    fn new() -> Device {
        let mut engine = Engine::new(Config {
            seed: 1,
            qpn_base: 0x10_0000,
            qpn_count: 1_000,
            ack_delay_ns: 50_000,
            receive_buffer_bytes: 212_992,
            initial_window_bytes: 0,
            node_guid: 1,
        });
        engine.set_port(PortConfig {
            state: PortState::Active,
            active_mtu: Mtu::Mtu2048,
            gids: vec![GidEntry {
                gid: gid("10.0.0.1"),
                index: 0,
                port: 1,
                gid_type: GidType::RoceV2,
                interface_index: 1,
            }],
        });
        let pd = engine.alloc_pd().unwrap();
        let (cq, _) = engine.create_cq(16).unwrap();
        Device { engine, pd, cq }
    }

    fn create_qp(&mut self, cap: QpCap) -> Result<u32> {
        let init = QpConfig {
            pd: self.pd,
            qp_type: QpType::Rc,
            send_cq: Some(self.cq),
            recv_cq: Some(self.cq),
            srq: None,
            xrc_domain: None,
            cap,
            sq_sig: SqSigType::All,
        };
        Ok(self.engine.create_qp(&init)?.qpn)
    }

    fn create_datagram_qp(&mut self) -> u32 {
        let init = QpConfig {
            pd: self.pd,
            qp_type: QpType::Ud,
            send_cq: Some(self.cq),
            recv_cq: Some(self.cq),
            srq: None,
            xrc_domain: None,
            cap: cap(|_| {}),
            sq_sig: SqSigType::All,
        };
        self.engine.create_qp(&init).unwrap().qpn
    }

    /// One in RTS but for what `change` makes of the attributes on the way.
    fn connect(&mut self, cap: QpCap, change: impl Fn(&mut QpAttr)) -> Result<u32> {
        let qpn = self.create_qp(cap)?;
        let way = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
        for step in way.windows(2) {
            let required = table::way(QpType::Rc, step[0], step[1]).unwrap().required;
            let mut attr = attributes(required - QpAttrMask::STATE, step[0], step[1], Values::First);
            change(&mut attr);
            self.engine.modify_qp(NOW, qpn, &attr)?;
        }
        Ok(qpn)
    }
}

fn cap(field: impl FnOnce(&mut QpCap)) -> QpCap {
    let mut cap = QpCap {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: 0,
    };
    field(&mut cap);
    cap
}

/// Do something `count` times in all; the last outcome.
fn times(count: u64, mut one: impl FnMut() -> Result<()>) -> Result<()> {
    for _ in 1..count {
        one().unwrap();
    }
    one()
}

fn send(device: &mut Device, qpn: u32, payload: Payload<'_>) -> Result<()> {
    let request = SendRequest {
        wr_id: 1,
        op: SEND,
        payload,
        flags: SendFlags::empty(),
        xrc_srqn: None,
    };
    device.engine.post_send(NOW, qpn, &request)
}

/// Reaching `limit` succeeds, one more is refused with `errno`.
fn check(name: &str, limit: impl Into<u64>, kind: ErrorKind, reach: impl Fn(&mut Device, u64) -> Result<()>) {
    let limit = limit.into();
    assert!(limit > 0, "{name}");
    let reached = reach(&mut Device::new(), limit);
    assert!(reached.is_ok(), "{name} of {limit}: {reached:?}");
    let exceeded = reach(&mut Device::new(), limit + 1).map_err(|error| error.kind());
    assert_eq!(exceeded, Err(kind), "{name} of {limit} and one more");
}

#[test]
fn as_many_objects_as_the_device_has_can_be_made_and_no_more() {
    let attr = Device::new().engine.device_attr();
    check("max_qp", attr.max_qp, ErrorKind::NoMemory, |device, count| {
        times(count, || device.create_qp(cap(|_| {})).map(drop))
    });
    check("max_cq", attr.max_cq, ErrorKind::NoMemory, |device, count| {
        // One exists.
        times(count - 1, || device.engine.create_cq(1).map(drop))
    });
    check("max_pd", attr.max_pd, ErrorKind::NoMemory, |device, count| {
        times(count - 1, || device.engine.alloc_pd().map(drop))
    });
    check("max_mr", attr.max_mr, ErrorKind::NoMemory, |device, count| {
        let pd = device.pd;
        times(count, || device.engine.alloc_null_mr(pd).map(drop))
    });
    check("max_mw", attr.max_mw, ErrorKind::NoMemory, |device, count| {
        let pd = device.pd;
        times(count, || device.engine.alloc_mw(pd, MwType::Type2).map(drop))
    });
    check("max_ah", attr.max_ah, ErrorKind::NoMemory, |device, count| {
        let pd = device.pd;
        let av = AddressVector {
            dgid: Some(gid("10.0.0.2")),
            port: 1,
            ..AddressVector::default()
        };
        times(count, || device.engine.create_ah(pd, &av).map(drop))
    });
    check(
        "max_dm_bytes",
        attr.max_dm_bytes,
        ErrorKind::NoMemory,
        |device, bytes| device.engine.alloc_dm(bytes as usize, 0).map(drop),
    );
    check("max_srq", attr.max_srq, ErrorKind::NoMemory, |device, count| {
        times(count, || create_srq(device, 1, 1))
    });
}

/// The multicast group of this number.
fn group(number: u64) -> Gid {
    let [high, low] = (number as u16).to_be_bytes();
    gid(&format!("239.1.{high}.{low}"))
}

fn gid(address: &str) -> Gid {
    Gid::from(address.parse::<std::net::IpAddr>().unwrap())
}

#[test]
fn multicast_groups_and_their_members_are_as_many_as_the_device_says_and_no_more() {
    let attr = Device::new().engine.device_attr();
    let none = ErrorKind::NoMemory;
    check("max_mcast_grp", attr.max_mcast_grp, none, |device, count| {
        let qpn = device.create_datagram_qp();
        let mut groups = (0..count).map(group);
        times(count, || {
            device.engine.attach_mcast(qpn, groups.next().unwrap()).map(drop)
        })
    });
    check(
        "max_mcast_qp_attach",
        attr.max_mcast_qp_attach,
        none,
        |device, count| {
            times(count, || {
                let qpn = device.create_datagram_qp();
                device.engine.attach_mcast(qpn, group(0)).map(drop)
            })
        },
    );
    check(
        "max_total_mcast_qp_attach",
        attr.max_total_mcast_qp_attach,
        none,
        |device, count| {
            let groups = u64::from(attr.max_mcast_grp);
            let mut attachments = 0..count;
            let mut qpn = 0;
            times(count, || {
                let number = attachments.next().unwrap();
                if number % groups == 0 {
                    qpn = device.create_datagram_qp();
                }
                device.engine.attach_mcast(qpn, group(number % groups)).map(drop)
            })
        },
    );
}

fn create_srq(device: &mut Device, max_wr: u32, max_sge: u32) -> Result<()> {
    let init = SrqConfig {
        pd: device.pd,
        max_wr,
        max_sge,
        limit: 0,
        xrc: None,
    };
    device.engine.create_srq(&init).map(drop)
}

#[test]
fn queues_are_as_large_as_the_device_says_and_no_larger() {
    let attr = Device::new().engine.device_attr();
    let invalid = ErrorKind::Invalid;
    check("max_cqe", attr.max_cqe, invalid, |device, cqe| {
        device.engine.create_cq(cqe as u32).map(drop)
    });
    check("max_cqe, resized", attr.max_cqe, invalid, |device, cqe| {
        device.engine.resize_cq(device.cq, cqe as u32)
    });
    check("max_qp_wr, sends", attr.max_qp_wr, invalid, |device, wr| {
        device.create_qp(cap(|cap| cap.max_send_wr = wr as u32)).map(drop)
    });
    check("max_qp_wr, receives", attr.max_qp_wr, invalid, |device, wr| {
        device.create_qp(cap(|cap| cap.max_recv_wr = wr as u32)).map(drop)
    });
    check("max_sge, sends", attr.max_sge, invalid, |device, sge| {
        device
            .create_qp(cap(|cap| cap.max_send_sge = sge as u32))
            .map(drop)
    });
    check("max_sge, receives", attr.max_sge, invalid, |device, sge| {
        device
            .create_qp(cap(|cap| cap.max_recv_sge = sge as u32))
            .map(drop)
    });
    check(
        "max_inline_data",
        attr.max_inline_data,
        invalid,
        |device, bytes| {
            device
                .create_qp(cap(|cap| cap.max_inline_data = bytes as u32))
                .map(drop)
        },
    );
    check("max_srq_wr", attr.max_srq_wr, invalid, |device, wr| {
        create_srq(device, wr as u32, 1)
    });
    check("max_srq_sge", attr.max_srq_sge, invalid, |device, sge| {
        create_srq(device, 1, sge as u32)
    });
}

#[test]
fn a_queue_pair_takes_as_much_as_it_was_created_for_and_no_more() {
    let attr = Device::new().engine.device_attr();
    let (sge, inline) = (attr.max_sge, attr.max_inline_data);
    let largest = QpCap {
        max_send_wr: 3,
        max_recv_wr: 3,
        max_send_sge: sge,
        max_recv_sge: sge,
        max_inline_data: inline,
    };
    let empty = Sge::default();
    check("send requests", 3u32, ErrorKind::NoMemory, |device, count| {
        let qpn = device.connect(largest, |_| {})?;
        times(count, || send(device, qpn, Payload::Sges(&[])))
    });
    check("receive requests", 3u32, ErrorKind::NoMemory, |device, count| {
        let qpn = device.connect(largest, |_| {})?;
        times(count, || {
            device.engine.post_recv(NOW, qpn, &RecvWr { wr_id: 1, sges: &[] })
        })
    });
    check("entries of a send", sge, ErrorKind::Invalid, |device, count| {
        let qpn = device.connect(largest, |_| {})?;
        send(device, qpn, Payload::Sges(&vec![empty; count as usize]))
    });
    check(
        "entries of a receive",
        sge,
        ErrorKind::Invalid,
        |device, count| {
            let qpn = device.connect(largest, |_| {})?;
            let sges = vec![empty; count as usize];
            device.engine.post_recv(
                NOW,
                qpn,
                &RecvWr {
                    wr_id: 1,
                    sges: &sges,
                },
            )
        },
    );
    check("inline bytes", inline, ErrorKind::Invalid, |device, count| {
        let qpn = device.connect(largest, |_| {})?;
        send(device, qpn, Payload::Inline(&vec![0; count as usize]))
    });
    let longest = Device::new().engine.port_attr().max_msg_sz;
    check("max_msg_sz", longest, ErrorKind::Invalid, |device, bytes| {
        let qpn = device.connect(largest, |_| {})?;
        let sge = Sge {
            length: bytes as u32,
            ..empty
        };
        send(device, qpn, Payload::Sges(&[sge]))
    });
}

#[test]
fn attributes_of_a_connection_are_within_what_device_and_port_offer() {
    let device = Device::new();
    let (attr, port) = (device.engine.device_attr(), device.engine.port_attr());
    let invalid = ErrorKind::Invalid;
    let plain = || cap(|_| {});
    check(
        "max_qp_init_rd_atom",
        attr.max_qp_init_rd_atom,
        invalid,
        |device, count| {
            let change = |attr: &mut QpAttr| attr.max_rd_atomic = attr.max_rd_atomic.and(Some(count as u8));
            device.connect(plain(), change).map(drop)
        },
    );
    check("max_qp_rd_atom", attr.max_qp_rd_atom, invalid, |device, count| {
        let change =
            |attr: &mut QpAttr| attr.max_dest_rd_atomic = attr.max_dest_rd_atomic.and(Some(count as u8));
        device.connect(plain(), change).map(drop)
    });
    check("phys_port_cnt", attr.phys_port_cnt, invalid, |device, count| {
        let change = |attr: &mut QpAttr| attr.port = attr.port.and(Some(count as u8));
        device.connect(plain(), change).map(drop)
    });
    check("max_pkeys", attr.max_pkeys, invalid, |device, count| {
        let change = |attr: &mut QpAttr| attr.pkey_index = attr.pkey_index.and(Some(count as u16 - 1));
        device.connect(plain(), change).map(drop)
    });
    check("gid_tbl_len", port.gid_tbl_len, invalid, |device, count| {
        let change = |attr: &mut QpAttr| {
            attr.av = attr.av.map(|av| AddressVector {
                sgid_index: count as u8 - 1,
                ..av
            });
        };
        device.connect(plain(), change).map(drop)
    });
    check("active_mtu", port.active_mtu as u32, invalid, |device, code| {
        let mtu = *Mtu::ALL.iter().find(|mtu| **mtu as u64 == code).unwrap();
        let change = |attr: &mut QpAttr| attr.path_mtu = attr.path_mtu.and(Some(mtu));
        device.connect(plain(), change).map(drop)
    });
    assert_eq!(
        u64::from(attr.max_res_rd_atom),
        u64::from(attr.max_qp_rd_atom) * u64::from(attr.max_qp)
    );
    assert_eq!(attr.max_mr_size, u64::MAX);
}
