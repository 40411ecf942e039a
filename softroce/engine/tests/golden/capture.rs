//! The captured conversations and their parameters.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::PathBuf;

use roce_wire::frame::{Frame, parse_ethernet};
use roce_wire::pcap::Reader;
use serde_json::Value;
use softroce_engine::Time;
use verbs_api::Gid;

/// Which of the two devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Client,
    Server,
}

/// A captured Ethernet frame.
pub struct Captured {
    pub from: Side,
    /// Since a second before the first packet.
    pub at: Time,
    bytes: Vec<u8>,
}

impl Captured {
    pub fn frame(&self) -> Frame<'_> {
        parse_ethernet(&self.bytes).unwrap()
    }
}

/// One conversation.
pub struct Case {
    pub name: String,
    pub mtu_bytes: usize,
    pub client_ip: IpAddr,
    pub server_ip: IpAddr,
    pub client_qpn: u32,
    pub server_qpn: u32,
    pub client_psn: u32,
    pub server_psn: u32,
    pub client_va: u64,
    pub server_va: u64,
    pub server_rkey: u32,
    /// Completions, and what memory held afterwards.
    pub result: Value,
    pub packets: Vec<Captured>,
}

impl Case {
    pub fn ip(&self, side: Side) -> IpAddr {
        match side {
            Side::Client => self.client_ip,
            Side::Server => self.server_ip,
        }
    }

    /// The completions of a side that the capture's programs polled, in order.
    pub fn completions(&self, side: Side) -> Vec<&Value> {
        let keys: &[&str] = match side {
            Side::Client => &["client", "write", "send_inv", "write_after_inv"],
            Side::Server => &["server", "recv"],
        };
        keys.iter()
            .filter_map(|key| self.result.get(key))
            .flat_map(|found| match found {
                Value::Array(list) => list.iter().collect(),
                one => vec![one],
            })
            .filter(|found| !found.is_null())
            .collect()
    }
}

/// All conversations of one path MTU, in the order in which they took place.
pub fn load(mtu_bytes: usize) -> Vec<Case> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/pcaps")
        .join(format!("golden-{mtu_bytes}"));
    let text = fs::read_to_string(folder.join("golden.json")).unwrap();
    let parameters: Vec<Value> = serde_json::from_str(&text).unwrap();
    parameters
        .iter()
        .map(|case| {
            let pcap = folder.join(case["pcap"].as_str().unwrap());
            case_of(case, &fs::read(pcap).unwrap())
        })
        .collect()
}

fn case_of(parameters: &Value, pcap: &[u8]) -> Case {
    let number = |key: &str| u32::try_from(parameters[key].as_u64().unwrap()).unwrap();
    let ip = |key: &str| {
        let address: Ipv6Addr = parameters[key].as_str().unwrap().parse().unwrap();
        Gid(address.octets()).ip()
    };
    let (client_ip, server_ip) = (ip("client_gid"), ip("server_gid"));
    Case {
        name: parameters["case"].as_str().unwrap().to_owned(),
        mtu_bytes: number("path_mtu") as usize,
        client_ip,
        server_ip,
        client_qpn: number("client_qpn"),
        server_qpn: number("server_qpn"),
        client_psn: number("client_sq_psn"),
        server_psn: number("server_sq_psn"),
        client_va: hexadecimal(&parameters["client_va"]),
        server_va: hexadecimal(&parameters["server_va"]),
        server_rkey: u32::try_from(hexadecimal(&parameters["server_rkey"])).unwrap(),
        result: parameters["result"].clone(),
        packets: packets_of(pcap, client_ip),
    }
}

fn packets_of(pcap: &[u8], client_ip: IpAddr) -> Vec<Captured> {
    let mut reader = Reader::new(pcap).unwrap();
    let mut packets = Vec::new();
    let mut start_ns = None;
    while let Some(record) = reader.next_record().unwrap() {
        let taken_ns = record.timestamp_ns.unwrap();
        let since_ns = taken_ns - *start_ns.get_or_insert(taken_ns);
        let from = if parse_ethernet(record.data).unwrap().ip.src() == client_ip {
            Side::Client
        } else {
            Side::Server
        };
        packets.push(Captured {
            from,
            at: Time::from_nanos(1_000_000_000 + since_ns),
            bytes: record.data.to_vec(),
        });
    }
    packets
}

/// A number written as `0x…`.
pub fn hexadecimal(value: &Value) -> u64 {
    let digits = value.as_str().unwrap().trim_start_matches("0x");
    u64::from_str_radix(digits, 16).unwrap()
}
