//! Address handles: where datagrams go; and the paths that address vectors mean.
#![forbid(unsafe_code)]

use std::net::IpAddr;

use roce_wire::ip::Ip;
use roce_wire::{Qpn, grh, source_port};
use verbs_api::{AddressVector, Error, ErrorKind, Gid, QpAttr, Result, Wc, WcFlags};

use super::Engine;
use crate::slots::SlotTable;
use crate::{Path, PdId};

/// Hop limit of an address vector that leaves it open.
const DEFAULT_HOP_LIMIT: u8 = 64;
/// Hop limit of an answer to a datagram.
const ANSWER_HOP_LIMIT: u8 = 0xff;
/// Address handles that an engine may hold.
pub(super) const MAX_AH: usize = 1 << 16;

/// The domains of the address handles that exist.
pub(super) type AddressHandles = SlotTable<PdId, 16, 32>;

/// An address handle: a resolved way to a peer address, and the domain whose queue pairs may use it.
///
/// It is a value: copies of it work until [`Engine::destroy_ah`] has been called for one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHandle {
    id: u32,
    pub(crate) path: Path,
}

impl AddressHandle {
    /// Where it leads. A source port of 0 is for each queue pair to choose.
    pub fn path(&self) -> Path {
        self.path
    }
}

impl Engine {
    /// A new address handle in a domain. The destination may be a multicast group.
    ///
    /// # Errors
    /// EINVAL: no such domain, port, GID index, or no way from the own address to the peer's. ENOMEM: the device's
    /// limit.
    pub fn create_ah(&mut self, pd: PdId, av: &AddressVector) -> Result<AddressHandle> {
        let mut path = self.path_of(av)?;
        if av.port == 0 {
            return Err(Error::invalid(
                "port 0 in the address vector does not exist; the device has port 1",
            ));
        }
        if av.flow_label != 0 {
            path.source_port = source_port::from_flow_label(av.flow_label);
        }
        self.pds.retain(pd)?;
        match self.address_handles.insert(pd) {
            Ok(id) => Ok(AddressHandle { id, path }),
            Err(_) => {
                self.pds.release(pd);
                Err(Error::new(
                    ErrorKind::NoMemory,
                    format!("all {MAX_AH} address handles of the device are in use; destroy some first"),
                ))
            }
        }
    }

    /// Give an address handle back; its domain can then go.
    ///
    /// Requests that were posted with it go where they were meant to.
    ///
    /// # Errors
    /// EINVAL: it was given back already.
    pub fn destroy_ah(&mut self, ah: AddressHandle) -> Result<()> {
        let pd = self.address_handles.remove(ah.id).ok_or_else(unknown_handle)?;
        self.pds.release(pd);
        Ok(())
    }

    /// The way back to the sender of a datagram: from its completion and the 40 bytes in front of its payload.
    ///
    /// # Errors
    /// EINVAL: the completion has no GRH area, the area is no IPv4 or IPv6 header, or it was not sent to an address of
    /// ours (the own GID cannot be told; so it is with datagrams to a group).
    pub fn av_from_wc(&self, wc: &Wc, area: &[u8; 40]) -> Result<AddressVector> {
        if !wc.flags.contains(WcFlags::GRH) {
            return Err(Error::invalid(
                "the completion has no GRH flag: it is not of a datagram, or its sender is not known",
            ));
        }
        let ip = grh::read(area).map_err(|error| {
            Error::invalid(format!(
                "the 40 bytes in front of the payload hold no network header: {error}"
            ))
        })?;
        let own = self.port.gids.iter().find(|entry| entry.gid.ip() == ip.dst());
        let own = own.ok_or_else(|| {
            Error::invalid(format!(
                "the datagram went to {}, which is not in the GID table",
                ip.dst()
            ))
        })?;
        let sgid_index = u8::try_from(own.index)
            .map_err(|_| Error::invalid(format!("GID index {} does not fit an address vector", own.index)))?;
        Ok(AddressVector {
            dgid: Some(Gid::from(ip.src())),
            sgid_index,
            flow_label: match ip {
                Ip::V4(_) => 0,
                Ip::V6(header) => header.flow_label,
            },
            hop_limit: ANSWER_HOP_LIMIT,
            traffic_class: ip.traffic_class(),
            // Not the completion's: there stands the kind of the packet.
            service_level: 0,
            port: 1,
            ..AddressVector::default()
        })
    }

    /// The path of a connection.
    pub(super) fn connected_path(&self, qpn: Qpn, attr: &QpAttr) -> Result<Path> {
        let av = attr.av.unwrap_or_default();
        let mut path = self.path_of(&av)?;
        if path.dst.is_multicast() {
            return Err(Error::invalid(format!(
                "{} is a group: a connection leads to one peer",
                path.dst
            )));
        }
        let remote = Qpn::new(attr.dest_qpn.unwrap_or(0)).unwrap_or_default();
        let label = if av.flow_label == 0 {
            source_port::flow_label(qpn, remote)
        } else {
            av.flow_label
        };
        path.source_port = source_port::from_flow_label(label);
        Ok(path)
    }

    /// The path that an address vector means; its source port is left open.
    fn path_of(&self, av: &AddressVector) -> Result<Path> {
        if av.port > 1 {
            return Err(Error::invalid(format!(
                "port {} in the address vector does not exist",
                av.port
            )));
        }
        let dgid = av.dgid.filter(|gid| !gid.is_zero());
        let dst = dgid
            .ok_or_else(|| {
                Error::invalid(
                    "the address has no destination GID (is_global is 0), and RoCE has no LIDs; most programs have an option that names a GID, as `-g 0`",
                )
            })?
            .ip();
        if is_nobody(dst) {
            return Err(Error::invalid(format!("{dst} is nobody's address")));
        }
        let entry = self
            .port
            .gids
            .iter()
            .find(|entry| entry.index == u32::from(av.sgid_index));
        let src = entry
            .ok_or_else(|| Error::invalid(format!("the GID table has no entry {}", av.sgid_index)))?
            .gid
            .ip();
        if src.is_ipv4() != dst.is_ipv4() {
            return Err(Error::invalid(format!(
                "from {src} there is no way to {dst}: two families"
            )));
        }
        Ok(Path {
            src,
            dst,
            source_port: 0,
            traffic_class: av.traffic_class,
            hop_limit: if av.hop_limit == 0 {
                DEFAULT_HOP_LIMIT
            } else {
                av.hop_limit
            },
        })
    }
}

/// 0.0.0.0 and the broadcast address; a multicast group is somebody.
fn is_nobody(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_unspecified() || v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unspecified(),
    }
}

/// Whether a queue pair of domain `pd` may use the handle. EINVAL if not.
pub(super) fn check_handle(handles: &AddressHandles, ah: &AddressHandle, pd: PdId) -> Result<()> {
    match handles.get(ah.id) {
        Some(domain) if *domain == pd => Ok(()),
        Some(_) => Err(Error::invalid(
            "the address handle stands in another protection domain than the queue pair",
        )),
        None => Err(unknown_handle()),
    }
}

fn unknown_handle() -> Error {
    Error::invalid("there is no such address handle (destroyed already, or of another device)")
}
