//! Packets as bytes, devices, ports and their tables.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce_wire::icrc::{self, Flow};
use verbs_api::{Context, ErrorKind, GidType, LinkLayer, PortState, ProtectionDomain, QpCap, QpInit};

use crate::case::Case;
use crate::outcome::{CaseResult, Failure};
use crate::pair::Setup;
use crate::scene::Scene;
use crate::testbed::{Need, Side, Testbed};
use crate::{check, same};

/// The cases of this file.
pub fn cases<B: Testbed>() -> Vec<Case<B>> {
    vec![
        Case::verbs(
            "A1",
            "the ICRC of known packets is as captured",
            &["ICRC-1", "ICRC-2"],
            icrc_vectors,
        ),
        Case::verbs("B1", "the GID table is sane", &["GID-1", "GID-2"], gid_table),
        Case::verbs(
            "B3",
            "the P_Key table holds 0xffff and ends",
            &["PKEY-1"],
            pkey_table,
        ),
        Case::verbs(
            "B4",
            "device and port attributes are sane",
            &["DEV-1"],
            attributes,
        )
        .of_priority(2),
        Case::verbs(
            "B4-OFFERED",
            "what the device offers has limits, and the device has a name of its own",
            &["DEV-1"],
            offered,
        )
        .of_priority(2),
        Case::verbs(
            "B10",
            "sizes beyond the device's limits are refused",
            &["DEV-2"],
            limits,
        )
        .of_priority(2),
    ]
}

struct Vector {
    name: &'static str,
    flow: Flow,
    ip_id: u16,
    /// BTH up to the end of the pad.
    packet: &'static [u8],
    icrc: [u8; 4],
}

fn vectors() -> [Vector; 3] {
    let ten = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
    let fe80 = |last| IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last));
    let send = b"\x04\x40\xff\xff\x00\x00\x00\x11\x80\x12\x34\x56hello, roce!";
    [
        Vector {
            name: "RC SEND Only over IPv4",
            flow: Flow {
                src: ten(1),
                dst: ten(2),
                source_port: 0xc123,
                dest_port: 4791,
            },
            ip_id: 0,
            packet: send,
            icrc: [0x81, 0x58, 0x93, 0xa2],
        },
        Vector {
            name: "RC SEND Only over IPv6",
            flow: Flow {
                src: fe80(1),
                dst: fe80(2),
                source_port: 0xc123,
                dest_port: 4791,
            },
            ip_id: 0,
            packet: send,
            icrc: [0xd3, 0x10, 0xfd, 0x96],
        },
        Vector {
            name: "RC Acknowledge over IPv4",
            flow: Flow {
                src: ten(2),
                dst: ten(1),
                source_port: 0xc123,
                dest_port: 4791,
            },
            ip_id: 0,
            packet: b"\x11\x40\xff\xff\x00\x00\x00\x12\x00\x12\x34\x56\x1f\x00\x00\x01",
            icrc: [0xa5, 0x34, 0x11, 0x7e],
        },
    ]
}

fn icrc_vectors<B: Testbed>(_scene: &mut Scene<B>) -> CaseResult {
    for vector in vectors() {
        let mut packet = vector.packet.to_vec();
        packet.extend_from_slice(&[0; 4]);
        icrc::seal(&vector.flow, vector.ip_id, &mut packet);
        let seen = &packet[vector.packet.len()..];
        same!(seen, vector.icrc.as_slice(), "ICRC of a known {}", vector.name);
        same!(
            icrc::verify(&vector.flow, &[0], &packet),
            icrc::Verdict::Valid,
            "verdict on a known {}",
            vector.name
        );
        packet[4] ^= 0xff; // FECN, BECN and six reserved bits are not covered
        same!(
            icrc::verify(&vector.flow, &[0], &packet),
            icrc::Verdict::Valid,
            "verdict on a known {} with other congestion bits",
            vector.name
        );
        packet[8] ^= 1; // seven reserved bits beside the PSN are covered
        check!(
            icrc::verify(&vector.flow, &[0], &packet) != icrc::Verdict::Valid,
            "a {} with a flipped reserved bit beside the PSN must not have a valid ICRC",
            vector.name
        );
    }
    Ok(())
}

