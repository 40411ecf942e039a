//! Waiting until a server listens or a conversation is under way, without taking part: a probe would be
//! taken for the client.

use std::time::{Duration, Instant};

use crate::case::{Outcome, Stop};
use crate::process::Running;

/// How long a server may take to start listening.
const LIMIT: Duration = Duration::from_secs(20);
/// Datagrams after which a conversation is surely under way.
const UNDER_WAY: u64 = 50;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);

/// Waits until something in the server's network listens on TCP `port`.
pub fn wait_for_listener(server: &Running, port: u16) -> Outcome {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if is_listening(server.pid(), port) {
            return Ok(());
        }
        if server.has_ended() {
            return Err(Stop::Fail(format!(
                "the server ended before it listened on TCP port {port}.\n{}",
                server.report()
            )));
        }
        std::thread::sleep(PAUSE);
    }
    Err(Stop::Fail(format!(
        "no one listens on TCP port {port} after {LIMIT:?}.\n{}",
        server.report()
    )))
}

/// Port spaces of RDMA CM: connections, datagrams, and connections in InfiniBand's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmPorts {
    /// `RDMA_PS_TCP`
    Tcp = 0x0106,
    /// `RDMA_PS_UDP`
    Udp = 0x0111,
    /// `RDMA_PS_IB`
    Ib = 0x013f,
}

/// Waits until some process in the server's network has a port of RDMA CM.
pub fn wait_for_cm_listener(server: &Running, ports: CmPorts, port: u16) -> Outcome {
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline {
        if has_cm_port(server.pid(), ports, port) {
            return Ok(());
        }
        if server.has_ended() {
            return Err(Stop::Fail(format!(
                "the server ended before it had the port {port} of RDMA CM.\n{}",
                server.report()
            )));
        }
        std::thread::sleep(PAUSE);
    }
    Err(Stop::Fail(format!(
        "no one has the port {port} of RDMA CM after {LIMIT:?}.\n{}",
        server.report()
    )))
}

/// Whether somebody in the network of process `pid` has a port of RDMA CM: softroce claims it by a socket whose name ends
/// with the service.
pub fn has_cm_port(pid: u32, ports: CmPorts, port: u16) -> bool {
    let end = format!("/cm/{:x}", (ports as u64) << 16 | u64::from(port));
    std::fs::read_to_string(format!("/proc/{pid}/net/unix")).is_ok_and(|table| {
        table
            .lines()
            .any(|line| line.trim_end_matches('@').ends_with(&end))
    })
}

/// Whether a socket of the network namespace of process `pid` listens on `port`.
pub fn is_listening(pid: u32, port: u16) -> bool {
    ["tcp", "tcp6"].iter().any(|table| {
        std::fs::read_to_string(format!("/proc/{pid}/net/{table}"))
            .is_ok_and(|text| text.lines().skip(1).any(|line| is_listener(line, port)))
    })
}

/// Whether a line of `/proc/net/tcp` is a listener (state 0A) on `port`.
fn is_listener(line: &str, port: u16) -> bool {
    let mut fields = line.split_ascii_whitespace();
    let local = fields.nth(1).and_then(|address| address.rsplit(':').next());
    let state = fields.nth(1);
    local.and_then(|digits| u16::from_str_radix(digits, 16).ok()) == Some(port) && state == Some("0A")
}

/// Waits until this process's network has carried some datagrams from now on.
pub fn wait_for_traffic(process: &Running) -> Outcome {
    let received = || -> Result<u64, Stop> {
        let text = std::fs::read_to_string(format!("/proc/{}/net/snmp", process.pid()))?;
        Ok(udp_datagrams_received(&text))
    };
    let before = received()?;
    let deadline = Instant::now() + LIMIT;
    while Instant::now() < deadline && !process.has_ended() {
        if received()? >= before + UNDER_WAY {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(Stop::Fail(format!(
        "no traffic flows within {LIMIT:?}.\n{}",
        process.report()
    )))
}

/// The value below `InDatagrams` in the `Udp:` lines of `/proc/net/snmp`.
fn udp_datagrams_received(text: &str) -> u64 {
    let mut lines = text.lines().filter(|line| line.starts_with("Udp:"));
    let (Some(names), Some(values)) = (lines.next(), lines.next()) else {
        return 0;
    };
    names
        .split_ascii_whitespace()
        .zip(values.split_ascii_whitespace())
        .find(|(name, _)| *name == "InDatagrams")
        .and_then(|(_, value)| value.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::{is_listener, udp_datagrams_received};

    const LISTENER: &str =
        "   0: 0100007F:4853 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0";

    #[test]
    fn a_line_in_state_listen_is_a_listener_on_its_local_port_only() {
        assert!(is_listener(LISTENER, 0x4853));
        assert!(!is_listener(LISTENER, 0x4854));
        assert!(!is_listener(&LISTENER.replace(" 0A ", " 01 "), 0x4853));
        assert!(!is_listener("", 0x4853));
    }

    #[test]
    fn received_datagrams_stand_below_their_name() {
        let text = "Ip: A\nIp: 1\nUdp: InDatagrams NoPorts\nUdp: 42 7\nUdpLite: InDatagrams\nUdpLite: 9\n";
        assert_eq!(udp_datagrams_received(text), 42);
        assert_eq!(udp_datagrams_received(""), 0);
    }
}
