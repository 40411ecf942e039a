use std::collections::VecDeque;
use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::RawFd;

use roce_wire::icrc::{Flow, Verdict, seal};
use roce_wire::ip::Ip;
use roce_wire::pcap::Reader;
use softroce_engine::{Path, PortConfig, Time};

use super::*;
use crate::fabric::FabricCounters;

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Time {
        Time::from_nanos(5_000)
    }
}

/// Seals what it sends, as the third segment of a train, and hands it back.
#[derive(Default)]
struct Mirror {
    queue: VecDeque<(RxMeta, Vec<u8>)>,
    is_closed: bool,
}

impl Fabric for Mirror {
    fn send(&mut self, batch: &mut TxBatch) {
        for number in 0..batch.packets().len() {
            let Path {
                src,
                dst,
                traffic_class,
                hop_limit,
                ..
            } = batch.packets()[number].path;
            let flow = Flow {
                src,
                dst,
                source_port: 4791,
                dest_port: 4791,
            };
            let packet = batch.run_mut(number, 1);
            seal(&flow, 2, packet);
            let meta = RxMeta {
                src,
                dst,
                source_port: 4791,
                segment: 2,
                traffic_class,
                hop_limit,
            };
            self.queue.push_back((meta, packet.to_vec()));
        }
    }

    fn recv(&mut self, sink: &mut dyn FnMut(&RxMeta, &[u8])) -> usize {
        let Some((meta, packet)) = self.queue.pop_front() else {
            return 0;
        };
        sink(&meta, &packet);
        1
    }

    fn fds(&self) -> Vec<RawFd> {
        vec![7]
    }

    fn counters(&self) -> FabricCounters {
        FabricCounters {
            sent_bytes: 9,
            ..FabricCounters::default()
        }
    }

    fn receive_pressure(&mut self) -> bool {
        true
    }

    fn receive_buffer_bytes(&self) -> u32 {
        11
    }

    fn port(&mut self) -> PortConfig {
        PortConfig {
            state: verbs_api::PortState::Down,
            active_mtu: verbs_api::Mtu::Mtu256,
            gids: Vec::new(),
        }
    }

    fn port_changed(&mut self) -> bool {
        true
    }

    fn qpn_slice(&self) -> Range<u32> {
        3..4
    }

    fn close_in_child(&mut self) {
        self.is_closed = true;
    }
}

/// Memory that can be read while it is written to.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn tapped() -> (Tap<Mirror>, Memory) {
    let memory = Memory::default();
    let capture = Capture::write_to(Box::new(memory.clone()), Arc::new(Still), 1_000_000).unwrap();
    (Tap::new(Mirror::default(), capture), memory)
}

fn send_one(tap: &mut Tap<Mirror>, src: &str, dst: &str) -> Vec<u8> {
    let mut batch = TxBatch::new(4096, 4);
    let path = Path {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        source_port: 0xc123,
        traffic_class: 0x68,
        hop_limit: 0,
    };
    batch.push(path, 24).unwrap().copy_from_slice(&[4; 24]);
    tap.send(&mut batch);
    batch.bytes(&batch.packets()[0]).to_vec()
}

#[test]
fn each_packet_is_in_the_file_both_ways_with_headers_that_make_its_icrc_right() {
    for (src, dst) in [("127.0.0.1", "127.0.0.2"), ("::1", "fe80::2")] {
        let (mut tap, memory) = tapped();
        let packet = send_one(&mut tap, src, dst);
        assert_eq!(tap.recv(&mut |_, received| assert_eq!(received, packet)), 1);
        assert_eq!(tap.recv(&mut |_, _| panic!("nothing more was sent")), 0);
        // The tap still lives: nothing waits for it to end.
        let file = memory.0.lock().clone();
        let mut reader = Reader::new(&file[..]).unwrap();
        for hop_limit in [64, 0] {
            let record = reader.next_record().unwrap().unwrap();
            assert_eq!(record.timestamp_ns, Some(1_005_000));
            let frame = roce_wire::frame::parse_ip(record.data).unwrap();
            assert_eq!(frame.verdict(), Verdict::Valid);
            let (class, limit, addresses) = match frame.ip {
                Ip::V4(v4) => {
                    assert_eq!(v4.identification, 2);
                    (v4.tos, v4.ttl, (IpAddr::V4(v4.src), IpAddr::V4(v4.dst)))
                }
                Ip::V6(v6) => (
                    v6.traffic_class,
                    v6.hop_limit,
                    (IpAddr::V6(v6.src), IpAddr::V6(v6.dst)),
                ),
            };
            assert_eq!((class, limit), (0x68, hop_limit));
            assert_eq!(addresses, (src.parse().unwrap(), dst.parse().unwrap()));
            assert!(record.data.ends_with(&packet));
        }
        assert!(reader.next_record().unwrap().is_none());
    }
}

