//! All operations in turn, with everything checked.

use verbs_api::{SendOp, WcStatus};

use crate::outcome::CaseResult;
use crate::pair::{Pair, full_access, pattern, same_bytes};
use crate::same;
use crate::scene::Scene;
use crate::testbed::{Need, Testbed};

/// SENDs, WRITEs, READs and, where there are any, atomics in turn; everything is checked.
pub(super) struct Mix<'a, B: Testbed> {
    pub(super) pair: &'a Pair<B::P>,
    pub(super) messages: u64,
    pub(super) longest: usize,
}

impl<B: Testbed> Mix<'_, B> {
    pub(super) fn run(&self, scene: &mut Scene<B>) -> CaseResult {
        let (left, right, longest) = (&self.pair.left, &self.pair.right, self.longest);
        let own = left.region(2 * longest + 8, full_access())?;
        let far = right.region(2 * longest + 8, full_access())?;
        let counter = right.region(8, full_access())?;
        let atomics = scene.bed.has(Need::Atomics);
        let mut added = 0u64;
        for n in 0..self.messages {
            let size = (n as usize * 7919) % (longest + 1);
            own.buffer.write(0, &pattern(n, size));
            let what = format!("message {n} of {size} bytes");
            match n % 4 {
                0 => {
                    right.recv(n, &[far.sge(0..longest)])?;
                    left.send(n, SendOp::Send { imm: Some(n as u32) }, &[own.sge(0..size)])?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    let wc = scene
                        .ends_with(&right.recv_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    same!(
                        (wc.immediate(), wc.byte_len as usize),
                        (Some(n as u32), size),
                        "receive of {what}"
                    );
                    same_bytes(&what, &far.buffer.to_vec(0..size), &pattern(n, size))?;
                }
                1 => {
                    left.send(
                        n,
                        SendOp::Write {
                            remote: far.remote(longest),
                            imm: None,
                        },
                        &[own.sge(0..size)],
                    )?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    same_bytes(
                        &what,
                        &far.buffer.to_vec(longest..longest + size),
                        &pattern(n, size),
                    )?;
                }
                2 => {
                    far.buffer.write(0, &pattern(n + 1, size));
                    left.send(
                        n,
                        SendOp::Read {
                            remote: far.remote(0),
                        },
                        &[own.sge(longest..longest + size)],
                    )?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    same_bytes(
                        &what,
                        &own.buffer.to_vec(longest..longest + size),
                        &pattern(n + 1, size),
                    )?;
                }
                _ if atomics => {
                    let word = own.sge(0..8);
                    left.send(
                        n,
                        SendOp::FetchAdd {
                            remote: counter.remote(0),
                            add: n,
                        },
                        &[word],
                    )?;
                    scene
                        .ends_with(&left.send_cq, n, WcStatus::Success)
                        .map_err(|e| e.during(&what))?;
                    let original = u64::from_ne_bytes(own.buffer.to_vec(0..8).try_into().unwrap_or_default());
                    same!(original, added, "old value of atomic {n}");
                    added += n;
                    same!(counter.buffer.load_u64(0), added, "value after atomic {n}");
                }
                _ => {}
            }
        }
        Ok(())
    }
}
