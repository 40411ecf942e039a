//! The provider: a list of devices that can be opened.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, Weak};

use verbs_api::{DeviceInfo, Error, ErrorKind, Gid, Provider, Result};

use crate::ah::Ah;
use crate::card::{Card, node_guid};
use crate::channel::Channel;
use crate::clock::MonotonicClock;
use crate::context::{Context, ContextInner};
use crate::cq::Cq;
use crate::description::DeviceDescription;
use crate::device::{Device, WeakDevice};
use crate::dm::Dm;
use crate::fabric::{Fabric, Faulty, Trains, UdpFabric, UdpOptions};
use crate::faults::{self, Faults, Verb};
use crate::fork;
use crate::journal;
use crate::lock::Mutex;
use crate::mr::Mr;
use crate::mw::Mw;
use crate::options::{Options, ProgressMode};
use crate::os;
use crate::pd::Pd;
use crate::qp::Qp;
use crate::room;
use crate::srq::Srq;
use crate::tap::{Capture, Tap};
use crate::xrc::XrcDomain;

/// The software card's provider. Clones share their devices.
///
/// Devices open on [`Provider::open`] and close when their last context, and everything made on it, is gone. Opening
/// one that is open gives another context of the same device.
#[derive(Clone)]
pub struct Softroce {
    slots: Arc<[Slot]>,
    faults: Arc<Faults>,
}

struct Slot {
    info: DeviceInfo,
    source: Source,
    /// Of the process that made the provider, see [`fork`].
    generation: u32,
    /// What all ids of RDMA CM share.
    context: Mutex<Weak<ContextInner>>,
}

enum Source {
    /// A device on an address, opened when somebody wants it.
    Address {
        address: IpAddr,
        options: Options,
        recording: Arc<Recording>,
        faults: Arc<Faults>,
        open: Mutex<WeakDevice>,
    },
    /// A device that came from outside.
    Ready(Device),
}

impl Softroce {
    /// A provider whose devices talk RoCEv2 over UDP, one device an address.
    ///
    /// EINVAL when an address is given twice or names no single host.
    pub fn new(options: Options) -> Result<Softroce> {
        if options.progress == ProgressMode::Manual {
            return Err(Error::invalid(
                "manual progress is for devices made by hand (Softroce::from_devices)",
            ));
        }
        let mut addresses = options.addresses.clone();
        if addresses.is_empty() {
            addresses.push(Options::DEFAULT_ADDRESS);
        }
        for (position, address) in addresses.iter().enumerate() {
            if address.is_unspecified() || address.is_multicast() {
                return Err(Error::invalid(format!(
                    "a device needs one address of this host, not {address}"
                )));
            }
            if addresses[..position].contains(address) {
                return Err(Error::invalid(format!(
                    "the device address {address} is given twice"
                )));
            }
        }
        let recording = Arc::new(Recording {
            path: options.capture.clone(),
            last_in: options.capture_last.clone(),
            started: Mutex::new(None),
        });
        let faults = Faults::new(Arc::new(MonotonicClock));
        if let Some(rules) = &options.faults {
            faults.load(Arc::clone(rules));
            faults::tell_at_the_end(&faults);
        }
        let slots = addresses.iter().enumerate().map(|(position, &address)| Slot {
            info: DeviceInfo {
                name: format!("softroce{position}"),
                guid: node_guid(Gid::from(address)),
            },
            source: Source::Address {
                address,
                options: options.clone(),
                recording: Arc::clone(&recording),
                faults: Arc::clone(&faults),
                open: Mutex::default(),
            },
            generation: fork::generation(),
            context: Mutex::default(),
        });
        Ok(Softroce {
            slots: slots.collect(),
            faults,
        })
    }

    /// The fault rules of its devices on addresses. Those made by hand have their own.
    pub fn faults(&self) -> &Arc<Faults> {
        &self.faults
    }

