use super::*;

const MS: u64 = 1_000_000;

fn slice(number: u8) -> Slice {
    Slice::new(number).unwrap()
}

fn table<const N: usize>(entries: [(Slice, u8); N]) -> Table {
    let mut table = Table::EMPTY;
    for (slice, position) in entries {
        table.set(slice, position);
    }
    table
}

fn actions(steward: &mut Steward) -> Vec<Action> {
    std::iter::from_fn(|| steward.poll_action()).collect()
}

fn echo_round(actions: &[Action]) -> u32 {
    match actions.last() {
        Some(Action::SendEcho { round }) => *round,
        other => panic!("an echo was expected, not {other:?}"),
    }
}

fn probe_round(actions: &[Action]) -> u32 {
    match actions.last() {
        Some(Action::SendProbes { round, .. }) => *round,
        other => panic!("probes were expected, not {other:?}"),
    }
}

/// Slice 10 with a settled table, alone or with slice 20 at position 0.
fn settled(with_other: bool) -> Steward {
    let mut steward = Steward::new(slice(10), 100);
    if with_other {
        steward.member_joined(0, slice(20));
    }
    steward.join(0);
    let round = probe_round(&actions(&mut steward));
    if with_other {
        steward.probe_answered(0, round, 1, slice(10));
        steward.probe_answered(0, round, 0, slice(20));
    } else {
        steward.probe_answered(0, round, 0, slice(10));
    }
    let next = actions(&mut steward);
    assert_eq!(next[0], Action::AttachTable);
    steward.echo_returned(0, echo_round(&next));
    assert!(steward.is_settled());
    steward
}

#[test]
fn the_first_member_attaches_a_table_and_then_needs_no_timer() {
    let steward = settled(false);
    assert_eq!(steward.table().position(slice(10)), Some(0));
    assert_eq!(steward.next_timeout_ns(), None);
}

#[test]
fn a_newcomer_learns_all_positions_and_checks_several_times_then_once_a_second() {
    let mut steward = settled(true);
    assert_eq!(steward.table().position(slice(10)), Some(1));
    assert_eq!(steward.table().position(slice(20)), Some(0));
    let mut now = 0;
    let mut delays = Vec::new();
    for _ in 0..6 {
        let next = steward.next_timeout_ns().unwrap();
        delays.push((next - now) / MS);
        now = next;
        steward.timeout(now, now);
        let echo = echo_round(&actions(&mut steward));
        steward.echo_returned(now, echo);
    }
    assert_eq!(delays, [1, 5, 20, 100, 1000, 1000]);
}

#[test]
fn after_a_leave_a_member_whose_echo_returns_repairs_nothing() {
    let mut steward = settled(true);
    steward.table_announced(0, &table([(slice(20), 2), (slice(10), 1)]));
    let echo = echo_round(&actions(&mut steward));
    steward.echo_returned(0, echo);
    steward.member_left(MS, slice(20));
    let next = actions(&mut steward);
    assert_eq!(next.len(), 1);
    steward.echo_returned(MS, echo_round(&next));
    assert!(steward.is_settled());
    assert_eq!(steward.table().position(slice(20)), None);
}

#[test]
fn after_a_leave_the_member_that_was_moved_attaches_a_new_table() {
    let mut steward = settled(true);
    steward.member_joined(0, slice(30));
    steward.member_left(MS, slice(20));
    // It was in the last position, so it knows that it was moved.
    let round = probe_round(&actions(&mut steward));
    steward.probe_answered(MS, round, 0, slice(10));
    assert_eq!(
        steward.poll_action(),
        None,
        "the place of the newcomer is not known yet"
    );
    steward.probe_answered(MS, round, 1, slice(30));
    let next = actions(&mut steward);
    assert_eq!(next[0], Action::AttachTable);
    assert_eq!(steward.table().position(slice(10)), Some(0));
    assert_eq!(steward.table().position(slice(30)), Some(1));
    steward.echo_returned(MS, echo_round(&next));
    assert!(steward.is_settled());
}

