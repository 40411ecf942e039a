//! Makes the plan of a finding small: what can be left out without losing the finding is left out.

use super::{Finding, Plan};

/// A plan made small.
#[derive(Clone, Debug)]
pub struct Reduction {
    /// The small plan.
    pub plan: Plan,
    /// What it finds.
    pub finding: Finding,
    /// Runs that it took.
    pub runs: usize,
}

/// Reduces `plan`, which finds `finding`, in at most `most_runs` runs of `run`. What the small plan finds need not be
/// the same in all its numbers, but is of the same kind: its first words are.
pub fn reduce(
    plan: Plan,
    finding: Finding,
    most_runs: usize,
    run: &mut dyn FnMut(&Plan) -> Option<Finding>,
) -> Reduction {
    let mut best = Reduction {
        plan,
        finding,
        runs: 0,
    };
    loop {
        let mut has_shrunk = false;
        for candidate in candidates(&best.plan) {
            if best.runs == most_runs {
                return best;
            }
            best.runs += 1;
            if let Some(found) = run(&candidate).filter(|found| kind(found) == kind(&best.finding)) {
                best.plan = candidate;
                best.finding = found;
                has_shrunk = true;
                // What is smaller has candidates of its own.
                break;
            }
        }
        if !has_shrunk {
            return best;
        }
    }
}

/// The words of a finding, without its numbers.
fn kind(finding: &Finding) -> Vec<String> {
    let words = finding
        .what
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| word.len() > 2);
    words.take(8).map(str::to_owned).collect()
}

/// Takes a change to a plan, which becomes a candidate.
type Add<'a> = dyn FnMut(&dyn Fn(&mut Plan)) + 'a;

/// Plans that are a little, or much, smaller; the boldest first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let mut add = |change: &dyn Fn(&mut Plan)| {
        let mut smaller = plan.clone();
        change(&mut smaller);
        if smaller != *plan {
            all.push(smaller);
        }
    };
    // One conversation alone, then one less.
    for n in 0..plan.conversations.len() {
        add(&|plan| {
            plan.conversations = vec![plan.conversations[n].clone()];
            plan.streams.clear();
        });
    }
    for n in 0..plan.streams.len() {
        add(&|plan| {
            plan.streams = vec![plan.streams[n].clone()];
            plan.conversations.clear();
        });
    }
    add(&|plan| plan.outages.clear());
    add(&|plan| plan.inbox_bytes = None);
    add(&|plan| plan.weather.loss_per_mille = 0);
    add(&|plan| plan.weather.duplication_per_mille = 0);
    add(&|plan| plan.weather.reordering_per_mille = 0);
    add(&|plan| plan.weather.corruption_per_mille = 0);
    add(&|plan| plan.weather.jitter_ns = 0);
    add(&|plan| plan.weather.rate_bps = None);
    for n in 0..plan.conversations.len() {
        add(&|plan| {
            plan.conversations.remove(n);
        });
        shrink_conversation(plan, n, &mut add);
    }
    for n in 0..plan.streams.len() {
        add(&|plan| {
            plan.streams.remove(n);
        });
        let count = plan.streams[n].sizes.len();
        for keep in [count / 2, count.saturating_sub(1)] {
            add(&|plan| plan.streams[n].sizes.truncate(keep.max(1)));
        }
        add(&|plan| plan.streams[n].late_receives = 0);
    }
    for n in 0..plan.outages.len() {
        add(&|plan| {
            plan.outages.remove(n);
        });
    }
    all
}

fn shrink_conversation(plan: &Plan, n: usize, add: &mut Add<'_>) {
    let count = plan.conversations[n].messages.len();
    for keep in [count / 2, count * 3 / 4, count.saturating_sub(1)] {
        add(&|plan| {
            let messages = &mut plan.conversations[n].messages;
            messages.truncate(keep.max(1));
            // The last one speaks, so that the end is seen.
            if let Some(last) = messages.last_mut() {
                last.is_signaled = true;
            }
        });
    }
    // From the front, one by one, where few are left: more would take too many runs.
    for m in 0..count.min(12) {
        add(&|plan| {
            if plan.conversations[n].messages.len() > 1 && m + 1 < plan.conversations[n].messages.len() {
                plan.conversations[n].messages.remove(m);
            }
        });
    }
    add(&|plan| plan.conversations[n].late_receives = 0);
    add(&|plan| {
        for message in &mut plan.conversations[n].messages {
            message.is_fenced = false;
        }
    });
    add(&|plan| {
        for message in &mut plan.conversations[n].messages {
            message.size /= 2;
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Time;
    use crate::swarm::Kind;

    #[test]
    fn a_plan_shrinks_to_what_the_finding_needs() {
        // Found by any READ where packets are lost.
        let mut run = |plan: &Plan| {
            let reads = plan
                .conversations
                .iter()
                .any(|setup| setup.messages.iter().any(|message| message.kind == Kind::Read));
            (reads && plan.weather.loss_per_mille > 0).then(|| Finding {
                what: format!("byte {} is wrong", plan.devices),
                at: Time::ZERO,
            })
        };
        let (plan, finding) = (0..)
            .find_map(|seed| {
                let plan = Plan::draw(seed);
                run(&plan).map(|finding| (plan, finding))
            })
            .expect("some seed has READs and loss");
        let small = reduce(plan, finding, 1000, &mut run);
        let plan = &small.plan;
        assert_eq!(
            (plan.conversations.len(), plan.streams.len(), plan.outages.len()),
            (1, 0, 0)
        );
        assert_eq!(plan.conversations[0].messages.len(), 1);
        assert_eq!(plan.conversations[0].messages[0].kind, Kind::Read);
        assert_eq!(plan.weather.corruption_per_mille, 0);
        assert!(plan.weather.loss_per_mille > 0);
    }

    #[test]
    fn a_finding_of_another_kind_does_not_count() {
        let plan = Plan::draw(1);
        let first = Finding {
            what: "message 3 is done, but byte 7 is wrong".into(),
            at: Time::ZERO,
        };
        let other = Finding {
            what: "a panic: index out of bounds".into(),
            at: Time::ZERO,
        };
        let small = reduce(plan.clone(), first, 50, &mut |_| Some(other.clone()));
        assert_eq!(small.plan, plan);
    }
}
