//! Whether other programs worked during a measurement: what they take, the figures lack.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use nix::unistd::{SysconfVar, sysconf};

/// Of all processors, what others may use before a measurement counts as disturbed.
pub const DISTURBED: f64 = 0.05;

/// Processor time so far, seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Times {
    /// Of all processors, idle or not.
    all: f64,
    /// Of these, at work.
    busy: f64,
    /// Of these, for this process and its children that have ended.
    own: f64,
}

impl Times {
    fn now() -> Option<Times> {
        let second = sysconf(SysconfVar::CLK_TCK).ok()??;
        let (all, busy) = ticks(&std::fs::read_to_string("/proc/stat").ok()?)?;
        let own = [UsageWho::RUSAGE_SELF, UsageWho::RUSAGE_CHILDREN].map(|who| {
            getrusage(who)
                .map(|usage| usage.user_time().num_microseconds() + usage.system_time().num_microseconds())
        });
        let [Ok(own), Ok(children)] = own else { return None };
        Some(Times {
            all: all as f64 / second as f64,
            busy: busy as f64 / second as f64,
            own: (own + children) as f64 / 1e6,
        })
    }

    /// The part of all processors that others have used since `before`.
    fn others_since(&self, before: &Times) -> f64 {
        let others = (self.busy - before.busy) - (self.own - before.own);
        (others / (self.all - before.all).max(0.01)).clamp(0.0, 1.0)
    }
}

/// Ticks of all processors together: all, and those at work.
fn ticks(stat: &str) -> Option<(u64, u64)> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = line
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .collect();
    // user, nice, system, idle, iowait, irq, softirq, steal; what follows is part of the first two.
    let fields: &[u64; 8] = fields.first_chunk()?;
    let [_, _, _, idle, waiting, ..] = fields;
    let all = fields.iter().sum::<u64>();
    Some((all, all - idle - waiting))
}

/// Do something, and tell which part of the machine's processors others used meanwhile; 0 where that cannot be told.
pub fn beside<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let before = Times::now();
    let done = work();
    let used = Times::now()
        .zip(before)
        .map(|(after, before)| after.others_since(&before));
    (done, used.unwrap_or(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_not_at_work_and_what_the_hypervisor_takes_is() {
        let stat = "cpu  10 1 20 300 40 5 6 7 9 0\ncpu0 5 1 10 150 20 2 3 3 4 0\n";
        assert_eq!(ticks(stat), Some((389, 49)));
        assert_eq!(ticks("intr 5"), None);
    }

    #[test]
    fn others_have_used_what_is_busy_and_not_own() {
        let before = Times::default();
        let after = Times {
            all: 4.0,
            busy: 3.0,
            own: 2.0,
        };
        assert_eq!(after.others_since(&before), 0.25);
        let own_alone = Times { own: 3.1, ..after };
        assert_eq!(own_alone.others_since(&before), 0.0, "clocks differ by a little");
    }

    #[test]
    fn a_moment_of_this_machine_can_be_told() {
        let ((), used) = beside(|| {});
        assert!((0.0..=1.0).contains(&used));
    }
}
