//! The files that the kernel's InfiniBand drivers would show of the devices: below `/sys` and `/dev`, as far as
//! programs look there. Everything in them is what the devices answer to verbs. Pure.

use softroce::DeviceDescription;
use verbs_api::{GidType, LinkLayer, PortState};

/// A file of the tree.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Entry {
    /// Below the root, without a slash at its beginning.
    pub(super) path: String,
    pub(super) content: Content,
}

/// What a file is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Content {
    /// A line, without its end.
    Text(String),
    /// A counter, which begins at 0: processes add to it.
    Counter,
    /// A link that leads there.
    Link(String),
}

/// Writing succeeds nowhere on it, so that no program that drives a device by its file takes silence for success; it can
/// be opened by everybody, and is a character device, which is what programs look for.
const DEVICE_FILE: &str = "/dev/full";
/// Where the devices lie: not on a bus.
const DEVICES: &str = "sys/devices/virtual/softroce";
/// Interface versions of the kernel's drivers.
const VERBS_ABI: &str = "6";
const DRIVER_ABI: &str = "1";
const MAD_ABI: &str = "5";
/// The kernel's device numbers of InfiniBand, and the first of verbs.
const MAJOR: u32 = 231;
const VERBS_MINOR: usize = 192;

/// Counters that every port has, and those of the kernel's RoCE driver. The library adds to those that it has.
const PORT_COUNTERS: [&str; 12] = [
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
];
const DRIVER_COUNTERS: [&str; 15] = [
    "ack_deferred",
    "duplicate_request",
    "lifespan",
    "link_downed",
    "out_of_seq_request",
    "rcvd_pkts",
    "rcvd_rnr_err",
    "rcvd_seq_err",
    "rdma_recvs",
    "rdma_sends",
    "retry_exceeded_err",
    "retry_rnr_exceeded_err",
    "send_err",
    "send_rnr_err",
    "sent_pkts",
];

/// The files of these devices, in order of their paths.
pub(super) fn files(devices: &[DeviceDescription]) -> Vec<Entry> {
    let mut files = Files::default();
    files.text("sys/class/infiniband_verbs/abi_version", VERBS_ABI);
    files.text("sys/class/infiniband_mad/abi_version", MAD_ABI);
    for (position, device) in devices.iter().enumerate() {
        files.device(position, device);
    }
    files.0.sort();
    files.0
}

#[derive(Default)]
struct Files(Vec<Entry>);

impl Files {
    fn add(&mut self, path: impl Into<String>, content: Content) {
        let path = path.into();
        self.0.push(Entry { path, content });
    }

    fn text(&mut self, path: impl Into<String>, text: impl ToString) {
        self.add(path, Content::Text(text.to_string()));
    }

    fn link(&mut self, path: impl Into<String>, target: impl Into<String>) {
        self.add(path, Content::Link(target.into()));
    }

    fn device(&mut self, position: usize, device: &DeviceDescription) {
        let name = &device.name;
        let directory = format!("{DEVICES}/{name}");
        self.text(format!("{directory}/numa_node"), -1);
        if let Some(interface) = &device.interface {
            self.link(
                format!("{directory}/net/{interface}"),
                format!("/sys/class/net/{interface}"),
            );
        }
        let card = self.class_device(name, "infiniband", name);
        self.card(&card, device);
        self.port(&format!("{card}/ports/1"), device);

        let (verbs, mad) = (format!("uverbs{position}"), format!("umad{position}"));
        let directory = self.class_device(name, "infiniband_verbs", &verbs);
        self.text(format!("{directory}/ibdev"), name);
        self.text(format!("{directory}/abi_version"), DRIVER_ABI);
        self.text(
            format!("{directory}/dev"),
            format_args!("{MAJOR}:{}", VERBS_MINOR + position),
        );
        let directory = self.class_device(name, "infiniband_mad", &mad);
        self.text(format!("{directory}/ibdev"), name);
        self.text(format!("{directory}/port"), 1);
        self.text(format!("{directory}/dev"), format_args!("{MAJOR}:{position}"));
        for node in [verbs, mad] {
            self.link(format!("dev/infiniband/{node}"), DEVICE_FILE);
        }
    }