#[test]
fn an_echo_that_a_stopped_member_swallows_leads_to_a_repair_in_time() {
    let mut steward = settled(true);
    steward.timeout(MS, MS);
    actions(&mut steward);
    assert_eq!(steward.next_timeout_ns(), Some(3 * MS));
    steward.timeout(3 * MS, 3 * MS);
    let round = probe_round(&actions(&mut steward));
    // The stopped one (slice 20) does not answer, and is not waited for: its last known place stays.
    steward.probe_answered(3 * MS, round, 1, slice(10));
    assert!(matches!(actions(&mut steward)[..], [Action::SendEcho { .. }]));
    assert_eq!(steward.table().position(slice(10)), Some(1));
    assert_eq!(steward.table().position(slice(20)), Some(0));
}

#[test]
fn when_no_rule_is_attached_one_is_and_the_probes_are_repeated() {
    let mut steward = Steward::new(slice(10), 0);
    steward.member_joined(0, slice(20));
    steward.join(0);
    let round = probe_round(&actions(&mut steward));
    for position in 0..3 {
        steward.probe_answered(0, round, position, slice(20));
    }
    assert_eq!(steward.poll_action(), None);
    steward.timeout(5 * MS, 5 * MS);
    let next = actions(&mut steward);
    assert_eq!(next[0], Action::AttachTable);
    let second = probe_round(&next);
    assert_ne!(second, round);
    steward.probe_answered(5 * MS, second, 0, slice(20));
    steward.probe_answered(5 * MS, second, 1, slice(10));
    assert_eq!(steward.table().position(slice(10)), Some(1));
}

#[test]
fn the_lowest_of_the_positions_that_one_member_answers_is_its_own() {
    let mut steward = Steward::new(slice(10), 0);
    steward.member_joined(0, slice(20));
    steward.join(0);
    let round = probe_round(&actions(&mut steward));
    steward.probe_answered(0, round, 1, slice(10));
    steward.probe_answered(0, round, 2, slice(10));
    steward.probe_answered(0, round, 0, slice(20));
    assert_eq!(steward.table().position(slice(10)), Some(1));
}

#[test]
fn a_member_that_finds_itself_nowhere_asks_more_positions_next_time() {
    let mut steward = settled(true);
    let mut asked = Vec::new();
    let mut now = steward.next_timeout_ns().unwrap();
    while asked.len() < 3 {
        steward.timeout(now, now);
        asked.extend(
            actions(&mut steward)
                .into_iter()
                .filter_map(|action| match action {
                    Action::SendProbes { positions, .. } => Some(positions),
                    Action::SendEcho { .. } | Action::AttachTable => None,
                }),
        );
        // Somebody else answers, so a rule is attached; but nothing comes to the own socket.
        if let Phase::Probing { round, .. } = steward.phase {
            steward.probe_answered(now, round, 2, slice(20));
        }
        now = steward.next_timeout_ns().unwrap();
    }
    assert_eq!(asked, [3, 11, 19]);
}

#[test]
fn repairs_that_do_not_help_are_spaced_out() {
    let mut steward = settled(true);
    let mut now = steward.next_timeout_ns().unwrap();
    let mut repairs = Vec::new();
    while now < 3_000 * MS {
        steward.timeout(now, now);
        for action in actions(&mut steward) {
            match action {
                Action::SendProbes { round, .. } => {
                    steward.probe_answered(now, round, 1, slice(10));
                    steward.probe_answered(now, round, 0, slice(20));
                    repairs.push(now);
                }
                Action::SendEcho { .. } | Action::AttachTable => {}
            }
        }
        now = steward.next_timeout_ns().unwrap();
    }
    assert!((5..20).contains(&repairs.len()), "{} repairs", repairs.len());
    let first = repairs[1] - repairs[0];
    let last = repairs[repairs.len() - 1] - repairs[repairs.len() - 2];
    assert!(last > 10 * first);
}

