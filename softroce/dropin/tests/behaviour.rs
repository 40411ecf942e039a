//! How the shared object behaves towards a C program: `data/behaviour.c`, compiled against the installed headers.

#[path = "support/common.rs"]
mod common;

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The compiled program, or why there is none.
fn program() -> Result<&'static PathBuf, &'static String> {
    static PROGRAM: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let compile = || {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/behaviour.c");
        let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("behaviour");
        // Other test processes may be compiling and running it too: it comes into its place whole.
        let fresh = program.with_extension(std::process::id().to_string());
        let output = Command::new("cc")
            .args(["-Wall", "-Wextra", "-o"])
            .arg(&fresh)
            .args([source, "-libverbs", "-lpthread"])
            .output()
            .map_err(|error| format!("there is no C compiler: {error}"))?;
        let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() {
            true => {
                std::fs::rename(&fresh, &program).expect("the compiled program is ours");
                Ok(program)
            }
            false
                if complaints.contains("infiniband/verbs.h: No such file")
                    || complaints.contains("cannot find -libverbs") =>
            {
                Err("libibverbs-dev is not installed".into())
            }
            false => panic!("the program does not compile:\n{complaints}"),
        }
    };
    PROGRAM.get_or_init(compile).as_ref()
}

fn run(case: &str, number: u8) {
    let program = match program() {
        Ok(program) => program,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let output = Command::new(program)
        .arg(case)
        .env("LD_PRELOAD", common::drop_in())
        .env("SOFTROCE_ADDRESS", common::address(number).to_string())
        .output()
        .expect("running the program");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{case} ended with {}:\n{text}",
        output.status
    );
}

#[test]
fn threads_that_wait_for_events_can_be_cancelled() {
    run("cancel", 101);
}

#[test]
fn a_wait_goes_on_after_a_signal_whose_handler_restarts_calls() {
    run("signal-goes-on", 102);
}

#[test]
fn a_wait_ends_with_eintr_after_a_signal_whose_handler_interrupts_calls() {
    run("signal-interrupts", 103);
}

#[test]
fn nonblocking_descriptors_give_eagain() {
    run("nonblocking", 104);
}

#[test]
fn a_forked_child_has_a_device_of_its_own_and_disturbs_its_parent_not() {
    run("forked", 105);
}

#[test]
fn the_bad_request_of_a_list_is_named_and_objects_in_use_are_busy() {
    run("bad-request", 106);
}

#[test]
fn null_and_nonsense_are_errors_and_no_crashes() {
    run("nonsense", 107);
}

#[test]
fn a_program_that_ends_right_after_its_last_message_leaves_its_peer_with_a_success() {
    for _ in 0..10 {
        run("leaves-at-once", 108);
    }
}

#[test]
fn registered_memory_that_is_unmapped_ends_the_request_and_not_the_program() {
    run("unmapped", 109);
}

#[test]
fn a_list_of_the_builder_with_a_bad_request_is_refused_as_a_whole() {
    run("builder-aborts", 110);
}

#[test]
fn a_queue_pair_that_is_reset_or_destroyed_takes_its_completions_along() {
    run("reset-forgets", 111);
}

#[test]
fn on_demand_memory_need_not_be_there_until_it_is_used_or_asked_for() {
    run("on-demand", 112);
}

#[test]
fn imported_objects_are_the_same_objects_and_keep_them() {
    run("import", 113);
}

#[test]
fn a_window_is_unbound_without_a_region() {
    run("unbind", 114);
}
