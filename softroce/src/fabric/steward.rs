//! Keeps the steering table of the address right, as far as this member can.
//!
//! Sans-I/O: it is told what happened and says what to do ([`Action`]). A member is only responsible for its own entry:
//! it sends an *echo*, a packet that is steered as its data is, and sees whether that comes back. If not, it sends a
//! *probe* to every position; who gets one answers; the member attaches a table of what it learnt and tells the
//! others, each of which then checks its own entry. So two members that attach at once repair each other, and a
//! stopped member that swallows another's packets is found out by the echo that does not return.
//!
//! Packets for a slice that the table leaves out all go to one socket, which the kernel chooses. If its owner is stopped
//! they lie there. So nobody attaches a table that leaves a member out before having asked several times, and what is
//! remembered of a member outlives tables without it. When a member leaves, the one in the last position takes its
//! place and is not in the table with that, so it does not wait for an echo to fail.

use super::slice::{SLICE_COUNT, Slice, SliceSet};
use super::steering::Table;
use answers::{Answers, Others, Rule};
use phase::{Attempt, Phase, Purpose};
use times::{
    ANSWER_PATIENCE_NS, BACKOFF_NS_MAX, BACKOFF_NS_MIN, CHECK_DELAYS_NS, ECHO_PATIENCE_NS, HEARTBEAT_NS,
    PROBES_EXTRA, PROBES_EXTRA_A_FAILURE, STRAY_PAUSE_NS, TIMES_ASKED_MAX,
};

mod answers;
mod phase;
mod times;

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send an echo with this number.
    SendEcho { round: u32 },
    /// Send a probe with this number to each of the first positions.
    SendProbes { round: u32, positions: u8 },
    /// Attach [`Steward::table`] and send it to all members.
    AttachTable,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Steward {
    own: Slice,
    members: [bool; SLICE_COUNT],
    table: Table,
    /// The last one that is known to have been attached.
    attached: Table,
    phase: Phase,
    /// To the round of probes.
    answers: Answers,
    /// How often that round was sent.
    times_asked: u8,
    round: u32,
    next_check_ns: Option<u64>,
    checks_since_change: usize,
    last_success_ns: u64,
    repairs_failed: u32,
    actions: [Option<Action>; 2],
}

impl Steward {
    /// `first_round` should differ between members and lives, so that late answers to others mean nothing.
    pub(super) fn new(own: Slice, first_round: u32) -> Self {
        Steward {
            own,
            members: [false; SLICE_COUNT],
            table: Table::EMPTY,
            attached: Table::EMPTY,
            phase: Phase::Resting,
            answers: Answers::NONE,
            times_asked: 0,
            round: first_round,
            next_check_ns: None,
            checks_since_change: 0,
            last_success_ns: 0,
            repairs_failed: 0,
            actions: [None; 2],
        }
    }

    /// The table as this member knows it.
    pub(super) fn table(&self) -> &Table {
        &self.table
    }

    /// Whether the own entry was found right, and nothing has happened since.
    pub(super) fn is_settled(&self) -> bool {
        self.phase == Phase::Resting && self.repairs_failed == 0 && self.checks_since_change > 0
    }

    /// What to do next; the caller asks until there is nothing.
    pub(super) fn poll_action(&mut self) -> Option<Action> {
        self.actions.iter_mut().find_map(Option::take)
    }

    /// Whether something may be on its way to the own socket.
    pub(super) fn is_waiting(&self) -> bool {
        self.phase != Phase::Resting
    }

    /// When [`timeout`](Steward::timeout) wants to be called.
    pub(super) fn next_timeout_ns(&self) -> Option<u64> {
        match self.phase {
            Phase::Resting => self.next_check_ns,
            Phase::Checking { give_up_at_ns, .. } | Phase::Probing { give_up_at_ns, .. } => {
                Some(give_up_at_ns)
            }
        }
    }

    /// Begin: the own socket has just joined the group, and the members known so far have been noted.
    pub(super) fn join(&mut self, now_ns: u64) {
        self.checks_since_change = 0;
        self.start_probing(now_ns, Attempt::First);
    }

    /// There is another member (who puts itself into the table).
    pub(super) fn member_joined(&mut self, now_ns: u64, slice: Slice) {
        self.members[slice.index()] = true;
        if self.next_check_ns.is_none() {
            self.next_check_ns = Some(now_ns + HEARTBEAT_NS);
        }
    }

    /// A member has gone, so that another now has its position.
    pub(super) fn member_left(&mut self, now_ns: u64, slice: Slice) {
        let own_position = self.table.position(self.own);
        let is_moved = own_position.is_some()
            && own_position == self.table.last()
            && self.table.position(slice) < own_position;
        self.members[slice.index()] = false;
        self.table.forget(slice);
        self.checks_since_change = 0;
        if is_moved {
            self.start_probing(now_ns, Attempt::First);
        } else {
            self.check_soon(now_ns);
        }
    }

