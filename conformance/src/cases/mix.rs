//! All operations in turn, with everything checked.

use verbs_api::{Provider, SendOp, WcStatus};

use crate::outcome::CaseResult;
use crate::pair::{Pair, Region, full_access, pattern, same_bytes};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};

/// SENDs, WRITEs, READs and, where there are any, atomics in turn; everything is checked.
pub(super) struct Mix<'a, B: Testbed> {
    pub(super) pair: &'a Pair<B::P>,
    pub(super) messages: u64,
    pub(super) longest: usize,
}

/// Where the messages of a mix come from and go to: one half for what leaves, one for what arrives.
struct Areas<P: Provider> {
    own: Region<P>,
    far: Region<P>,
    counter: Region<P>,
}

impl<B: Testbed> Mix<'_, B> {
    pub(super) fn run(&self, scene: &mut Scene<B>) -> CaseResult {
        let (left, right, longest) = (&self.pair.left, &self.pair.right, self.longest);
        let areas = Areas {
            own: left.region(2 * longest + 8, full_access())?,
            far: right.region(2 * longest + 8, full_access())?,
            counter: right.region(8, full_access())?,
        };
        let atomics = scene.bed.has(Need::Atomics);
        let mut added = 0u64;
        for n in 0..self.messages {
            let size = (n as usize * 7919) % (longest + 1);
            areas.own.buffer.write(0, &pattern(n, size));
            match n % 4 {
                0 => self.send(scene, &areas, n, size),
                1 => self.write(scene, &areas, n, size),
                2 => self.read(scene, &areas, n, size),
                _ if atomics => self.add(scene, &areas, n, &mut added),
                _ => Ok(()),
            }
            .map_err(|e| e.during(format!("message {n} of {size} bytes")))?;
        }
        Ok(())
    }

    fn send(&self, scene: &mut Scene<B>, areas: &Areas<B::P>, n: u64, size: usize) -> CaseResult {
        let (left, right) = (&self.pair.left, &self.pair.right);
        right.recv(n, &[areas.far.sge(0..self.longest)])?;
        let op = SendOp::Send { imm: Some(n as u32) };
        left.send(n, op, &[areas.own.sge(0..size)])?;
        scene.ends_with(&left.send_cq, n, WcStatus::Success)?;
        let wc = scene.ends_with(&right.recv_cq, n, WcStatus::Success)?;
        same!(
            (wc.immediate(), wc.byte_len as usize),
            (Some(n as u32), size),
            "receive"
        );
        same_bytes("SEND", &areas.far.buffer.to_vec(0..size), &pattern(n, size))
    }

    fn write(&self, scene: &mut Scene<B>, areas: &Areas<B::P>, n: u64, size: usize) -> CaseResult {
        let (left, arrives) = (&self.pair.left, self.longest..self.longest + size);
        let op = SendOp::Write {
            remote: areas.far.remote(arrives.start),
            imm: None,
        };
        left.send(n, op, &[areas.own.sge(0..size)])?;
        scene.ends_with(&left.send_cq, n, WcStatus::Success)?;
        same_bytes("WRITE", &areas.far.buffer.to_vec(arrives), &pattern(n, size))
    }

    fn read(&self, scene: &mut Scene<B>, areas: &Areas<B::P>, n: u64, size: usize) -> CaseResult {
        let (left, arrives) = (&self.pair.left, self.longest..self.longest + size);
        areas.far.buffer.write(0, &pattern(n + 1, size));
        let op = SendOp::Read {
            remote: areas.far.remote(0),
        };
        left.send(n, op, &[areas.own.sge(arrives.clone())])?;
        scene.ends_with(&left.send_cq, n, WcStatus::Success)?;
        same_bytes("READ", &areas.own.buffer.to_vec(arrives), &pattern(n + 1, size))
    }

    fn add(&self, scene: &mut Scene<B>, areas: &Areas<B::P>, n: u64, added: &mut u64) -> CaseResult {
        let left = &self.pair.left;
        let op = SendOp::FetchAdd {
            remote: areas.counter.remote(0),
            add: n,
        };
        left.send(n, op, &[areas.own.sge(0..8)])?;
        scene.ends_with(&left.send_cq, n, WcStatus::Success)?;
        let original = u64::from_ne_bytes(areas.own.buffer.to_vec(0..8).try_into().unwrap_or_default());
        same!(original, *added, "old value");
        *added += n;
        same!(areas.counter.buffer.load_u64(0), *added, "value after it");
        Ok(())
    }
}
