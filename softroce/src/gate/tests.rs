//! The gate under real threads, and (`RUSTFLAGS="--cfg loom" cargo test -p softroce --release gate`) under all
//! interleavings of a few.

#[cfg(not(loom))]
mod threads {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;
    use std::time::{Duration, Instant};

    use crate::gate::{Gate, Left};

    #[test]
    fn one_thread_at_a_time_is_inside() {
        let gate = Arc::new(Gate::new((0u64, 0u64)));
        let threads: Vec<_> = (0..4)
            .map(|i| {
                let gate = gate.clone();
                thread::spawn(move || {
                    for _ in 0..20_000 {
                        let mut guard = if i % 2 == 0 {
                            gate.enter()
                        } else {
                            match gate.try_enter() {
                                Some(guard) => guard,
                                None => continue,
                            }
                        };
                        guard.0 += 1;
                        guard.1 += 1;
                        assert_eq!(guard.0, guard.1);
                        let _ = guard.leave();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|t| t.join().unwrap());
        assert!(gate.enter().0 >= 40_000);
    }

    #[test]
    fn a_refused_poller_leaves_a_mark_that_a_round_clears() {
        let gate = Gate::new(());
        let mut guard = gate.enter();
        assert!(gate.try_enter().is_none());
        guard.clear_again();
        assert_eq!(guard.leave(), Left::Quiet);

        let guard = gate.enter();
        assert!(gate.try_enter().is_none());
        assert_eq!(guard.leave(), Left::Again);
        // The mark stays for whoever comes next and does no round either.
        assert_eq!(gate.enter().leave(), Left::Again);
        let mut guard = gate.try_enter().expect("the gate is free");
        guard.clear_again();
        assert_eq!(guard.leave(), Left::Quiet);
    }

    #[test]
    fn pollers_that_spin_do_not_starve_a_verb() {
        let gate = Arc::new(Gate::new(()));
        let stop = Arc::new(AtomicBool::new(false));
        let pollers: Vec<_> = (0..2)
            .map(|_| {
                let (gate, stop) = (gate.clone(), stop.clone());
                thread::spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if let Some(guard) = gate.try_enter() {
                            let start = Instant::now();
                            while start.elapsed() < Duration::from_micros(2) {}
                            let _ = guard.leave();
                        } else {
                            thread::yield_now();
                        }
                    }
                })
            })
            .collect();
        let start = Instant::now();
        for _ in 0..2_000 {
            let _ = gate.enter().leave();
        }
        // Each turn waits for at most one poller's, save for preemption; a starved one would take for ever.
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
        stop.store(true, Ordering::Relaxed);
        pollers.into_iter().for_each(|t| t.join().unwrap());
    }

    #[test]
    fn a_bounded_entry_gives_up_while_another_stays_inside() {
        let gate = Gate::new(());
        let guard = gate.enter();
        assert!(gate.enter_within(Duration::from_millis(1)).is_none());
        let _ = guard.leave();
        assert!(gate.enter_within(Duration::from_millis(1)).is_some());
    }

    #[test]
    fn a_panic_inside_leaves_the_gate_free() {
        let gate = Gate::new(());
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = gate.enter();
            panic!("on purpose");
        }));
        assert!(outcome.is_err());
        assert!(gate.try_enter().is_some());
    }

    #[test]
    fn a_gate_reset_after_a_fork_is_free() {
        let gate = Gate::new(());
        std::mem::forget(gate.enter());
        assert!(gate.try_enter().is_none());
        // SAFETY: no other thread has the gate, and the guard is forgotten.
        unsafe { gate.reset(()) };
        assert!(gate.try_enter().is_some());
    }
}

#[cfg(loom)]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicUsize, Ordering};
    use loom::thread;

    use crate::gate::{Gate, Left};

    /// All interleavings with up to three preemptions: errors of this kind need one or two.
    fn check(body: impl Fn() + Send + Sync + 'static) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(3);
        model.check(body);
    }

    /// What a poller does in the device: a round takes what has arrived, and a few more follow for refused pollers.
    fn poll(gate: &Gate<usize>, arrived: &AtomicUsize) {
        for _ in 0..2 {
            let Some(mut guard) = gate.try_enter() else { return };
            guard.clear_again();
            *guard += arrived.swap(0, Ordering::AcqRel);
            if guard.leave() == Left::Quiet {
                return;
            }
        }
    }

    /// What a verb does: its own work, and a round if a poller was refused.
    fn verb(gate: &Gate<usize>, arrived: &AtomicUsize) {
        let guard = gate.enter();
        if guard.leave() == Left::Again {
            poll(gate, arrived);
        }
    }

    #[test]
    fn two_pollers_and_what_arrived_is_never_left_lying() {
        check(|| {
            let gate = Arc::new(Gate::new(0));
            let arrived = Arc::new(AtomicUsize::new(0));
            let (gate2, arrived2) = (gate.clone(), arrived.clone());
            let other = thread::spawn(move || {
                arrived2.fetch_add(1, Ordering::AcqRel);
                poll(&gate2, &arrived2);
            });
            arrived.fetch_add(1, Ordering::AcqRel);
            poll(&gate, &arrived);
            other.join().unwrap();
            assert_eq!(arrived.load(Ordering::Acquire), 0);
            assert_eq!(*gate.enter(), 2);
        });
    }

    #[test]
    fn a_verb_inside_answers_for_the_poller_that_it_kept_out() {
        check(|| {
            let gate = Arc::new(Gate::new(0));
            let arrived = Arc::new(AtomicUsize::new(0));
            let (gate2, arrived2) = (gate.clone(), arrived.clone());
            let other = thread::spawn(move || verb(&gate2, &arrived2));
            arrived.fetch_add(1, Ordering::AcqRel);
            poll(&gate, &arrived);
            other.join().unwrap();
            assert_eq!(arrived.load(Ordering::Acquire), 0);
        });
    }

    #[test]
    fn verbs_exclude_each_other_and_all_come_in() {
        check(|| {
            let gate = Arc::new(Gate::new(0));
            let gate2 = gate.clone();
            let other = thread::spawn(move || {
                let mut guard = gate2.enter();
                *guard += 1;
                let _ = guard.leave();
            });
            let mut guard = gate.enter();
            *guard += 1;
            let _ = guard.leave();
            other.join().unwrap();
            assert_eq!(*gate.enter(), 2);
        });
    }
}
