//! Multicast groups between processes: on one machine, and across a wire.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use e2e::bed::Place;
use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Case, Outcome, Running, Stop};

use crate::peers::{number, program, report_of};
use crate::pingpong::free_port;

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "three processes in a group get each of 1,000 messages once, and who leaves gets none",
            || {
                let bed = Bed::loopback()?;
                conversation(&bed, IpAddr::from([127, 0, 0, 1]), "239.7.7.7")
            },
        ),
        Case::new(
            "a group reaches across a wire between two network namespaces",
            || conversation(&Bed::wire(1500)?, Bed::WIRE_HERE.into(), "239.7.7.7"),
        ),
        Case::new(
            "an IPv6 group reaches across a wire between two network namespaces",
            || {
                let bed = Bed::wire(1500)?;
                e2e::bed::needs_address(Bed::WIRE_HERE_V6.into())?;
                [&bed.here, bed.there()]
                    .into_iter()
                    .try_for_each(wait_for_ipv6_groups)?;
                conversation(&bed, Bed::WIRE_HERE_V6.into(), "ff05::7:7")
            },
        ),
    ]
}

/// Waits until the kernel takes IPv6 multicast in: a new link has no route for it yet, and datagrams are not repeated.
pub fn wait_for_ipv6_groups(place: &Place) -> Outcome {
    /// The route of all groups, to any interface but the loopback.
    const ROUTE: &str = "ff000000000000000000000000000000 08 ";
    let deadline = Instant::now() + Duration::from_secs(20);
    let is_there = || {
        let routes = std::fs::read_to_string("/proc/thread-self/net/ipv6_route").unwrap_or_default();
        routes
            .lines()
            .any(|line| line.starts_with(ROUTE) && !line.ends_with(" lo"))
    };
    while !place.inside(is_there)? {
        ensure(Instant::now() < deadline, || {
            "the wire never takes IPv6 groups".into()
        })?;
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A sender with two members more: one beside it, and one at the other end of the wire, if there is one.
fn conversation(bed: &Bed, address: IpAddr, group: &str) -> Outcome {
    let meeting = SocketAddr::new(address, free_port());
    let sender = member(bed, &bed.here, "--listen", meeting, &["--group", group])?;
    wait_for_listener(&sender, meeting.port())?;
    let beside = member(bed, &bed.here, "--call", meeting, &[])?;
    let beyond = member(bed, bed.there(), "--call", meeting, &[])?;
    // Whoever called last is the one that leaves.
    let sender = report_of(sender)?;
    let (beside, beyond) = (report_of(beside)?, report_of(beyond)?);
    let received = |report| number(report, "received");
    let mut followers = [received(&beside)?, received(&beyond)?];
    followers.sort_unstable();
    ensure(received(&sender)? == 1_100 && followers == [1_000, 1_100], || {
        format!("received by the sender {sender}, by the others {beside} and {beyond}")
    })
}

fn member(
    bed: &Bed,
    place: &Place,
    how: &str,
    address: SocketAddr,
    options: &[&str],
) -> Result<Running, Stop> {
    let words: [OsString; 4] = [
        program()?.into(),
        "group".into(),
        how.into(),
        address.to_string().into(),
    ];
    bed.program(place, words).args(options).start()
}
