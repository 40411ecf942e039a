//! Work that one round leaves over is not left lying when the program polls no more.
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use roce_wire::{Bth, Headers, ICRC_LEN, Opcode, Psn, Qpn, RKey, Reth};
use softroce::{Device, Fabric, MonotonicClock, ProgressMode, Softroce};
use softroce_engine::{Path, TxBatch};
use verbs_api::{CompletionQueue, Gid, Provider, QueuePair, Wc};

use crate::provider::pair::{BUFFER_BYTES, End};
use crate::provider::wire::Cable;

/// The peer's queue pair number.
const PEER_QPN: u32 = 0x1_0077;

#[test]
fn an_answer_longer_than_a_round_goes_on_when_the_program_polls_no_more() {
    let (ours, mut theirs) = Cable::pair();
    let clock = Arc::new(MonotonicClock);
    let device = Device::new("cable0", Box::new(ours), clock, ProgressMode::Auto, 1);
    let end = End::new(Softroce::from_devices(vec![device]).open("cable0").unwrap(), None);
    end.connect(Gid::from(theirs_address()), PEER_QPN);
    // The background thread has nothing to do, and sleeps.
    thread::sleep(Duration::from_millis(200));

    let mut bth = Bth::new(
        Opcode::RC_READ_REQUEST,
        Qpn::new(end.qp.qpn()).unwrap(),
        Psn::new(0),
    );
    bth.ack_request = true;
    let mut headers = Headers::new(bth);
    let remote = end.remote(0);
    headers.reth = Some(Reth {
        va: remote.addr,
        rkey: RKey(remote.rkey.0),
        dma_length: BUFFER_BYTES as u32,
    });
    let mut batch = TxBatch::new(4096, 1);
    let path = Path {
        src: theirs_address(),
        dst: end.gid().ip(),
        source_port: 4791,
        traffic_class: 0,
        hop_limit: 64,
    };
    let out = batch.push(path, headers.len() + ICRC_LEN).unwrap();
    headers.emit(out).unwrap();
    theirs.send(&mut batch);

    assert_eq!(end.cq.poll(&mut [Wc::default()]).unwrap(), 0);
    let (start, mut answered) = (Instant::now(), 0);
    while answered < BUFFER_BYTES / 1024 {
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{answered} packets of {} came",
            BUFFER_BYTES / 1024
        );
        thread::sleep(Duration::from_millis(1));
        answered += theirs.recv(&mut |_, _| ());
    }
}

fn theirs_address() -> std::net::IpAddr {
    "10.0.0.2".parse().unwrap()
}