    /// Another member has attached this table, or tells a newcomer of it.
    pub(super) fn table_announced(&mut self, now_ns: u64, announced: &Table) {
        self.table = self.remembered();
        self.table.set_asleep(*announced.asleep());
        for (slice, position) in announced.entries() {
            self.table.set(slice, position);
        }
        self.attached = *announced;
        self.check_soon(now_ns);
    }

    /// These members were asked for a sign of life, and gave none. Nothing happens while something is under way, and
    /// nothing is lost by that: they will be asked again.
    pub(super) fn are_asleep(&mut self, now_ns: u64, asleep: SliceSet) {
        if self.phase == Phase::Resting && self.attached.asleep() != &asleep {
            self.table.set_asleep(asleep);
            self.start_probing(now_ns, Attempt::First);
        }
    }

    /// A member says something.
    pub(super) fn heard(&mut self, now_ns: u64, slice: Slice) {
        if self.attached.asleep().contains(slice) {
            let mut asleep = *self.attached.asleep();
            asleep.remove(slice);
            self.are_asleep(now_ns, asleep);
        }
    }

    /// Another member got packets of ours.
    pub(super) fn packets_went_astray(&mut self, now_ns: u64) {
        if self.phase == Phase::Resting
            && self.repairs_failed == 0
            && now_ns.saturating_sub(self.last_success_ns) >= STRAY_PAUSE_NS
        {
            self.check_soon(now_ns);
        }
    }

    /// The own echo came back.
    pub(super) fn echo_returned(&mut self, now_ns: u64, round: u32) {
        if !matches!(self.phase, Phase::Checking { round: awaited, .. } if awaited == round) {
            return;
        }
        self.repairs_failed = 0;
        self.last_success_ns = now_ns;
        self.checks_since_change += 1;
        let delay_ns = CHECK_DELAYS_NS
            .get(self.checks_since_change)
            .copied()
            .unwrap_or(HEARTBEAT_NS);
        self.next_check_ns = (!self.is_alone()).then_some(now_ns + delay_ns);
        self.phase = Phase::Resting;
    }

    /// The own echo came to another member.
    pub(super) fn echo_missed(&mut self, now_ns: u64, round: u32) {
        if matches!(self.phase, Phase::Checking { round: awaited, .. } if awaited == round) {
            self.check_failed(now_ns);
        }
    }

    /// The probe for `position` reached `slice` (which may be ourselves).
    pub(super) fn probe_answered(&mut self, now_ns: u64, round: u32, position: u8, slice: Slice) {
        match self.phase {
            Phase::Probing {
                round: awaited,
                positions,
                ..
            } if awaited == round && position < positions => {
                self.answers.note(position, slice);
                if self.knows_enough() {
                    self.finish_probing(now_ns);
                }
            }
            Phase::Resting | Phase::Checking { .. } | Phase::Probing { .. } => {}
        }
    }

    /// The time that [`next_timeout_ns`](Steward::next_timeout_ns) named has come. What had reached the own socket by
    /// `read_until_ns` has been told: who had no processor for a while must not take an echo for lost that lies there.
    pub(super) fn timeout(&mut self, now_ns: u64, read_until_ns: u64) {
        match self.phase {
            Phase::Resting => {
                if self.next_check_ns.is_some_and(|at_ns| at_ns <= now_ns) {
                    self.start_check(now_ns, Purpose::Routine);
                }
            }
            Phase::Checking { give_up_at_ns, .. } => {
                if give_up_at_ns <= read_until_ns {
                    self.check_failed(now_ns);
                }
            }
            Phase::Probing { give_up_at_ns, .. } => {
                if give_up_at_ns <= read_until_ns {
                    self.finish_probing(now_ns);
                }
            }
        }
    }

    fn is_alone(&self) -> bool {
        !self.members.contains(&true)
    }

    fn push(&mut self, action: Action) {
        // At most two are pending: a table and the echo that tests it. A newer echo or probe replaces an older one.
        let place = usize::from(action != Action::AttachTable);
        self.actions[place] = Some(action);
    }

    fn check_soon(&mut self, now_ns: u64) {
        match self.phase {
            Phase::Resting => self.start_check(now_ns, Purpose::Routine),
            // What is under way ends with a check, but that may have begun before the change.
            Phase::Checking { .. } | Phase::Probing { .. } => self.checks_since_change = 0,
        }
    }

    fn start_check(&mut self, now_ns: u64, purpose: Purpose) {
        self.round = self.round.wrapping_add(1);
        self.phase = Phase::Checking {
            round: self.round,
            give_up_at_ns: now_ns + ECHO_PATIENCE_NS,
            purpose,
        };
        self.push(Action::SendEcho { round: self.round });
    }

