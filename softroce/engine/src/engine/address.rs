//! Address handles: where datagrams go.
#![forbid(unsafe_code)]

use roce_wire::{Qpn, source_port};
use verbs_api::{AddressVector, Error, QpAttr, Result, Wc};

use super::Engine;
use crate::{Path, PdId};

/// Hop limit of an address vector that leaves it open.
const DEFAULT_HOP_LIMIT: u8 = 64;

/// An address handle: a resolved way to a peer address, and the domain whose queue pairs may use it.
///
/// It is a value: copies of it work until [`Engine::destroy_ah`] has been called for it, and the caller keeps to that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressHandle {
    pub(crate) pd: PdId,
    pub(crate) path: Path,
}

impl AddressHandle {
    /// Where it leads.
    pub fn path(&self) -> Path {
        self.path
    }
}

impl Engine {
    /// A new address handle in a domain.
    ///
    /// # Errors
    /// EINVAL: no such domain, port, GID index, or no way from the own address to the peer's.
    pub fn create_ah(&mut self, pd: PdId, av: &AddressVector) -> Result<AddressHandle> {
        let _ = (pd, av);
        Err(Error::unsupported("address handles"))
    }

    /// Give an address handle back; its domain can then go.
    pub fn destroy_ah(&mut self, ah: AddressHandle) -> Result<()> {
        let _ = ah;
        Err(Error::unsupported("address handles"))
    }

    /// The way back to the sender of a datagram: from its completion and the 40 bytes in front of its payload.
    ///
    /// # Errors
    /// EINVAL: the completion has no GRH area, the area is no IPv4 or IPv6 header, or it was not sent to an address of
    /// ours (the sender's GID cannot be told).
    pub fn av_from_wc(&self, wc: &Wc, grh: &[u8; 40]) -> Result<AddressVector> {
        let _ = (wc, grh);
        Err(Error::unsupported("address handles"))
    }

    /// The path that an address vector means.
    pub(super) fn path_of(&self, qpn: Qpn, attr: &QpAttr) -> Result<Path> {
        let av = attr.av.unwrap_or_default();
        if av.port > 1 {
            return Err(Error::invalid(format!(
                "port {} in the address vector does not exist",
                av.port
            )));
        }
        let dgid = av.dgid.filter(|gid| !gid.is_zero());
        let dst = dgid
            .ok_or_else(|| Error::invalid("RoCE needs a destination GID in the address vector"))?
            .ip();
        if dst.is_multicast() {
            return Err(Error::invalid(format!(
                "{dst} is a group: a connection leads to one peer"
            )));
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
        let remote = Qpn::new(attr.dest_qpn.unwrap_or(0)).unwrap_or_default();
        let label = if av.flow_label == 0 {
            source_port::flow_label(qpn, remote)
        } else {
            av.flow_label
        };
        Ok(Path {
            src,
            dst,
            source_port: source_port::from_flow_label(label),
            traffic_class: av.traffic_class,
            hop_limit: if av.hop_limit == 0 {
                DEFAULT_HOP_LIMIT
            } else {
                av.hop_limit
            },
        })
    }
}
