//! The packet path does not allocate.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use roce_wire::icrc::{Flow, FlowCrc, Verdict};
use roce_wire::{Bth, Headers, ImmDt, Opcode, Packet, Psn, Qpn, RKey, ROCE_V2_PORT, Reth, pad_len, parse};

thread_local! {
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, counting for each thread.
struct Counting;

// SAFETY: every call goes unchanged to the system's allocator, which upholds the contract.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's promise on `layout` is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: the block came from `alloc` above with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations_of(work: impl FnOnce()) -> usize {
    let before = ALLOCATIONS.with(Cell::get);
    work();
    ALLOCATIONS.with(Cell::get) - before
}

#[test]
fn a_packet_is_written_sealed_verified_and_read_without_an_allocation() {
    let (src, dst) = ([192, 0, 2, 1].into(), [192, 0, 2, 2].into());
    let flow = Flow {
        src,
        dst,
        source_port: 0xc000,
        dest_port: ROCE_V2_PORT,
    };
    let payload = [7; 1021];
    let pad = pad_len(payload.len());
    let bth = Bth {
        pad,
        ..Bth::new(Opcode::RC_WRITE_ONLY_WITH_IMMEDIATE, Qpn::GSI, Psn::new(5))
    };
    let headers = Headers {
        reth: Some(Reth {
            va: 4096,
            rkey: RKey(1),
            dma_length: payload.len() as u32,
        }),
        immediate: Some(ImmDt([1, 2, 3, 4])),
        ..Headers::new(bth)
    };
    let count = allocations_of(|| {
        let mut out = [0; 2048];
        let packet = Packet {
            headers,
            payload: &payload,
            pad: &[0; 3][..pad.into()],
            icrc: [0; 4],
        };
        let len = packet.emit(&mut out).expect("room");
        let crc = FlowCrc::new(&flow);
        crc.seal(0x4321, &mut out[..len]);
        assert_eq!(
            crc.verify(&[0], black_box(&out[..len])),
            Verdict::ValidWithIpId(0x4321)
        );
        assert_eq!(
            parse(black_box(&out[..len])).map(|parsed| parsed.headers),
            Ok(headers)
        );
        assert!(parse(black_box(&out[..20])).is_err());
    });
    assert_eq!(count, 0);
    assert_ne!(allocations_of(|| drop(black_box(vec![1]))), 0, "the count works");
}
