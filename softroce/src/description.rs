//! What a device is, told without opening it: no socket, no thread, no claim on its address.

use std::net::IpAddr;

use softroce_engine::{Config, Engine, PortConfig};
use verbs_api::{DeviceAttr, Error, Gid, GidEntry, Mtu, PortAttr, PortState, Result};

use crate::card::node_guid;
use crate::interfaces::Interface;

/// A device as a program finds it once it opens it. Only what depends on other processes is open: how many queue pairs
/// and shared receive queues there is room for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceDescription {
    /// Its name.
    pub name: String,
    /// Limits and abilities.
    pub attr: DeviceAttr,
    /// Its port.
    pub port: PortAttr,
    /// The port's GIDs; none when no interface has the address.
    pub gids: Vec<GidEntry>,
    /// The network interface that has the address.
    pub interface: Option<String>,
}

impl DeviceDescription {
    /// The device `name` on `address`, as it is now.
    ///
    /// # Errors
    /// The kernel does not tell its interfaces.
    pub(crate) fn of_address(name: &str, address: IpAddr) -> Result<DeviceDescription> {
        let interface = Interface::by_address(address)
            .map_err(|error| Error::system("the network interfaces cannot be listed", error))?;
        // An engine that nobody ever drives answers what one behind a socket would.
        let mut engine = Engine::new(Config {
            seed: 0,
            qpn_base: 0,
            qpn_count: 0,
            ack_delay_ns: 0,
            receive_buffer_bytes: 0,
            initial_window_bytes: 0,
            node_guid: node_guid(Gid::from(address)),
        });
        engine.set_port(match &interface {
            Some(interface) => interface.port(address),
            None => PortConfig {
                state: PortState::Down,
                active_mtu: Mtu::Mtu256,
                gids: Vec::new(),
            },
        });
        Ok(DeviceDescription {
            name: name.to_owned(),
            attr: engine.device_attr(),
            port: engine.port_attr(),
            gids: engine.gid_table().to_vec(),
            interface: interface.map(|interface| interface.name),
        })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use verbs_api::{Context as _, Provider as _};

    use super::*;
    use crate::{Options, Softroce};

    #[test]
    fn a_description_says_what_the_open_device_says() {
        let address = IpAddr::from([127, 91, 4, 77]);
        let provider = Softroce::new(Options {
            addresses: vec![address],
            ..Options::default()
        })
        .unwrap();
        let described = provider.describe().unwrap();
        let context = provider.open("softroce0").unwrap();
        let mut attr = context.query_device().unwrap();
        // The room for queue pairs is what other processes leave.
        let by_room = |attr: &DeviceAttr| (attr.max_qp, attr.max_srq, attr.max_res_rd_atom);
        (attr.max_qp, attr.max_srq, attr.max_res_rd_atom) = by_room(&described[0].attr);
        assert_eq!(
            described,
            [DeviceDescription {
                name: "softroce0".into(),
                attr,
                port: context.query_port(1).unwrap(),
                gids: context.gid_table().unwrap(),
                interface: Some("lo".into()),
            }]
        );
    }

    #[test]
    fn a_device_on_an_address_of_nobody_has_a_port_that_is_down() {
        let described = DeviceDescription::of_address("softroce0", IpAddr::from([198, 51, 100, 9])).unwrap();
        assert_eq!(described.port.state, PortState::Down);
        assert_eq!((described.gids.len(), described.interface), (0, None));
    }
}