#[test]
fn stray_packets_ask_for_a_check_but_not_more_than_one_a_millisecond() {
    let mut steward = settled(true);
    steward.packets_went_astray(MS / 2);
    assert_eq!(actions(&mut steward), []);
    steward.packets_went_astray(MS);
    let echo = echo_round(&actions(&mut steward));
    steward.packets_went_astray(MS);
    assert_eq!(actions(&mut steward), []);
    steward.echo_returned(MS, echo);
    steward.packets_went_astray(MS + 1);
    assert_eq!(actions(&mut steward), []);
}

#[test]
fn another_members_table_is_believed_and_checked() {
    let mut steward = settled(true);
    steward.table_announced(MS, &table([(slice(20), 0), (slice(30), 2)]));
    assert_eq!(steward.table().position(slice(30)), Some(2));
    assert_eq!(steward.table().position(slice(10)), None);
    let echo = echo_round(&actions(&mut steward));
    steward.echo_missed(MS, echo);
    assert!(matches!(actions(&mut steward)[..], [Action::SendProbes { .. }]));
}

#[test]
fn answers_and_echoes_of_other_rounds_mean_nothing() {
    let mut steward = settled(true);
    steward.echo_missed(0, 1);
    steward.probe_answered(0, 1, 0, slice(10));
    steward.timeout(MS, MS);
    let echo = echo_round(&actions(&mut steward));
    steward.echo_missed(MS, echo.wrapping_sub(1));
    steward.echo_returned(MS, echo.wrapping_add(1));
    assert_eq!(actions(&mut steward), []);
    assert!(!steward.is_settled());
}

#[test]
fn a_newcomer_that_nobody_has_answered_yet_asks_again_and_leaves_the_table_of_the_others_alone() {
    let mut steward = Steward::new(slice(10), 0);
    steward.member_joined(0, slice(20));
    steward.join(0);
    let first = probe_round(&actions(&mut steward));
    // Its own thread and all others want for a processor.
    for asked in 1..TIMES_ASKED_MAX {
        let now = u64::from(asked) * 5 * MS;
        assert_eq!(steward.next_timeout_ns(), Some(now));
        steward.timeout(now, now);
        let next = actions(&mut steward);
        assert!(matches!(next[..], [Action::SendProbes { round, .. }] if round == first));
    }
    // Answers to any of them count.
    steward.probe_answered(16 * MS, first, 0, slice(20));
    steward.probe_answered(16 * MS, first, 1, slice(10));
    assert_eq!(actions(&mut steward)[0], Action::AttachTable);
    assert_eq!(steward.table().position(slice(20)), Some(0));
    assert_eq!(steward.table().position(slice(10)), Some(1));
}

#[test]
fn a_table_is_attached_without_a_member_only_when_that_has_not_answered_several_times() {
    let mut steward = Steward::new(slice(10), 0);
    steward.member_joined(0, slice(20));
    steward.member_joined(0, slice(30));
    steward.join(0);
    let round = probe_round(&actions(&mut steward));
    steward.probe_answered(0, round, 2, slice(10));
    steward.probe_answered(0, round, 0, slice(20));
    let mut now = 0;
    for _ in 1..TIMES_ASKED_MAX {
        now += 5 * MS;
        steward.timeout(now, now);
        assert_eq!(probe_round(&actions(&mut steward)), round);
    }
    steward.timeout(now + 5 * MS, now + 5 * MS);
    assert_eq!(actions(&mut steward)[0], Action::AttachTable);
    assert_eq!(steward.table().position(slice(30)), None);
}

#[test]
fn what_is_known_of_a_member_outlives_a_table_without_it() {
    let mut steward = settled(true);
    steward.member_joined(0, slice(30));
    steward.table_announced(MS, &table([(slice(20), 0), (slice(10), 1), (slice(30), 2)]));
    // A newcomer tells what it knows, which is nothing yet; then somebody takes a place.
    steward.table_announced(MS, &Table::EMPTY);
    assert_eq!(steward.table().position(slice(30)), Some(2));
    steward.table_announced(MS, &table([(slice(40), 2)]));
    assert_eq!(steward.table().position(slice(20)), Some(0));
    assert_eq!(steward.table().position(slice(30)), None);
    assert_eq!(steward.table().position(slice(40)), Some(2));
}

