//! The interop matrix between two processes of softroce: the same program that faces the kernel's rxe in the VM, so that
//! its own logic is tested where there is no VM.

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use e2e::case::ensure;
use e2e::listening::wait_for_listener;
use e2e::{Bed, Case, Outcome, Running, Stop};

use crate::groups::wait_for_ipv6_groups;
use crate::peers::{number, program, report_of};
use crate::pingpong::free_port;

/// Cases of the plan.
const CASES: u64 = 71;

/// All cases of this file.
pub fn cases() -> Vec<Case> {
    vec![
        Case::new("the interop matrix passes over IPv4 with path MTU 1024", || {
            matrix(&Bed::loopback()?, Ipv4Addr::LOCALHOST.into(), "1024", None)
        }),
        Case::new("the interop matrix passes over IPv6 with path MTU 4096", || {
            e2e::bed::needs_address(Ipv6Addr::LOCALHOST.into())?;
            // IPv6 groups need an interface that is not the loopback one.
            let bed = Bed::wire(4200)?;
            [&bed.here, bed.there()]
                .into_iter()
                .try_for_each(wait_for_ipv6_groups)?;
            matrix(&bed, Bed::WIRE_HERE_V6.into(), "4096", Some("SEND"))
        }),
    ]
}

fn matrix(bed: &Bed, address: IpAddr, mtu: &str, only: Option<&str>) -> Outcome {
    let meeting = SocketAddr::new(address, free_port());
    let mut options = vec!["--mtu", mtu, "--timeout", "14"];
    options.extend(only.iter().flat_map(|part| ["--only", part]));
    let listener = end(bed, "--listen", meeting, &options)?;
    wait_for_listener(&listener, meeting.port())?;
    let caller = end(bed, "--call", meeting, &[])?;
    for report in [report_of(caller)?, report_of(listener)?] {
        let (all, passed) = (number(&report, "cases")?, number(&report, "passed")?);
        let is_whole = only.is_some() || all == CASES;
        ensure(is_whole && passed == all, || {
            format!("not every case passed: {report}")
        })?;
    }
    Ok(())
}

fn end(bed: &Bed, how: &str, meeting: SocketAddr, options: &[&str]) -> Result<Running, Stop> {
    let place = if how == "--listen" { &bed.here } else { bed.there() };
    let words: [OsString; 4] = [
        program()?.into(),
        "matrix".into(),
        how.into(),
        meeting.to_string().into(),
    ];
    bed.program(place, words).args(options).start()
}