    /// Go by these fault rules from now on, or by none: all devices on addresses, those that are open already too.
    ///
    /// # Errors
    /// EOPNOTSUPP, and nothing has changed, when a device is open whose packets meet no rules: it was opened without any,
    /// and not under `softroce run`. [`Options::faults`] may hold rules that are empty.
    pub fn set_faults(&self, rules: Option<faults::Rules>) -> Result<()> {
        let open: Vec<Device> = self.slots.iter().filter_map(Slot::open_device).collect();
        for device in &open {
            if !device.shared().look(|card| card.fabric.judges_packets())? {
                return Err(Error::unsupported(
                    "fault rules for a device that was opened without any",
                ));
            }
        }
        match rules {
            Some(rules) => self.faults.load(rules),
            None => self.faults.clear(),
        }
        open.iter().try_for_each(Device::faults_changed)
    }

    /// What its devices are called, whatever a fault rule says about asking.
    pub fn list(&self) -> Vec<DeviceInfo> {
        self.slots.iter().map(|slot| slot.info.clone()).collect()
    }

    /// A provider of these devices: for simulation.
    pub fn from_devices(devices: Vec<Device>) -> Softroce {
        let faults = match devices.first() {
            Some(device) => device.faults().clone(),
            None => Faults::new(Arc::new(MonotonicClock)),
        };
        let slots = devices.into_iter().map(|device| Slot {
            info: DeviceInfo {
                name: device.name().to_owned(),
                guid: device.node_guid(),
            },
            source: Source::Ready(device),
            generation: fork::generation(),
            context: Mutex::default(),
        });
        Softroce {
            slots: slots.collect(),
            faults,
        }
    }

    /// What its devices are, without opening those on addresses.
    ///
    /// # Errors
    /// The kernel does not tell its interfaces.
    pub fn describe(&self) -> Result<Vec<DeviceDescription>> {
        self.slots.iter().map(Slot::describe).collect()
    }
}

impl Softroce {
    /// The addresses of its devices, in their order.
    pub(crate) fn addresses(&self) -> Result<Vec<IpAddr>> {
        self.slots.iter().map(Slot::address).collect()
    }

    /// A device, by its position, opened once for all who ask here.
    pub(crate) fn shared_context(&self, position: usize) -> Result<Arc<ContextInner>> {
        let slot = &self.slots[position];
        // In a forked child the holder may be a thread of the parent, which will never let go.
        let mut shared = match slot.context.try_lock() {
            Some(shared) => shared,
            None if slot.generation != fork::generation() => return Ok(Context::new(slot.device()?)?.inner),
            None => slot.context.lock(),
        };
        if let Some(context) = shared.upgrade().filter(|context| context.device.is_owned()) {
            return Ok(context);
        }
        let context = Context::new(slot.device()?)?.inner;
        *shared = Arc::downgrade(&context);
        Ok(context)
    }
}

impl Slot {
    fn address(&self) -> Result<IpAddr> {
        match &self.source {
            Source::Address { address, .. } => Ok(*address),
            Source::Ready(device) => {
                device.shared().gid.map(Gid::ip).ok_or_else(|| {
                    Error::new(ErrorKind::NotFound, format!("{} has no address", self.info.name))
                })
            }
        }
    }

    fn describe(&self) -> Result<DeviceDescription> {
        let name = &self.info.name;
        match &self.source {
            Source::Address { address, .. } => DeviceDescription::of_address(name, *address),
            Source::Ready(device) => {
                let look = |card: &Card| DeviceDescription {
                    name: name.clone(),
                    attr: card.engine.device_attr(),
                    port: card.engine.port_attr(),
                    gids: card.engine.gid_table().to_vec(),
                    interface: None,
                };
                device.shared().look(look)
            }
        }
    }

    /// The device, if it is open in this process.
    fn open_device(&self) -> Option<Device> {
        match &self.source {
            Source::Ready(device) => Some(device.clone()),
            Source::Address { open, .. } => open.try_lock()?.upgrade(),
        }
        .filter(|device| device.shared().is_owned())
    }

    fn device(&self) -> Result<Device> {
        let (address, options, shared, open) = match &self.source {
            Source::Ready(device) => return Ok(device.clone()),
            Source::Address {
                address,
                options,
                recording,
                faults,
                open,
            } => (*address, options, (&**recording, faults), open),
        };
        let mut open = match open.try_lock() {
            Some(open) => open,
            // In a forked child the holder may be a thread of the parent, which will never let go.
            None if self.generation != fork::generation() => {
                return fork::open(|| open_udp(&self.info.name, address, options, shared));
            }
            None => open.lock(),
        };
        // A device that was inherited through fork is the parent's: this process opens its own.
        if let Some(device) = open.upgrade().filter(|device| device.shared().is_owned()) {
            return Ok(device);
        }
        let device = fork::open(|| open_udp(&self.info.name, address, options, shared))?;
        *open = device.downgrade();
        Ok(device)
    }
}

