//! From addresses to devices and ports.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use roce_wire::cm::ServiceId;
use verbs_api::{Error, ErrorKind, Result};

use super::super::id::{HeldPort, IdInner, Phase};
use super::super::ports::Hold;
use super::super::{CmId, route};
use super::NOT_HERE;
use crate::context::ContextInner;

/// Tries to find a port that is free on several devices.
const PORT_TRIES: u32 = 64;

/// A program that has just received a message, and looks for a new peer instead of answering, does so at the sender's word
/// most often: a server of `perftest -R` tells its client to connect, and listens as soon as that is acknowledged. So the
/// acknowledgement waits for no answer to travel with.
fn acknowledge(context: &ContextInner) -> Result<()> {
    let device = &context.device;
    device.verb(|card, now| {
        card.flush(now, &device.pace);
        Ok(())
    })
}

/// A loopback address of a host that has no device there stands for its first device, as with the kernel's manager.
fn stand_in(devices: &[IpAddr], address: IpAddr) -> IpAddr {
    let same_family = |device: &&IpAddr| device.is_ipv4() == address.is_ipv4();
    let mut alike = devices.iter().filter(same_family);
    match alike.clone().any(|device| device.is_loopback()) || !address.is_loopback() {
        true => address,
        false => alike.next().copied().unwrap_or(address),
    }
}

impl CmId {
    /// The devices that a local address stands for, opened.
    pub(super) fn contexts_for(&self, local: IpAddr) -> Result<Vec<Arc<ContextInner>>> {
        let addresses = self.inner.provider.addresses()?;
        let both_families = local.is_ipv6() && !self.inner.lock().options.only_own_family;
        let local = stand_in(&addresses, local);
        let is_meant = |address: &IpAddr| match local.is_unspecified() {
            true => both_families || address.is_ipv4() == local.is_ipv4(),
            false => *address == local,
        };
        self.inner.provider.faults().expect_alive("bind_addr")?;
        let positions = (0..addresses.len()).filter(|position| is_meant(&addresses[*position]));
        let contexts: Vec<_> = positions
            .map(|position| self.inner.provider.shared_context(position))
            .collect::<Result<_>>()?;
        if contexts.is_empty() {
            return Err(Error::new(
                NOT_HERE,
                format!(
                    "no device has the address {local}; the devices are on {addresses:?}; {}",
                    route::HOW_TO_NAME
                ),
            ));
        }
        Ok(contexts)
    }

    /// To be called with [`IdInner::calls`] locked.
    pub(super) fn bind(&self, local: SocketAddr) -> Result<()> {
        self.expect_phase(&[Phase::Idle], "bind")?;
        let contexts = self.contexts_for(local.ip())?;
        let options = self.inner.lock().options;
        let hold = if options.reuse_address {
            Hold::Shared
        } else {
            Hold::Alone
        };
        let port = self.hold_on_all(&contexts, local.port(), hold)?;
        let service = ServiceId::of_port(self.inner.protocol(), port);
        let mut state = self.inner.lock();
        state.ports = contexts
            .iter()
            .map(|context| HeldPort {
                context: context.clone(),
                service,
                is_listening: false,
            })
            .collect();
        let mut own = local.ip();
        if !own.is_unspecified() {
            // A loopback address may stand for a device on another.
            own = contexts
                .first()
                .and_then(|context| IdInner::address_of(context))
                .unwrap_or(own);
            state.device = contexts.into_iter().next();
        }
        state.local = Some(SocketAddr::new(own, port));
        state.phase = Phase::Bound;
        let device = state.device.clone();
        drop(state);
        device.map_or(Ok(()), |device| self.attach(&device))
    }

    /// From now on the id hears of what happens to its device.
    fn attach(&self, device: &ContextInner) -> Result<()> {
        device.device.verb(|card, _| {
            card.cm.know(&self.inner);
            Ok(())
        })
    }

