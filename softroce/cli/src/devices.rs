//! `softroce devices`: what there is, and what it can do.

use std::net::{IpAddr, Ipv4Addr};

use anyhow::Result;
use clap::Args;
use serde_json::json;
use verbs_api::{Context, DeviceAttr, GidEntry, PortAttr, Provider};

use crate::device::{self, DeviceArgs};
use crate::output;

/// List the devices
#[derive(Args, Debug)]
pub struct Devices {
    /// All limits, the port and its GIDs
    #[arg(short, long)]
    verbose: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

struct Found {
    name: String,
    attr: DeviceAttr,
    port: PortAttr,
    gids: Vec<GidEntry>,
}

impl Devices {
    /// Print the list.
    pub fn run(self) -> Result<()> {
        let provider = device::open(&self.device, None, IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let mut found = Vec::new();
        for info in provider.devices()? {
            let context = provider.open(&info.name)?;
            found.push(Found {
                attr: context.query_device()?,
                port: context.query_port(1)?,
                gids: context.gid_table()?,
                name: info.name,
            });
        }
        if self.json {
            output::line(serde_json::Value::from_iter(found.iter().map(Found::json)))?;
        } else {
            found.iter().try_for_each(|device| device.print(self.verbose))?;
        }
        Ok(())
    }
}

impl Found {
    fn print(&self, verbose: bool) -> Result<()> {
        let Found {
            name,
            attr,
            port,
            gids,
        } = self;
        let address = gids
            .first()
            .map_or_else(|| "no address".to_owned(), |g| g.gid.ip().to_string());
        output::line(format_args!(
            "{name:<16} {address:<24} {:?}, MTU {}",
            port.state,
            port.active_mtu.bytes()
        ))?;
        if !verbose {
            return Ok(());
        }
        output::line(format_args!(
            "    node GUID {:016x}, {}",
            attr.node_guid, attr.fw_ver
        ))?;
        for (name, limit) in limits(attr) {
            output::line(format_args!("    {name:<26} {limit}"))?;
        }
        output::line(format_args!(
            "    {:<26} {}",
            "atomics",
            format!("{:?}", attr.atomic_cap).to_uppercase()
        ))?;
        output::line(format_args!("    {:<26} {}", "largest message", port.max_msg_sz))?;
        for gid in gids {
            output::line(format_args!(
                "    GID {:<3} {} ({:?})",
                gid.index, gid.gid, gid.gid_type
            ))?;
        }
        Ok(())
    }

    fn json(&self) -> serde_json::Value {
        let Found {
            name,
            attr,
            port,
            gids,
        } = self;
        let limits: serde_json::Map<String, serde_json::Value> = limits(attr)
            .into_iter()
            .map(|(name, limit)| (name.to_owned(), limit.into()))
            .collect();
        json!({
            "name": name,
            "node_guid": format!("{:016x}", attr.node_guid),
            "port": { "state": format!("{:?}", port.state), "active_mtu": port.active_mtu.bytes(), "max_msg_sz": port.max_msg_sz },
            "limits": limits,
            "gids": gids.iter().map(|g| json!({
                "index": g.index, "gid": g.gid.to_string(), "address": g.gid.ip().to_string(), "type": format!("{:?}", g.gid_type),
            })).collect::<Vec<_>>(),
        })
    }
}

fn limits(attr: &DeviceAttr) -> [(&'static str, u64); 26] {
    [
        ("max_qp", attr.max_qp.into()),
        ("max_qp_wr", attr.max_qp_wr.into()),
        ("max_sge", attr.max_sge.into()),
        ("max_inline_data", attr.max_inline_data.into()),
        ("max_cq", attr.max_cq.into()),
        ("max_cqe", attr.max_cqe.into()),
        ("max_mr", attr.max_mr.into()),
        ("max_mr_size", attr.max_mr_size),
        ("max_pd", attr.max_pd.into()),
        ("max_qp_rd_atom", attr.max_qp_rd_atom.into()),
        ("max_qp_init_rd_atom", attr.max_qp_init_rd_atom.into()),
        ("max_res_rd_atom", attr.max_res_rd_atom.into()),
        ("max_sge_rd", attr.max_sge_rd.into()),
        ("max_srq", attr.max_srq.into()),
        ("max_srq_wr", attr.max_srq_wr.into()),
        ("max_srq_sge", attr.max_srq_sge.into()),
        ("max_ah", attr.max_ah.into()),
        ("max_mw", attr.max_mw.into()),
        ("max_dm_bytes", attr.max_dm_bytes),
        ("max_mcast_grp", attr.max_mcast_grp.into()),
        ("max_mcast_qp_attach", attr.max_mcast_qp_attach.into()),
        ("max_total_mcast_qp_attach", attr.max_total_mcast_qp_attach.into()),
        ("max_pkeys", attr.max_pkeys.into()),
        ("num_comp_vectors", attr.num_comp_vectors.into()),
        ("local_ca_ack_delay", attr.local_ca_ack_delay.into()),
        ("phys_port_cnt", attr.phys_port_cnt.into()),
    ]
}