/// The capture file that all devices of a provider share; made when the first of them opens.
struct Recording {
    /// Everything into this file.
    path: Option<PathBuf>,
    /// Or the last packets into files in this directory.
    last_in: Option<PathBuf>,
    /// With the generation (see [`fork`]) of the process that made it.
    started: Mutex<Option<(u32, Capture)>>,
}

impl Recording {
    /// The capture, if one is wanted. A forked child adds to its parent's file.
    fn capture(&self) -> Result<Option<Capture>> {
        if self.path.is_none() && self.last_in.is_none() {
            return Ok(None);
        }
        let generation = fork::generation();
        // A holder in the parent at the moment of a fork never lets go in the child; there the capture is left out.
        let Some(mut started) = self.started.try_lock() else {
            return Err(Error::new(
                ErrorKind::Again,
                "the capture is being opened by another thread",
            ));
        };
        let clock = Arc::new(MonotonicClock);
        let capture = match (&*started, &self.path, &self.last_in) {
            (Some((of, capture)), ..) if *of == generation => return Ok(Some(capture.clone())),
            (Some(_), Some(path), _) => Capture::add_to(path, clock)?,
            (None, Some(path), _) => Capture::create(path, clock)?,
            (_, None, Some(directory)) => Capture::last(directory, clock)?,
            (_, None, None) => return Ok(None),
        };
        *started = Some((generation, capture.clone()));
        Ok(Some(capture))
    }
}

fn open_udp(
    name: &str,
    address: IpAddr,
    options: &Options,
    (recording, faults): (&Recording, &Arc<Faults>),
) -> Result<Device> {
    let mut udp_options = UdpOptions::new(address);
    udp_options.trains = if options.gso {
        Trains::Allowed
    } else {
        Trains::Never
    };
    udp_options.receive_buffer_bytes = Some(options.receive_buffer_bytes);
    let udp = UdpFabric::open(&udp_options)?;
    // Only where rules are, or may come.
    let may_fail = options.faults.is_some() || faults.is_loaded() || journal::directory().is_some();
    let fabric: Box<dyn Fabric> = match (may_fail, recording.capture()?) {
        (true, Some(capture)) => Box::new(Tap::new(Faulty::new(udp, faults.clone())?, capture)),
        (true, None) => Box::new(Faulty::new(udp, faults.clone())?),
        (false, Some(capture)) => Box::new(Tap::new(udp, capture)),
        (false, None) => Box::new(udp),
    };
    let seed = options.seed.unwrap_or_else(os::random_u64);
    let clock = Arc::new(MonotonicClock);
    Device::with_faults(name, fabric, clock, (options.progress, seed), faults.clone())
}

impl fmt::Debug for Softroce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.slots.iter().map(|slot| &slot.info.name))
            .finish()
    }
}

impl Provider for Softroce {
    type Context = Context;
    type Pd = Pd;
    type Mr = Mr;
    type Dm = Dm;
    type Mw = Mw;
    type Channel = Channel;
    type Cq = Cq;
    type Qp = Qp;
    type Srq = Srq;
    type XrcDomain = XrcDomain;
    type Ah = Ah;

    fn devices(&self) -> Result<Vec<DeviceInfo>> {
        self.faults.verb(Verb::GetDeviceList)?;
        Ok(self.list())
    }

    fn open(&self, name: &str) -> Result<Context> {
        self.faults.verb(Verb::OpenDevice)?;
        room::for_small_object()?;
        let slot = self
            .slots
            .iter()
            .find(|slot| slot.info.name == name)
            .ok_or_else(|| {
                let names: Vec<_> = self.slots.iter().map(|slot| slot.info.name.as_str()).collect();
                Error::new(
                    ErrorKind::NotFound,
                    format!("there is no device {name:?}; there are: {}", names.join(", ")),
                )
            })?;
        Context::new(slot.device()?)
    }
}
