use super::super::Lease;
use super::*;

fn peers() -> (Peers, PeerId) {
    let mut peers = Peers::new(16 << 10);
    peers.reserve(8);
    let id = peers.join("10.0.0.2".parse().unwrap(), 7, Time::ZERO);
    for _ in 1..8 {
        assert_eq!(peers.join("10.0.0.2".parse().unwrap(), 7, Time::ZERO), id);
    }
    (peers, id)
}

#[test]
fn an_empty_path_takes_anything_and_a_full_one_nothing() {
    let (mut peers, id) = peers();
    assert!(peers.admits(id, 0, 1 << 20));
    peers.charge(id, 0, 16 << 10);
    assert!(!peers.admits(id, 0, 1));
    peers.get_mut(id).refund(1, 1);
    assert!(peers.admits(id, 0, 1));
}

#[test]
fn who_comes_late_waits_behind_those_who_wait() {
    let (mut peers, id) = peers();
    peers.charge(id, 0, 16 << 10);
    peers.wait(id, 1);
    peers.wait(id, 2);
    peers.wait(id, 1);
    assert_eq!(peers.wake(id), None);
    peers.get_mut(id).refund(16 << 10, 1);
    assert!(!peers.admits(id, 0, 100), "others were first");
    assert_eq!(peers.wake(id), Some(1));
    assert!(peers.admits(id, 1, 100));
    peers.charge(id, 1, 100);
    // It used its chance, so it goes to the end of the line.
    peers.wait(id, 1);
    assert_eq!(peers.wake(id), Some(2));
    // This one found too little, and keeps its place.
    peers.wait(id, 2);
    assert_eq!(peers.wake(id), Some(2));
    peers.end_turn(2);
    assert_eq!(peers.wake(id), Some(1));
    assert_eq!(peers.wake(id), None);
}

#[test]
fn a_window_grows_only_where_it_limits_and_halves_once_a_loss() {
    let (mut peers, id) = peers();
    let at = Time::from_nanos;
    peers.get_mut(id).grow(1 << 20);
    assert_eq!(peers.get(id).window(), 16 << 10);
    peers.wait(id, 1);
    peers.get_mut(id).grow(16 << 10);
    assert_eq!(peers.get(id).window(), 17 << 10);
    peers.get_mut(id).shrink(at(1_000));
    peers.get_mut(id).shrink(at(2_000));
    assert_eq!(peers.get(id).window(), 17 << 9);
    for round in 1..10 {
        peers.get_mut(id).shrink(at(round * 1_000_000));
    }
    assert_eq!(peers.get(id).window(), MIN_WINDOW_BYTES);
}

#[test]
fn a_peer_that_nobody_uses_is_forgotten() {
    let mut peers = Peers::new(0);
    peers.reserve(2);
    let (one, two): (IpAddr, IpAddr) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
    let first = peers.join(one, 7, Time::ZERO);
    peers.leave(first, 0);
    assert_eq!(peers.window_of(one), None);
    assert_eq!(peers.join(two, 7, Time::ZERO), first);
}

#[test]
fn processes_on_one_address_have_windows_of_their_own() {
    let mut peers = Peers::new(0);
    peers.reserve(3);
    let address: IpAddr = "127.0.0.1".parse().unwrap();
    let one = peers.join(address, 0x01_0005, Time::ZERO);
    assert_eq!(peers.join(address, 0x01_ffff, Time::ZERO), one);
    assert_ne!(peers.join(address, 0x02_0005, Time::ZERO), one);
}

#[test]
fn a_socket_that_sleeps_gets_single_packets_until_it_is_heard_of() {
    let (mut peers, id) = peers();
    let at = |ms: u64| Time::from_nanos(ms * 1_000_000);
    peers.charge(id, 0, 1000);
    peers.charge(id, 1, 1000);
    assert_eq!(peers.get_mut(id).end_lease(at(5)), Lease::Release);
    assert!(peers.admits(id, 2, 1000), "awake: something was heard 5 ms ago");
    assert_eq!(peers.get_mut(id).end_lease(at(10)), Lease::Release);
    assert!(!peers.admits(id, 3, 1000));
    assert_eq!(peers.get_mut(id).end_lease(at(20)), Lease::Keep);
    assert!(!peers.admits(id, 3, 1000));
    assert_eq!(peers.get_mut(id).end_lease(at(50)), Lease::Keep);
    assert!(peers.admits(id, 3, 1000), "a probe");
    peers.charge(id, 3, 1000);
    assert!(!peers.admits(id, 3, 1000));
    peers.get_mut(id).note_heard(at(60));
    assert!(peers.admits(id, 3, 1000));
}