    /// Hold the same port on all devices; `port` 0 is any that is free on all of them.
    pub(super) fn hold_on_all(&self, contexts: &[Arc<ContextInner>], port: u16, hold: Hold) -> Result<u16> {
        let protocol = self.inner.protocol();
        let [first, others @ ..] = contexts else {
            return Err(Error::invalid("there is no device"));
        };
        for _ in 0..PORT_TRIES {
            let held = first.device.verb(|card, _| match port {
                0 => card.hold_any_port(protocol, hold),
                port => card
                    .hold_port(ServiceId::of_port(protocol, port), hold)
                    .map(|()| port),
            })?;
            let service = ServiceId::of_port(protocol, held);
            let on_others = others
                .iter()
                .map(|context| context.device.verb(|card, _| card.hold_port(service, hold)));
            let Some((position, error)) = on_others
                .enumerate()
                .find_map(|(position, result)| result.err().map(|error| (position, error)))
            else {
                return Ok(held);
            };
            for context in &contexts[..=position] {
                let _ = context.device.verb(|card, _| {
                    card.release_port(service, false);
                    Ok(())
                });
            }
            if port != 0 || error.kind() != ErrorKind::AddressInUse {
                return Err(error);
            }
        }
        Err(Error::new(
            ErrorKind::AddressInUse,
            "no port is free on all devices",
        ))
    }

    /// Undo listening on some devices.
    pub(super) fn listen_no_more(&self, ports: &[HeldPort]) {
        for (position, port) in ports.iter().enumerate() {
            let _ = port.context.device.verb(|card, _| {
                card.cm.agent.unlisten(port.service);
                card.release_port(port.service, true);
                // Still bound.
                card.hold_port(port.service, Hold::Alone)
            });
            if let Some(held) = self.inner.lock().ports.get_mut(position) {
                held.is_listening = false;
            }
        }
    }

    pub(super) fn resolve(&self, mut remote: SocketAddr) -> Result<()> {
        let addresses = self.inner.provider.addresses()?;
        remote.set_ip(stand_in(&addresses, remote.ip()));
        let bound = self.inner.lock().device.clone();
        let (context, own) = match bound {
            Some(context) => {
                let own = IdInner::address_of(&context)
                    .ok_or_else(|| Error::invalid("the device has lost its address"))?;
                (context, own)
            }
            None => {
                self.inner.provider.faults().expect_alive("resolve_addr")?;
                let first = addresses.iter().position(|own| own.is_ipv4() == remote.is_ipv4());
                let position = match (
                    remote.ip().is_unspecified(),
                    route::device_for(&addresses, &remote),
                ) {
                    (true, _) => first,
                    (false, Ok(position)) => Some(position),
                    // Where no route says otherwise, groups are those of the first device.
                    (false, Err(error)) => match first {
                        Some(first) if remote.ip().is_multicast() => Some(first),
                        _ => return Err(error),
                    },
                };
                let position = position
                    .ok_or_else(|| Error::invalid(format!("no device is of the family of {remote}")))?;
                (self.inner.provider.shared_context(position)?, addresses[position])
            }
        };
        if remote.ip().is_unspecified() {
            remote.set_ip(own);
        }
        if own.is_ipv4() != remote.is_ipv4() {
            return Err(Error::invalid(format!(
                "from {own} there is no way to {remote}: two families"
            )));
        }
        acknowledge(&context)?;
        let bound_port = self.inner.lock().local.map(|local| local.port());
        let port = match bound_port {
            Some(port) => port,
            None => {
                let protocol = self.inner.protocol();
                let port = context
                    .device
                    .verb(|card, _| card.hold_any_port(protocol, Hold::Name))?;
                self.inner.lock().ports.push(HeldPort {
                    context: context.clone(),
                    service: ServiceId::of_port(protocol, port),
                    is_listening: false,
                });
                port
            }
        };
        {
            let mut state = self.inner.lock();
            state.device = Some(context.clone());
            state.local = Some(SocketAddr::new(own, port));
            state.peer = Some(remote);
            state.phase = Phase::AddrResolved;
        }
        self.attach(&context)
    }
}