fn gid_table<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    for side in Side::BOTH {
        let context = scene.context(side);
        let table = context.gid_table()?;
        check!(!table.is_empty(), "the GID table of the {side:?} device is empty");
        for entry in &table {
            check!(
                !entry.gid.is_zero(),
                "GID {} of port {} is zero, but in the table",
                entry.index,
                entry.port
            );
            same!(
                context.query_gid(entry.port, entry.index)?,
                *entry,
                "GID {} asked for alone",
                entry.index
            );
            let twins = table.iter().filter(|other| {
                (other.gid, other.gid_type, other.port, other.interface_index)
                    == (entry.gid, entry.gid_type, entry.port, entry.interface_index)
            });
            same!(
                twins.count(),
                1,
                "entries with GID {} and type {:?}",
                entry.gid,
                entry.gid_type
            );
        }
        let used = scene.gid(side)?;
        same!(used.gid_type, GidType::RoceV2, "type of GID {}", used.index);
        check!(
            !used.gid.ip().is_unspecified(),
            "GID {} stands for no address: {}",
            used.index,
            used.gid
        );
        let beyond = table
            .iter()
            .map(|e| e.index)
            .max()
            .unwrap_or(0)
            .max(scene.context(side).query_port(1)?.gid_tbl_len);
        check!(
            context.query_gid(1, beyond + 1).is_err(),
            "a GID beyond the table (index {}) was found",
            beyond + 1
        );
    }
    Ok(())
}

fn pkey_table<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    same!(context.query_pkey(1, 0)?, 0xffff, "P_Key at index 0");
    let length = context.query_port(1)?.pkey_tbl_len;
    check!(
        length >= 1,
        "the P_Key table must have an entry, pkey_tbl_len is 0"
    );
    check!(
        context.query_pkey(1, length).is_err(),
        "a P_Key beyond the table (index {length}) was found"
    );
    Ok(())
}

fn attributes<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let device = context.query_device()?;
    let positive = [
        ("max_qp", device.max_qp),
        ("max_qp_wr", device.max_qp_wr),
        ("max_sge", device.max_sge),
        ("max_cq", device.max_cq),
        ("max_cqe", device.max_cqe),
        ("max_mr", device.max_mr),
        ("max_pd", device.max_pd),
        ("max_qp_rd_atom", device.max_qp_rd_atom),
        ("max_qp_init_rd_atom", device.max_qp_init_rd_atom),
        ("max_pkeys", u32::from(device.max_pkeys)),
        ("phys_port_cnt", u32::from(device.phys_port_cnt)),
    ];
    for (name, value) in positive {
        check!(value > 0, "{name} must be positive");
    }
    check!(
        device.max_mr_size >= 1 << 31,
        "max_mr_size is only {}",
        device.max_mr_size
    );
    let port = context.query_port(1)?;
    same!(port.state, PortState::Active, "state of port 1");
    same!(port.link_layer, LinkLayer::Ethernet, "link layer of port 1");
    check!(
        port.active_mtu <= port.max_mtu,
        "active MTU {:?} above the largest {:?}",
        port.active_mtu,
        port.max_mtu
    );
    check!(
        port.max_msg_sz >= 1 << 30,
        "max_msg_sz is only {}",
        port.max_msg_sz
    );
    let beyond = device.phys_port_cnt + 1;
    check!(
        context.query_port(beyond).is_err(),
        "port {beyond} of {} was found",
        device.phys_port_cnt
    );
    check!(context.query_port(0).is_err(), "port 0 was found");
    Ok(())
}