    /// A device's place in a class: its directory, and the links that lead there and back.
    fn class_device(&mut self, device: &str, class: &str, name: &str) -> String {
        let directory = format!("{DEVICES}/{device}/{class}/{name}");
        self.link(
            format!("sys/class/{class}/{name}"),
            format!("../../devices/virtual/softroce/{device}/{class}/{name}"),
        );
        self.link(format!("{directory}/device"), format!("../../../{device}"));
        self.link(
            format!("{directory}/subsystem"),
            format!("../../../../../../class/{class}"),
        );
        directory
    }

    fn card(&mut self, directory: &str, device: &DeviceDescription) {
        let attr = &device.attr;
        let mut text = |file: &str, text: String| self.text(format!("{directory}/{file}"), text);
        text("node_type", "1: CA".into());
        text("node_guid", guid(attr.node_guid));
        text("sys_image_guid", guid(attr.sys_image_guid));
        text("node_desc", device.name.clone());
        text("fw_ver", attr.fw_ver.clone());
        text("hw_rev", format!("{:#x}", attr.hw_ver));
        text("hca_type", "softroce".into());
        text("board_id", "softroce".into());
    }

    fn port(&mut self, directory: &str, device: &DeviceDescription) {
        let port = &device.port;
        let mut text = |file: &str, text: String| self.text(format!("{directory}/{file}"), text);
        text(
            "state",
            format!("{}: {}", port.state as u8, state_name(port.state)),
        );
        text(
            "phys_state",
            format!("{}: {}", port.phys_state, physical_state_name(port.phys_state)),
        );
        text("lid", format!("{:#x}", port.lid));
        text("lid_mask_count", port.lmc.to_string());
        text("sm_lid", format!("{:#x}", port.sm_lid));
        text("sm_sl", "0".into());
        text("cap_mask", format!("{:#010x}", port.port_cap_flags));
        text("rate", rate(port.active_speed, port.active_width));
        text("link_layer", link_layer_name(port.link_layer).into());
        for index in 0..port.pkey_tbl_len {
            text(&format!("pkeys/{index}"), "0xffff".into());
        }
        for entry in &device.gids {
            let index = entry.index;
            text(&format!("gids/{index}"), gid(entry.gid.0));
            let gid_type = match entry.gid_type {
                GidType::RoceV2 => "RoCE v2",
                GidType::Ib | GidType::RoceV1 => "IB/RoCE v1",
            };
            text(&format!("gid_attrs/types/{index}"), gid_type.into());
            if let Some(interface) = &device.interface {
                text(&format!("gid_attrs/ndevs/{index}"), interface.clone());
            }
        }
        for counter in PORT_COUNTERS {
            self.add(format!("{directory}/counters/{counter}"), Content::Counter);
        }
        for counter in DRIVER_COUNTERS {
            self.add(format!("{directory}/hw_counters/{counter}"), Content::Counter);
        }
    }
}

/// Groups of four digits.
fn groups(digits: &str) -> String {
    let groups: Vec<&str> = (0..digits.len())
        .step_by(4)
        .map(|at| &digits[at..at + 4])
        .collect();
    groups.join(":")
}

fn guid(guid: u64) -> String {
    groups(&format!("{guid:016x}"))
}

/// Never shortened.
fn gid(gid: [u8; 16]) -> String {
    groups(&format!("{:032x}", u128::from_be_bytes(gid)))
}

fn state_name(state: PortState) -> &'static str {
    match state {
        PortState::Nop => "NOP",
        PortState::Down => "DOWN",
        PortState::Init => "INIT",
        PortState::Armed => "ARMED",
        PortState::Active => "ACTIVE",
        PortState::ActiveDefer => "ACTIVE_DEFER",
    }
}

/// Of the numbers in `ibv_port_attr`.
fn physical_state_name(state: u8) -> &'static str {
    match state {
        1 => "Sleep",
        2 => "Polling",
        3 => "Disabled",
        4 => "PortConfigurationTraining",
        5 => "LinkUp",
        6 => "LinkErrorRecovery",
        7 => "Phy Test",
        _ => "<unknown>",
    }
}