#[test]
fn a_tap_passes_everything_else_on() {
    let (mut tap, _memory) = tapped();
    assert_eq!(
        (tap.fds(), tap.counters().sent_bytes, tap.receive_pressure()),
        (vec![7], 9, true)
    );
    assert_eq!(
        (tap.receive_buffer_bytes(), tap.qpn_slice(), tap.port_changed()),
        (11, 3..4, true)
    );
    assert!(tap.port().gids.is_empty());
}

#[test]
fn a_forked_child_records_nothing() {
    let (mut tap, memory) = tapped();
    let before = memory.0.lock().len();
    tap.close_in_child();
    assert!(tap.inner.is_closed);
    send_one(&mut tap, "127.0.0.1", "127.0.0.1");
    assert_eq!(memory.0.lock().len(), before);
}

#[test]
fn a_file_that_cannot_be_written_ends_the_recording_and_not_the_traffic() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 < bytes.len() {
                return Err(io::Error::from_raw_os_error(libc::ENOSPC));
            }
            self.0 -= bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let capture = Capture::write_to(Box::new(Full(100)), Arc::new(Still), 0).unwrap();
    let mut tap = Tap::new(Mirror::default(), capture);
    for _ in 0..3 {
        send_one(&mut tap, "127.0.0.1", "127.0.0.1");
        assert_eq!(tap.recv(&mut |_, _| {}), 1);
    }
}

#[test]
fn a_capture_file_has_the_process_number_where_its_name_asks_for_it() {
    let folder = std::env::temp_dir();
    let name = folder.join("softroce-tap-%p.pcapng");
    Capture::create(&name, Arc::new(crate::MonotonicClock)).unwrap();
    let real = folder.join(format!("softroce-tap-{}.pcapng", std::process::id()));
    assert!(std::fs::metadata(&real).unwrap().len() > 0);
    std::fs::remove_file(real).unwrap();
    let nowhere = FilePath::new("/no/such/folder/x.pcapng");
    let error = Capture::create(nowhere, Arc::new(crate::MonotonicClock)).unwrap_err();
    assert!(error.to_string().contains("/no/such/folder/x.pcapng"), "{error}");
}

#[test]
fn a_file_to_which_another_one_is_writing_is_added_to() {
    let create = |path: &FilePath| Capture::create(path, Arc::new(crate::MonotonicClock));
    let name = std::env::temp_dir().join(format!("softroce-tap-shared-{}.pcapng", std::process::id()));
    let packets = || {
        let file = std::io::BufReader::new(std::fs::File::open(&name).unwrap());
        let mut reader = Reader::new(file).unwrap();
        std::iter::from_fn(|| reader.next_record().unwrap().map(|_| ())).count()
    };
    let taps: Vec<_> = (0..2)
        .map(|_| Tap::new(Mirror::default(), create(&name).unwrap()))
        .collect();
    for round in 0..3 {
        for mut tap in taps
            .iter()
            .map(|tap| Tap::new(Mirror::default(), tap.capture.clone().unwrap()))
        {
            send_one(&mut tap, "127.0.0.1", "127.0.0.1");
        }
        assert_eq!(packets(), 2 * (round + 1));
    }
    // Once nobody writes to it, the next one begins anew, or keeps what is there.
    drop(taps);
    drop(Capture::add_to(&name, Arc::new(crate::MonotonicClock)).unwrap());
    assert_eq!(packets(), 6);
    drop(create(&name).unwrap());
    assert_eq!(packets(), 0);
    std::fs::remove_file(name).unwrap();
}

#[test]
fn the_last_packets_of_a_process_are_bounded_and_end_with_the_last_one() {
    let directory = std::env::temp_dir().join(format!("softroce-tap-last-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let mut output = file::Rotating::create(&directory).unwrap();
    output.write_all(b"head").unwrap();
    let piece = vec![7; 100_000];
    for number in 0..200u32 {
        output.write_all(&piece).unwrap();
        output.write_all(&number.to_le_bytes()).unwrap();
    }
    let files: Vec<Vec<u8>> = std::fs::read_dir(&directory)
        .unwrap()
        .map(|entry| std::fs::read(entry.unwrap().path()).unwrap())
        .collect();
    std::fs::remove_dir_all(&directory).unwrap();
    assert_eq!(files.len(), 2);
    assert!(files.iter().map(Vec::len).sum::<usize>() as u64 <= file::LAST_BYTES);
    assert!(files.iter().map(Vec::len).sum::<usize>() as u64 > file::LAST_BYTES / 2);
    assert!(files.iter().all(|file| file.starts_with(b"head")));
    assert!(files.iter().any(|file| file.ends_with(&199u32.to_le_bytes())));
}
