//! Peers that run without RDMA hardware: UCX over TCP, libfabric over TCP and over UDP, and TCP itself.

use std::process::Command;

use anyhow::{Context as _, Result};

use super::Contest;
use super::process::{Pair, is_installed};

/// Add the contests of those peers that are installed; note the others.
pub fn add(contests: &mut Vec<Contest>, notes: &mut Vec<String>) {
    let mut add_if = |program: &str, package: &str, more: Vec<Contest>| {
        if is_installed(program) {
            contests.extend(more);
        } else {
            notes.push(format!(
                "{program} is not installed (Debian package {package}): left out"
            ));
        }
    };
    add_if("ucx_perftest", "ucx-utils", ucx_contests());
    add_if("fi_pingpong", "libfabric-bin", libfabric_contests());
    add_if("iperf3", "iperf3", vec![iperf3()]);
}

fn ucx_contests() -> Vec<Contest> {
    let (latency, bandwidth) = (UcxColumn::LatencyUs, UcxColumn::Bandwidth);
    vec![
        ucx("UCX tcp tag 8 B", "us", "tag_lat", 8, 20_000, latency),
        ucx("UCX tcp tag 1 MiB", "Gbit/s", "tag_bw", 1 << 20, 1_000, bandwidth),
        ucx(
            "UCX tcp put 4 KiB",
            "Gbit/s",
            "ucp_put_bw",
            4096,
            50_000,
            bandwidth,
        ),
    ]
}

fn libfabric_contests() -> Vec<Contest> {
    vec![
        libfabric(
            "libfabric tcp SEND 64 B",
            "us",
            "tcp",
            64,
            FiColumn::MicrosPerTransfer,
        ),
        libfabric(
            "libfabric udp+rxd SEND 64 B",
            "us",
            "udp;ofi_rxd",
            64,
            FiColumn::MicrosPerTransfer,
        ),
        libfabric(
            "libfabric udp+rxd SEND 4 KiB",
            "Gbit/s",
            "udp;ofi_rxd",
            4096,
            FiColumn::Megabytes,
        ),
        libfabric(
            "libfabric tcp SEND 1 MiB",
            "Gbit/s",
            "tcp",
            1 << 20,
            FiColumn::Megabytes,
        ),
        libfabric(
            "libfabric udp+rxd SEND 1 MiB",
            "Gbit/s",
            "udp;ofi_rxd",
            1 << 20,
            FiColumn::Megabytes,
        ),
    ]
}

#[derive(Clone, Copy)]
enum UcxColumn {
    LatencyUs,
    Bandwidth,
}

fn ucx(
    name: &'static str,
    unit: &'static str,
    test: &'static str,
    size: u32,
    iters: u32,
    column: UcxColumn,
) -> Contest {
    let run = move |pair: &Pair| {
        let port = pair.next_port().to_string();
        let command = |cpu| {
            let mut command = pair.foreign("ucx_perftest", cpu);
            command
                .env("UCX_TLS", "tcp")
                .env("UCX_NET_DEVICES", "lo")
                .args(["-p", &port]);
            command
        };
        let mut client = command(1);
        let (size, iters) = (size.to_string(), iters.to_string());
        client.args(["127.0.0.1", "-t", test, "-s", &size, "-n", &iters, "-f", "-v"]);
        let text = pair.run(&mut command(0), &mut client)?;
        // -v prints CSV: iterations, latency percentile, average, overall (us), bandwidth average, overall (MB/s), rates.
        let line = text
            .lines()
            .rev()
            .find(|l| l.starts_with(|c: char| c.is_ascii_digit()))
            .context("no CSV line")?;
        let fields: Vec<f64> = line.split(',').filter_map(|f| f.trim().parse().ok()).collect();
        let pick = |at: usize| {
            fields
                .get(at)
                .copied()
                .with_context(|| format!("no field {at} in {line:?}"))
        };
        Ok(vec![match column {
            UcxColumn::LatencyUs => pick(3)?,
            UcxColumn::Bandwidth => pick(5)? * 1048576.0 * 8.0 / 1e9,
        }])
    };
    Contest {
        rows: vec![(name, unit)],
        run: Box::new(run),
    }
}

#[derive(Clone, Copy)]
enum FiColumn {
    Megabytes,
    MicrosPerTransfer,
}

fn libfabric(
    name: &'static str,
    unit: &'static str,
    provider: &'static str,
    size: u32,
    column: FiColumn,
) -> Contest {
    let run = move |pair: &Pair| {
        let port = pair.next_port().to_string();
        let size = size.to_string();
        let command = |cpu| {
            let mut command = pair.foreign("fi_pingpong", cpu);
            command.args(["-e", "rdm", "-p", provider, "-I", "5000", "-S", &size]);
            command
        };
        let text = pair.run(
            command(0).args(["-B", &port]),
            command(1).args(["-P", &port, "127.0.0.1"]),
        )?;
        // bytes  #sent  #ack  total  time  MB/sec  usec/xfer  Mxfers/sec
        let line = text.lines().last().context("no output")?;
        let fields: Vec<&str> = line.split_whitespace().collect();
        let pick = |at: usize| -> Result<f64> {
            fields
                .get(at)
                .and_then(|f| f.parse().ok())
                .with_context(|| format!("no field {at} in {line:?}"))
        };
        Ok(vec![match column {
            FiColumn::Megabytes => pick(5)? * 8.0 / 1e3,
            FiColumn::MicrosPerTransfer => pick(6)?,
        }])
    };
    Contest {
        rows: vec![(name, unit)],
        run: Box::new(run),
    }
}

fn iperf3() -> Contest {
    let run = |pair: &Pair| {
        let port = pair.next_port().to_string();
        let command = |cpu: usize| -> Command {
            let mut command = pair.foreign("iperf3", cpu);
            command.args(["-p", &port]);
            command
        };
        let text = pair.run(
            command(0).args(["-s", "-1"]),
            command(1).args(["-c", "127.0.0.1", "-t", "1", "-J"]),
        )?;
        let json: serde_json::Value = serde_json::from_str(&text)?;
        let bits = json
            .pointer("/end/sum_received/bits_per_second")
            .and_then(serde_json::Value::as_f64);
        Ok(vec![bits.context("iperf3 printed no rate")? / 1e9])
    };
    Contest {
        rows: vec![("kernel TCP (iperf3)", "Gbit/s")],
        run: Box::new(run),
    }
}
