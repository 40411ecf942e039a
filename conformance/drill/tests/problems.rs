//! What is wrong in a script, or with what was seen, is told with its line, column and reason.

use drill::{Script, SimBench};

/// What reading says, a line for each problem: line:column message.
fn problems(text: &str) -> Vec<String> {
    let (source, problems) = Script::parse("s", text)
        .err()
        .unwrap_or_else(|| panic!("{text:?} is a script"));
    problems
        .iter()
        .map(|problem| {
            problem
                .show(&source)
                .to_string()
                .lines()
                .next()
                .unwrap_or_default()
                .to_owned()
        })
        .collect()
}

/// What running says: the first line.
fn failure(text: &str) -> String {
    let script = Script::parse("s", text).unwrap_or_else(|(_, problems)| panic!("{problems:?}"));
    let mut bench = SimBench::new(1).unwrap();
    let failed = drill::run(&script, &mut bench, &mut |_, _| {}).expect_err("it must fail");
    failed
        .show(&script)
        .to_string()
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

#[test]
fn every_wrong_line_is_told_at_once() {
    assert_eq!(
        problems("qp A rc\nsend 1 lem=3\nfly away\n> SEND_ONLY\nend"),
        [
            "s:2:8: `lem` is no argument of `send`; it takes imm, inv, qkey, len, inline, signaled, fence, se",
            "s:3:1: no line begins with `fly`; lines begin with title, shows, only_sim, qp, mr, mw, srq, send, write, \
             read, cas, add, atomic_write, invalidate, bind, recv, modify, destroy, < (inject a packet), > (expect a \
             packet), cqe, event, state, memory, fill, silence, quiet, wait, drain, let, repeat, end",
            "s:4:1: a packet needs psn=…, as in psn=s+1 (s: the device's first, p: the played peer's); psn=* expects any",
            "s:5:1: `end` without `repeat`",
        ]
    );
}

#[test]
fn a_text_in_which_nothing_happens_is_no_script() {
    for text in ["", "# only a remark", "title \"a story\"\nshows \"ACK-1\""] {
        assert_eq!(
            problems(text),
            ["s:1:1: nothing happens in this script; begin with `qp A rc`"]
        );
    }
}

#[test]
fn names_must_be_known_and_of_the_right_kind() {
    for (text, told) in [
        ("recv A 1", "s:1:6: nothing is called `A`"),
        ("qp A rc\nrecv 1 M[]", "s:2:8: nothing is called `M`"),
        ("qp A rc\nmr M 8\nsend 1 A[]", "s:3:8: `A` is a queue pair"),
        ("qp A rc\nmr A 8", "s:2:4: `A` is a queue pair already"),
        (
            "qp A rc\nmr M 8\n> ACK psn=M.qpn",
            "s:3:11: `M.qpn` is no value; `M` is a memory region: its values are M.addr, M.lkey, M.rkey",
        ),
        (
            "qp A rc\nqp B rc\nsend 1 len=4",
            "s:3:1: `send` needs the name of a queue pair, since there are several",
        ),
        (
            "qp s rc",
            "s:1:4: `s` cannot be a name: it means something already",
        ),
        ("qp A tcp", "s:1:6: no service `tcp`; services are rc, uc and ud"),
        (
            "qp A uc\n> READ_REQUEST psn=s",
            "s:2:3: no packet `READ_REQUEST` in this service",
        ),
        ("repeat 3\nwait 1us", "s:1:1: this `repeat` has no `end`"),
    ] {
        let all = problems(text);
        assert!(all[0].starts_with(told), "{text:?}: {all:?}");
    }
}

#[test]
fn what_was_seen_is_told_beside_what_was_expected() {
    for (text, told) in [
        (
            "qp A rc\nsend 1 len=4\n> SEND_ONLY psn=s+1 len=5",
            "s:3:1: psn: expected 0x000065 (s+1), seen 0x000064 (s); len: expected 5, seen 4",
        ),
        (
            "qp A rc\nmr M 8\n  memory M[0..4] = word(1)",
            "s:3:3: these bytes can never come: no packet is in flight and no timer runs; expected 8 bytes, seen 4",
        ),
        (
            "qp A rc\nsend 1 len=4 = EINVAL",
            "s:2:1: result: expected EINVAL, seen ok",
        ),
        (
            "qp A rc timeout=0\ncqe 1 SUCCESS",
            "s:2:1: the completion of request 1 with SUCCESS can never come: no packet is in flight and no timer runs",
        ),
        (
            "qp A rc\nsend 1 len=4\nwait 1us",
            "s:3:1: behind this line came a packet that no line expects: RC_SEND_ONLY",
        ),
        (
            "qp A rc\nsend 1 len=4\n+5ms > SEND_ONLY psn=s",
            "s:3:1: RC_SEND_ONLY with psn 0x000064 (s) came 0ns after the line before; expected from 4.995ms to 5.005ms",
        ),
        ("qp A rc timeout=32", "s:1:1: 0x20 is too much here: at most 0x1f"),
        (
            "mr M 99999999999",
            "s:1:1: refused with EINVAL: a region of 99999999999 bytes",
        ),
    ] {
        let seen = failure(text);
        assert!(
            seen.starts_with(told),
            "{text:?}\n  expected {told}\n  seen     {seen}"
        );
    }
}

#[test]
fn any_text_is_read_without_a_panic() {
    let pieces = [
        "qp",
        "A",
        "rc",
        "mr",
        "M",
        "64",
        "send",
        "recv",
        "<",
        ">",
        "ACK",
        "SEND_ONLY",
        "psn=",
        "s",
        "+",
        "..",
        "[",
        "]",
        "(",
        ")",
        "\"",
        "=",
        "*",
        "~",
        "@",
        "repeat",
        "end",
        "18446744073709551615",
        "0xffffffffffffffff",
        "\u{1F980}",
        "\t",
        "bind",
        "W",
        "mw",
        "data=pattern(",
        "cqe",
        "memory",
        "let",
        "n",
        "-",
        "!",
        "?",
        ",",
    ];
    let mut state = 1u64;
    for _ in 0..20_000 {
        let mut text = String::new();
        for _ in 0..12 {
            state = state
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            text.push_str(pieces[(state >> 33) as usize % pieces.len()]);
            text.push_str([" ", "", "\n"][(state >> 20) as usize % 3]);
        }
        if let Ok(script) = Script::parse("noise", &text) {
            let mut bench = SimBench::new(1).unwrap();
            let _ = drill::run(&script, &mut bench, &mut |_, _| {});
        }
    }
}
