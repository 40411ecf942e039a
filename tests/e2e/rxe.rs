//! The kernel's own soft RoCE driver as the peer, in a throw-away VM.

use e2e::bed::needs_root;
use e2e::{Case, Outcome, Stop};

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![Case::new(
        "kernel rxe and softroce exchange every operation without a retransmission",
        interop,
    )]
}

fn interop() -> Outcome {
    needs_root("start the VM with a network of its own")?;
    Err(Stop::skip("pending"))
}
