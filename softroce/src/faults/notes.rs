//! What rules do to a program, noted for the journal of its run.

use softroce_faults::{Event, Work};
use verbs_api::WcStatus;

use crate::journal::{self, Kind};

/// A work request completes with an error.
pub(super) fn completion(qpn: u32, work: Work, status: WcStatus, rule: &str) {
    journal::note_fault(Kind::Local, || told_completion(qpn, work, status, rule));
}

fn told_completion(qpn: u32, work: Work, status: WcStatus, rule: &str) -> String {
    let what = match work {
        Work::Send => "a send request",
        Work::Receive => "a receive request",
    };
    format!("{what} on queue pair {qpn:#x} completes with {status:?}, as fault rule {rule:?} says")
}

/// Something happens to the devices of the process.
pub(super) fn event(event: Event, rule: &str) {
    let kind = match event {
        Event::QpFatal | Event::DeviceFatal => Kind::Local,
        Event::PortDown | Event::GidsGone => Kind::Hint,
        // What was wrong is so no more.
        Event::PortUp | Event::GidsBack => return,
    };
    journal::note_fault(kind, || told_event(event, rule));
}

fn told_event(event: Event, rule: &str) -> String {
    let what = match event {
        Event::QpFatal => "queue pairs fail",
        Event::DeviceFatal => "the device fails",
        Event::PortDown => "port 1 goes down",
        Event::GidsGone => "the GIDs vanish",
        Event::PortUp => "port 1 comes up",
        Event::GidsBack => "the GIDs are back",
    };
    format!("{what} ({}), as fault rule {rule:?} says", event.name())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_rules_do_is_put_down_to_them() {
        assert_eq!(
            told_completion(0x11, Work::Send, WcStatus::LocProtErr, "odd"),
            "a send request on queue pair 0x11 completes with LocProtErr, as fault rule \"odd\" says"
        );
        assert_eq!(
            told_event(Event::PortDown, "cable"),
            "port 1 goes down (port-down), as fault rule \"cable\" says"
        );
        assert_eq!(
            told_event(Event::QpFatal, "event 1"),
            "queue pairs fail (qp-fatal), as fault rule \"event 1\" says"
        );
    }
}
