//! What an end has for all cases: a device, memory, and what it knows of the other end.

use std::fmt;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use verbs_api::{
    Access, Buffer, Context, Gid, MemoryRegion, Mtu, ProtectionDomain, Provider, RKey, RemoteAddr,
};

use super::Setting;
use super::area::MEMORY;
use super::talk::Talk;
use super::tally::Counters;
use crate::peer::end::{eight_groups, number};
use crate::peer::loss::Loss;
use crate::peer::{Line, Role};

/// Whose card an end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Ours.
    Softroce,
    /// The kernel's, or any other behind libibverbs.
    Rxe,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Softroce => "softroce",
            Kind::Rxe => "rxe",
        })
    }
}

/// What an end can look at and do besides verbs.
pub struct Instruments<'a> {
    /// Whose card it is.
    pub kind: Kind,
    /// The device's counters by name, as they are now.
    pub counters: &'a dyn Fn() -> Counters,
    /// What loses packets on demand.
    pub loss: Option<Loss<'a>>,
}

/// The peer's memory.
#[derive(Debug, Clone, Copy)]
struct Remote {
    addr: u64,
    rkey: RKey,
    /// Of a region over the same memory without any remote right.
    guarded: RKey,
}

/// One end.
pub struct Bench<'a, P: Provider> {
    /// To the other end.
    pub talk: Talk<'a>,
    /// Which end this is.
    pub role: Role,
    /// The path MTU of all queue pairs.
    pub mtu: Mtu,
    /// ACK timeout exponent.
    pub timeout: u8,
    /// Only cases with this in their name.
    pub only: Option<String>,
    /// Whether the listener can lose packets.
    pub loses: bool,
    /// What it can look at and do besides verbs.
    pub instruments: &'a Instruments<'a>,
    /// Whose card the peer is.
    pub peer_kind: Kind,
    /// The peer's GID.
    pub peer_gid: Gid,
    /// The own one.
    pub gid: Gid,
    /// Where it stands in the port's table.
    pub gid_index: u8,
    /// The registered memory; [`Area`](super::area::Area)s divide it.
    pub buffer: Buffer,
    /// The region over it that permits everything.
    pub mr: P::Mr,
    _guarded: P::Mr,
    pub pd: P::Pd,
    pub context: P::Context,
    remote: Remote,
}

const ALL: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::MW_BIND);

impl<'a, P: Provider> Bench<'a, P> {
    /// Opens the device (the first one, if none is named) at the address through which the other end is reached.
    pub fn open(
        provider: &P,
        device: Option<&str>,
        line: &'a mut Line,
        role: Role,
        setting: &Setting,
        instruments: &'a Instruments<'a>,
    ) -> Result<Self> {
        let own = line.local_ip()?;
        let mut talk = Talk::new(line);
        let context = open_device(provider, device)?;
        let gid = Gid::from(own);
        let gid_index = (0..16)
            .find(|index| context.query_gid(1, *index).is_ok_and(|entry| entry.gid == gid))
            .with_context(|| format!("{} has no GID for {own}", context.name()))?;
        let pd = context.alloc_pd()?;
        let buffer = Buffer::new(MEMORY);
        let mr = pd.reg_mr(&buffer, ALL)?;
        let guarded = pd.reg_mr(&buffer, Access::LOCAL_WRITE)?;
        let terms = json!({
            "mtu": setting.mtu.bytes(), "timeout": setting.timeout, "only": setting.only,
            "loses": instruments.loss.is_some(),
        });
        let hello = json!({
            "kind": instruments.kind.to_string(), "gid": eight_groups(gid), "addr": mr.addr(), "rkey": mr.rkey().0,
            "guarded": guarded.rkey().0, "terms": terms,
        });
        let hello = talk.meet_with("hello", hello)?;
        let terms = match role {
            Role::Listener => &terms,
            Role::Caller => &hello["terms"],
        };
        let mtu = usize::try_from(number(terms, "mtu")?)?;
        let mtu = Mtu::from_bytes(mtu).with_context(|| format!("{mtu} is no path MTU"))?;
        let active = context.query_port(1)?.active_mtu;
        ensure!(
            active >= mtu,
            "the port's MTU is {} bytes, below the {} wanted",
            active.bytes(),
            mtu.bytes()
        );
        Ok(Bench {
            talk,
            role,
            mtu,
            timeout: u8::try_from(number(terms, "timeout")?)?,
            only: terms["only"].as_str().map(str::to_owned),
            loses: terms["loses"] == true,
            instruments,
            peer_kind: kind_of(&hello)?,
            peer_gid: gid_of(&hello)?,
            gid,
            gid_index: u8::try_from(gid_index)?,
            buffer,
            mr,
            _guarded: guarded,
            pd,
            context,
            remote: Remote {
                addr: number(&hello, "addr")?,
                rkey: key_of(&hello, "rkey")?,
                guarded: key_of(&hello, "guarded")?,
            },
        })
    }

    /// The peer's memory at `offset`.
    pub fn remote(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            addr: self.remote.addr + offset as u64,
            rkey: self.remote.rkey,
        }
    }

    /// The same, by a key that permits nothing.
    pub fn guarded(&self, offset: usize) -> RemoteAddr {
        RemoteAddr {
            rkey: self.remote.guarded,
            ..self.remote(offset)
        }
    }

    /// Whose card the requester of a case is not.
    pub fn responder_kind(&self, requester: Role) -> Kind {
        if self.role == requester {
            self.peer_kind
        } else {
            self.instruments.kind
        }
    }

    /// Waits until a counter of the own device is above `before`.
    pub fn wait_for_counter(&self, name: &str, before: &Counters) -> Result<()> {
        const LIMIT: Duration = Duration::from_secs(30);
        let of = |counters: &Counters| counters.get(name).copied().unwrap_or(0);
        let deadline = Instant::now() + LIMIT;
        while of(&(self.instruments.counters)()) <= of(before) {
            ensure!(Instant::now() < deadline, "{name} has not risen for {LIMIT:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}

fn open_device<P: Provider>(provider: &P, name: Option<&str>) -> Result<P::Context> {
    let name = match name {
        Some(name) => name.to_owned(),
        None => {
            let first = provider.devices()?.into_iter().next();
            first.context("the provider has no device")?.name
        }
    };
    Ok(provider.open(&name)?)
}

fn kind_of(hello: &Value) -> Result<Kind> {
    match hello["kind"].as_str() {
        Some("softroce") => Ok(Kind::Softroce),
        Some("rxe") => Ok(Kind::Rxe),
        _ => bail!("the peer's kind is {}", hello["kind"]),
    }
}

fn gid_of(hello: &Value) -> Result<Gid> {
    let gid = hello["gid"].as_str().context("the peer names no GID")?;
    Ok(Gid(gid.parse::<Ipv6Addr>()?.octets()))
}

fn key_of(hello: &Value, name: &str) -> Result<RKey> {
    Ok(RKey(u32::try_from(number(hello, name)?)?))
}