#[test]
fn who_had_no_processor_waits_for_what_lies_in_its_socket() {
    let mut steward = settled(true);
    steward.timeout(MS, MS);
    let echo = echo_round(&actions(&mut steward));
    // It runs again 10 ms later, and has not read yet.
    steward.timeout(11 * MS, MS);
    assert_eq!(actions(&mut steward), []);
    steward.echo_returned(11 * MS, echo);
    assert!(steward.is_settled());
}

#[test]
fn a_repair_that_changes_nothing_is_told_to_nobody() {
    let mut steward = settled(true);
    steward.timeout(MS, MS);
    actions(&mut steward);
    steward.timeout(3 * MS, 3 * MS);
    let round = probe_round(&actions(&mut steward));
    steward.probe_answered(3 * MS, round, 1, slice(10));
    let next = actions(&mut steward);
    assert!(matches!(next[..], [Action::SendEcho { .. }]), "{next:?}");
    // Should the echo be lost again, the table is attached all the same.
    let at = steward.next_timeout_ns().unwrap();
    steward.timeout(at, at);
    let at = steward.next_timeout_ns().unwrap();
    steward.timeout(at, at);
    actions(&mut steward);
    let at = steward.next_timeout_ns().unwrap();
    steward.timeout(at, at);
    let round = probe_round(&actions(&mut steward));
    steward.probe_answered(at, round, 1, slice(10));
    assert_eq!(actions(&mut steward)[0], Action::AttachTable);
}

/// Let the probes that a steward has just sent be answered by 10 and 20, which sit at 1 and 0.
fn answer_probes(steward: &mut Steward, now_ns: u64) -> Vec<Action> {
    let round = probe_round(&actions(steward));
    steward.probe_answered(now_ns, round, 1, slice(10));
    steward.probe_answered(now_ns, round, 0, slice(20));
    actions(steward)
}

#[test]
fn members_that_give_no_sign_of_life_are_marked_until_they_are_heard_of() {
    let mut steward = settled(true);
    steward.are_asleep(MS, SliceSet::EMPTY);
    assert_eq!(actions(&mut steward), [], "as it was");
    let asleep: SliceSet = [slice(20)].into_iter().collect();
    steward.are_asleep(MS, asleep);
    let next = answer_probes(&mut steward, MS);
    assert_eq!(next[0], Action::AttachTable);
    assert_eq!(steward.table().asleep(), &asleep);
    steward.echo_returned(MS, echo_round(&next));
    steward.are_asleep(2 * MS, asleep);
    assert_eq!(actions(&mut steward), [], "as it was");
    steward.heard(3 * MS, slice(20));
    let next = answer_probes(&mut steward, 3 * MS);
    assert_eq!(next[0], Action::AttachTable);
    assert_eq!(steward.table().asleep(), &SliceSet::EMPTY);
    steward.echo_returned(MS, echo_round(&next));
    steward.heard(4 * MS, slice(20));
    assert_eq!(actions(&mut steward), []);
}

#[test]
fn who_sleeps_is_told_with_the_table_and_outlives_a_repair() {
    let mut steward = settled(true);
    let mut announced = table([(slice(20), 0), (slice(10), 1)]);
    announced.set_asleep([slice(20)].into_iter().collect());
    steward.table_announced(MS, &announced);
    let echo = echo_round(&actions(&mut steward));
    steward.echo_missed(MS, echo);
    let round = probe_round(&actions(&mut steward));
    steward.probe_answered(MS, round, 2, slice(10));
    assert_eq!(actions(&mut steward)[0], Action::AttachTable);
    assert_eq!(steward.table().asleep(), announced.asleep());
}
