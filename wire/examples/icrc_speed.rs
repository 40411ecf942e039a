//! How long a packet's headers and ICRC take: `cargo run --release -p roce-wire --example icrc_speed`.

use std::hint::black_box;
use std::time::Instant;

use roce_wire::icrc::{Flow, FlowCrc};
use roce_wire::{Bth, Headers, Opcode, Psn, Qpn, ROCE_V2_PORT};

const ROUNDS: u32 = 200_000;

fn nanos_per_round<T>(mut work: impl FnMut() -> T) -> f64 {
    let start = Instant::now();
    for _ in 0..ROUNDS {
        black_box(work());
    }
    start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
}

fn main() {
    let address = |text: &str| text.parse().expect("an address");
    let flow = Flow {
        src: address("192.0.2.1"),
        dst: address("192.0.2.2"),
        source_port: 0xc123,
        dest_port: ROCE_V2_PORT,
    };
    let crc = FlowCrc::new(&flow);
    println!(
        "prepare a flow {:6.1} ns",
        nanos_per_round(|| FlowCrc::new(black_box(&flow)))
    );
    let headers = Headers::new(Bth::new(Opcode::RC_SEND_MIDDLE, Qpn::GSI, Psn::new(7)));
    for len in [16, 80, 272, 1040, 4112] {
        let mut packet = vec![0x5a; len];
        let emit = nanos_per_round(|| black_box(&headers).emit(black_box(&mut packet)));
        let seal = nanos_per_round(|| crc.seal(0, black_box(&mut packet)));
        let verify = nanos_per_round(|| crc.verify(&[0, 1], black_box(&packet)));
        crc.seal(0x1234, &mut packet);
        let recover = nanos_per_round(|| crc.verify(&[0, 1], black_box(&packet)));
        let parse = nanos_per_round(|| roce_wire::parse(black_box(&packet)).is_ok());
        println!(
            "{len:5} bytes: emit headers {emit:5.1} ns, parse {parse:5.1}, seal {seal:6.1}, verify {verify:6.1}, \
             verify and recover the IP ID {recover:6.1}"
        );
    }
}