fn link_layer_name(layer: LinkLayer) -> &'static str {
    match layer {
        LinkLayer::Unspecified => "Unspecified",
        LinkLayer::InfiniBand => "InfiniBand",
        LinkLayer::Ethernet => "Ethernet",
    }
}

/// As the kernel prints it, of the codes in `ibv_port_attr`.
fn rate(speed: u8, width: u8) -> String {
    let (tenths_of_gbps, name) = match speed {
        2 => (50, " DDR"),
        4 => (100, " QDR"),
        8 => (100, " FDR10"),
        16 => (140, " FDR"),
        32 => (250, " EDR"),
        64 => (500, " HDR"),
        128 => (1000, " NDR"),
        _ => (25, " SDR"),
    };
    let lanes = match width {
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    let rate = tenths_of_gbps * lanes;
    let fraction = if rate % 10 == 0 {
        String::new()
    } else {
        format!(".{}", rate % 10)
    };
    format!("{}{fraction} Gb/sec ({lanes}X{name})", rate / 10)
}

#[cfg(test)]
mod tests {
    use softroce::{Options, Softroce};

    use super::*;

    fn text<'a>(files: &'a [Entry], path: &str) -> &'a str {
        match &files.iter().find(|entry| entry.path == path).unwrap().content {
            Content::Text(text) | Content::Link(text) => text,
            Content::Counter => "0",
        }
    }

    fn described(addresses: &[&str]) -> Vec<DeviceDescription> {
        let options = Options {
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            ..Options::default()
        };
        Softroce::new(options).unwrap().describe().unwrap()
    }

    #[test]
    fn a_device_shows_what_it_answers_to_verbs() {
        let files = files(&described(&["127.0.0.9"]));
        let card = "sys/devices/virtual/softroce/softroce0/infiniband/softroce0";
        let port = format!("{card}/ports/1");
        assert_eq!(
            text(&files, &format!("{port}/gids/0")),
            "0000:0000:0000:0000:0000:ffff:7f00:0009"
        );
        assert_eq!(text(&files, &format!("{port}/gid_attrs/types/0")), "RoCE v2");
        assert_eq!(text(&files, &format!("{port}/gid_attrs/ndevs/0")), "lo");
        assert_eq!(text(&files, &format!("{port}/state")), "4: ACTIVE");
        assert_eq!(text(&files, &format!("{port}/phys_state")), "5: LinkUp");
        assert_eq!(text(&files, &format!("{port}/rate")), "25 Gb/sec (1X EDR)");
        assert_eq!(text(&files, &format!("{card}/fw_ver")), env!("CARGO_PKG_VERSION"));
        assert_eq!(text(&files, &format!("{card}/node_guid")).len(), 19);
    }

    #[test]
    fn devices_are_numbered_alike_in_all_classes() {
        let files = files(&described(&["127.0.0.9", "127.0.0.10"]));
        assert_eq!(
            text(&files, "sys/class/infiniband_verbs/uverbs1"),
            "../../devices/virtual/softroce/softroce1/infiniband_verbs/uverbs1"
        );
        let verbs = "sys/devices/virtual/softroce/softroce1/infiniband_verbs/uverbs1";
        assert_eq!(text(&files, &format!("{verbs}/ibdev")), "softroce1");
        assert_eq!(text(&files, &format!("{verbs}/dev")), "231:193");
        assert_eq!(text(&files, "dev/infiniband/uverbs1"), DEVICE_FILE);
        assert_eq!(
            text(&files, "sys/class/infiniband/softroce1/".trim_end_matches('/')),
            "../../devices/virtual/softroce/softroce1/infiniband/softroce1"
        );
    }

    #[test]
    fn no_path_stands_twice() {
        let files = files(&described(&["127.0.0.9", "127.0.0.10"]));
        for pair in files.windows(2) {
            assert!(pair[0].path < pair[1].path, "{pair:?}");
        }
    }

    #[test]
    fn rates_are_printed_as_the_kernel_does() {
        assert_eq!(rate(1, 1), "2.5 Gb/sec (1X SDR)");
        assert_eq!(rate(4, 2), "40 Gb/sec (4X QDR)");
        assert_eq!(rate(32, 1), "25 Gb/sec (1X EDR)");
    }
}