    fn check_failed(&mut self, now_ns: u64) {
        match self.phase {
            Phase::Checking {
                purpose: Purpose::AfterRepair,
                ..
            } => self.rest_before_repair(now_ns),
            Phase::Checking {
                purpose: Purpose::Routine,
                ..
            }
            | Phase::Resting
            | Phase::Probing { .. } => {
                self.start_probing(now_ns, Attempt::First);
            }
        }
    }

    /// The repair did not help. The next check comes after a pause, and starts another repair if it fails too.
    fn rest_before_repair(&mut self, now_ns: u64) {
        let backoff_ns = (BACKOFF_NS_MIN << self.repairs_failed.min(16)).min(BACKOFF_NS_MAX);
        // Members that repair against each other must not do so in step.
        let jitter_ns = backoff_ns / 256 * u64::from(self.own.number()) / 2;
        self.repairs_failed += 1;
        self.phase = Phase::Resting;
        self.next_check_ns = Some(now_ns + backoff_ns + jitter_ns);
    }

    fn start_probing(&mut self, now_ns: u64, attempt: Attempt) {
        let others = self.members.iter().filter(|member| **member).count();
        let extra = PROBES_EXTRA + PROBES_EXTRA_A_FAILURE * self.repairs_failed as usize;
        let positions = (others + 1).saturating_add(extra).min(usize::from(u8::MAX)) as u8;
        self.round = self.round.wrapping_add(1);
        self.answers = Answers::NONE;
        self.times_asked = 0;
        self.ask(now_ns, positions, attempt);
    }

    fn ask(&mut self, now_ns: u64, positions: u8, attempt: Attempt) {
        self.times_asked += 1;
        self.phase = Phase::Probing {
            round: self.round,
            give_up_at_ns: now_ns + ANSWER_PATIENCE_NS,
            positions,
            attempt,
        };
        self.push(Action::SendProbes {
            round: self.round,
            positions,
        });
    }

    fn finish_probing(&mut self, now_ns: u64) {
        let Phase::Probing {
            attempt, positions, ..
        } = self.phase
        else {
            return;
        };
        let others = if self.is_alone() {
            Others::None
        } else {
            Others::Some
        };
        let rule = self.answers.rule(positions, others);
        let may_be_slow = match rule {
            Rule::Missing => false,
            Rule::Unknown => true,
            Rule::Attached => self.answers.of(self.own).is_some() && !self.knows_enough(),
        };
        if may_be_slow && self.times_asked < TIMES_ASKED_MAX {
            self.ask(now_ns, positions, attempt);
            return;
        }
        if attempt == Attempt::First && rule != Rule::Attached {
            // Attached without an own entry yet: what counts is the rule that lets probes find their position.
            self.attach();
            self.start_probing(now_ns, Attempt::WithRule);
            return;
        }
        let Some(own_position) = self.answers.of(self.own) else {
            self.rest_before_repair(now_ns);
            return;
        };
        self.rebuild_table(own_position);
        // What is attached already needs no telling, unless that did not help before.
        if self.table != self.attached || self.repairs_failed > 0 {
            self.attach();
        }
        self.start_check(now_ns, Purpose::AfterRepair);
    }

    fn attach(&mut self) {
        self.attached = self.table;
        self.push(Action::AttachTable);
    }

    /// The own position is known, and a position for everybody else: what is remembered will do, since each member
    /// checks its own entry when it hears of the new table. So a stopped member keeps nobody waiting.
    fn knows_enough(&self) -> bool {
        let known = |slice: Slice| self.answers.of(slice).is_some() || self.table.position(slice).is_some();
        self.answers.of(self.own).is_some()
            && (1..=u8::MAX)
                .filter_map(Slice::new)
                .all(|slice| !self.members[slice.index()] || known(slice))
    }

    /// The places of other members, as last known.
    fn remembered(&self) -> Table {
        let mut remembered = Table::EMPTY;
        remembered.set_asleep(*self.table.asleep());
        for slice in (1..=u8::MAX).filter_map(Slice::new) {
            if let (true, Some(position)) = (self.members[slice.index()], self.table.position(slice)) {
                remembered.set(slice, position);
            }
        }
        remembered
    }

    /// Those who answered sit where they said; a member that did not (stopped, or slow) keeps its last known place
    /// unless another has taken it.
    fn rebuild_table(&mut self, own_position: u8) {
        self.table = self.remembered();
        for slice in (1..=u8::MAX).filter_map(Slice::new) {
            if let Some(position) = self.answers.of(slice) {
                self.table.set(slice, position);
            }
        }
        self.table.set(self.own, own_position);
    }
}

#[cfg(test)]
mod tests;
