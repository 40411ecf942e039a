use std::fmt::Write;

use super::*;

const INPUTS: [Input; 25] = [
    Input::Reply,
    Input::Reject,
    Input::Ready,
    Input::Delay,
    Input::Establish,
    Input::Disconnect,
    Input::Answer,
    Input::Destroy,
    Input::Req,
    Input::Stale,
    Input::MraOfReq,
    Input::MraOfRep,
    Input::Rej,
    Input::RejStale,
    Input::Rep,
    Input::Rtu,
    Input::Dreq,
    Input::Drep,
    Input::Lap,
    Input::Apr,
    Input::SidrReq,
    Input::SidrRep,
    Input::Overdue,
    Input::Exhausted,
    Input::Elapsed,
];

fn matrix() -> String {
    let mut text = String::new();
    for state in State::ALL {
        writeln!(text, "{state:?}").unwrap();
        for input in INPUTS {
            let cell = match step(state, input) {
                Step::Refuse => "refused".to_owned(),
                Step::Ignore => "-".to_owned(),
                Step::Do { send, tell, next } => {
                    let mut cell = format!("-> {next:?}");
                    if send != Send::Nothing {
                        write!(cell, ", send {send:?}").unwrap();
                    }
                    if tell != Tell::Nothing {
                        write!(cell, ", tell {tell:?}").unwrap();
                    }
                    cell
                }
            };
            writeln!(text, "  {:<11} {cell}", format!("{input:?}")).unwrap();
        }
    }
    text
}

#[test]
fn the_whole_matrix_is_as_kept() {
    let kept = include_str!("matrix.txt");
    let now = matrix();
    assert!(
        now == kept,
        "the matrix has changed; if that is meant, keep this as softroce/cm/src/state/matrix.txt:\n{now}"
    );
}

#[test]
fn who_is_not_cared_for_any_more_ends_by_the_clock() {
    for state in State::ALL {
        let next = match step(state, Input::Destroy) {
            Step::Do { next, .. } => next,
            Step::Ignore => state,
            Step::Refuse => panic!("nobody is refused to leave {state:?}"),
        };
        assert!(
            next == State::Closed || next.timer() != Timer::Off,
            "{state:?} -> {next:?}"
        );
    }
}

#[test]
fn a_time_out_never_leaves_a_connection_without_an_end() {
    for state in State::ALL {
        let inputs: &[Input] = match state.timer() {
            Timer::Off => &[],
            Timer::Retry | Timer::Patience => &[Input::Overdue, Input::Exhausted],
            Timer::Wait => &[Input::Elapsed],
        };
        for input in inputs {
            assert!(
                matches!(step(state, *input), Step::Do { .. }),
                "{state:?} {input:?}"
            );
        }
    }
}