fn offered<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let has = |need| scene.bed.has(need);
    let device = scene.context(Side::Left).query_device()?;
    let limits: [(bool, &str, u64); 15] = [
        (true, "max_sge_rd", device.max_sge_rd.into()),
        (true, "max_res_rd_atom", device.max_res_rd_atom.into()),
        (true, "page_size_cap", device.page_size_cap),
        (true, "node_guid", device.node_guid),
        (true, "sys_image_guid", device.sys_image_guid),
        (true, "vendor_id", device.vendor_id.into()),
        (has(Need::Ud), "max_ah", device.max_ah.into()),
        (has(Need::Srq), "max_srq", device.max_srq.into()),
        (has(Need::Srq), "max_srq_wr", device.max_srq_wr.into()),
        (has(Need::Srq), "max_srq_sge", device.max_srq_sge.into()),
        (
            has(Need::MwType1) || has(Need::MwType2),
            "max_mw",
            device.max_mw.into(),
        ),
        (has(Need::DeviceMemory), "max_dm_bytes", device.max_dm_bytes),
        (has(Need::Multicast), "max_mcast_grp", device.max_mcast_grp.into()),
        (
            has(Need::Multicast),
            "max_mcast_qp_attach",
            device.max_mcast_qp_attach.into(),
        ),
        (
            has(Need::Multicast),
            "max_total_mcast_qp_attach",
            device.max_total_mcast_qp_attach.into(),
        ),
    ];
    check!(
        scene.context(Side::Left).capabilities().qp_rc,
        "a device without reliable connections"
    );
    for (is_offered, name, value) in limits {
        check!(
            !is_offered || value > 0,
            "{name} is 0, but what it limits is offered"
        );
    }
    let flags = device.device_cap_flags;
    // SYS_IMAGE_GUID, RC_RNR_NAK_GEN: there is a GUID, and without RNR NAKs much of this suite fails.
    let always = 1 << 11 | 1 << 12;
    check!(
        flags & always == always,
        "device flags {flags:#x}, must have {always:#x}"
    );
    if has(Need::Counters) {
        // P_Key and Q_Key counters, path migration, ports of handles and current states that are checked, an event of
        // the port; what can be resized; XRC; windows and keys; FLUSH, ATOMIC WRITE.
        let known = [1, 2, 4, 6, 7, 10, 11, 12, 13, 17, 20, 21, 24, 38, 40];
        let known = known.into_iter().fold(0, |flags, bit: u32| flags | 1u64 << bit);
        same!(flags, known, "device flags of softroce");
    }
    check!(
        device.max_res_rd_atom >= device.max_qp_rd_atom,
        "one queue pair may remember {} READs, all together {}",
        device.max_qp_rd_atom,
        device.max_res_rd_atom
    );
    Ok(())
}

fn limits<B: Testbed>(scene: &mut Scene<B>) -> CaseResult {
    let context = scene.context(Side::Left);
    let device = context.query_device()?;
    let fits = Setup::default().cap;
    let node = scene.node(Side::Left, &Setup::default())?;
    let too_much = [
        (
            "max_send_wr",
            QpCap {
                max_send_wr: device.max_qp_wr + 1,
                ..fits
            },
        ),
        (
            "max_recv_wr",
            QpCap {
                max_recv_wr: device.max_qp_wr + 1,
                ..fits
            },
        ),
        (
            "max_send_sge",
            QpCap {
                max_send_sge: device.max_sge + 1,
                ..fits
            },
        ),
        (
            "max_recv_sge",
            QpCap {
                max_recv_sge: device.max_sge + 1,
                ..fits
            },
        ),
        (
            "max_inline_data",
            QpCap {
                max_inline_data: device.max_inline_data + 1,
                ..fits
            },
        ),
    ];
    for (name, cap) in too_much {
        let init = QpInit {
            cap,
            ..QpInit::rc(&node.send_cq)
        };
        match node.pd.create_qp(&init) {
            Ok(_) => {
                return Err(Failure::new(format!(
                    "a queue pair with {name} beyond the limit was created"
                )));
            }
            Err(error) => check!(
                matches!(error.kind(), ErrorKind::Invalid | ErrorKind::NoMemory),
                "{name} beyond the limit must be EINVAL or ENOMEM, is {error} (errno {})",
                error.errno()
            ),
        }
    }
    for cqe in [0, device.max_cqe.saturating_add(1)] {
        check!(
            context.create_cq(&verbs_api::CqInit::new(cqe)).is_err(),
            "a completion queue of {cqe} entries was created (max_cqe {})",
            device.max_cqe
        );
    }
    Ok(())
}
