//! Writing directly to what the peer has mapped.

use softroce_rsocket::{MapFor, Patience, Shutdown};
use verbs_api::{Access, Buffer, ProtectionDomain};

use crate::ends::*;

fn map(socket: &Socket, buffer: &Buffer, offset: Option<u64>) -> verbs_api::Result<u64> {
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    socket.map(offset, MapFor::Peer, |domain| domain.reg_mr(buffer, access))
}

/// The peer may count on a mapping once it has data that was sent after it.
fn tell(from: &Socket, to: &Socket) {
    from.send(b".", Patience::OfSocket).unwrap();
    assert_eq!(read(to, 1), b".");
}

#[test]
fn direct_writes_are_there_before_later_data() {
    let (a, b) = pair_with(|options| {
        options.mappings = 2;
        options.send_bytes = 1000;
    });
    let (first, second) = (Buffer::new(10_000), Buffer::new(64));
    assert_eq!(map(&b, &first, None).unwrap(), 0);
    assert_eq!(map(&b, &second, None).unwrap(), 12_288);
    tell(&b, &a);
    for round in 0..20 {
        let data = pattern(round, 9_000);
        assert_eq!(a.write_direct(&data, 1000, Patience::OfSocket).unwrap(), 9_000);
        assert_eq!(
            a.write_direct(&[round as u8; 3], 12_288 + 61, Patience::OfSocket)
                .unwrap(),
            3
        );
        tell(&a, &b);
        assert_eq!(first.to_vec(1000..10_000), data);
        assert_eq!(second.to_vec(60..64), [0, round as u8, round as u8, round as u8]);
    }
}

#[test]
fn only_what_is_mapped_can_be_written_to() {
    let (a, b) = pair_with(|options| options.mappings = 1);
    let buffer = Buffer::new(100);
    assert_eq!(
        errno(a.write_direct(b"x", 0, Patience::OfSocket)),
        libc_errno::EFAULT
    );
    assert_eq!(map(&b, &buffer, Some(500)).unwrap(), 500);
    assert_eq!(errno(map(&b, &buffer, Some(599))), libc_errno::EEXIST);
    assert_eq!(errno(map(&b, &buffer, Some(600))), libc_errno::ENOMEM);
    assert_eq!(errno(map(&b, &buffer, Some(u64::MAX - 10))), libc_errno::EINVAL);
    tell(&b, &a);
    for (offset, bytes) in [(499, 1), (600, 1), (599, 2), (u64::MAX, 1)] {
        let written = a.write_direct(&vec![1; bytes], offset, Patience::OfSocket);
        assert_eq!(errno(written), libc_errno::EFAULT, "{offset}");
    }
    a.write_direct(b"x", 599, Patience::OfSocket).unwrap();
    // A write on its way to what is mapped no more would end the connection.
    tell(&a, &b);
    assert_eq!(errno(b.unmap(buffer.addr(), 99)), libc_errno::EINVAL);
    b.unmap(buffer.addr(), 100).unwrap();
    tell(&b, &a);
    assert_eq!(
        errno(a.write_direct(b"x", 500, Patience::OfSocket)),
        libc_errno::EFAULT
    );
    map(&b, &buffer, None).unwrap();
}

#[test]
fn mapping_needs_a_peer_that_takes_mappings() {
    let (a, b) = pair_with(|_| {});
    assert_eq!(errno(map(&b, &Buffer::new(10), None)), libc_errno::ENOMEM);
    // One for ourselves always goes.
    let own = Buffer::new(10);
    a.map(None, MapFor::Source, |domain| {
        domain.reg_mr(&own, Access::empty())
    })
    .unwrap();
    a.unmap(own.addr(), 10).unwrap();
    a.shut_down(Shutdown::Both).unwrap();
    assert_eq!(
        errno(a.write_direct(b"x", 0, Patience::OfSocket)),
        libc_errno::EPIPE
    );
    let fresh = Host::on(fresh_address()).socket();
    assert_eq!(errno(map(&fresh, &own, None)), libc_errno::ENOTCONN);
}
