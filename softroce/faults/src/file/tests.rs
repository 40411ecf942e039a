use roce_wire::NakCode;
use verbs_api::WcStatus;

use crate::*;

fn rules(text: &str) -> Rules {
    Rules::parse(text).unwrap_or_else(|error| panic!("{text}\n{error}"))
}

fn error(text: &str) -> FileError {
    match Rules::parse(text) {
        Ok(rules) => panic!("{text} was read as {rules:?}"),
        Err(error) => error,
    }
}

/// What a packet rule with this `do` does.
fn action(what: &str) -> Action {
    let text = format!("[[packet]]\ndo = {what}\n");
    rules(&text).packets.remove(0).action
}

#[test]
fn every_key_of_a_packet_rule_is_taken() {
    let rules = rules(
        r#"
        seed = 9
        [[packet]]
        name = "all"
        direction = "in"
        peer = "::ffff:127.0.0.2"
        qpn = [0x11, "0x20-0x2f"]
        opcode = ["rc send last", "RC_READ_REQUEST"]
        syndrome = "nak"
        psn = 0xffffff
        psn_from_start = "5-"
        psn_in_message = 2
        transmission = 1
        size = "-1024"
        nth = [1, "3-5"]
        every = 2
        hits = 7
        probability = "1 %"
        from = "100ms"
        until = "1.5 s"
        do = { delay = "20us", jitter = "5 us" }
        "#,
    );
    assert_eq!(rules.seed, 9);
    let PacketRule {
        name,
        select,
        when,
        action,
    } = &rules.packets[0];
    assert_eq!(name, "all");
    assert_eq!(select.direction, Direction::In);
    assert_eq!(select.peer, Some("127.0.0.2".parse().unwrap()));
    assert!(select.qpn.contains(0x11) && select.qpn.contains(0x25) && !select.qpn.contains(0x12));
    assert!(select.opcode.contains(roce_wire::Opcode::RC_SEND_LAST));
    assert!(select.opcode.contains(roce_wire::Opcode::RC_READ_REQUEST));
    assert!(!select.opcode.contains(roce_wire::Opcode::RC_SEND_ONLY));
    assert_eq!(select.syndrome, Some(SyndromeKind::Nak));
    assert_eq!(select.psn, Numbers::one(0xff_ffff));
    assert_eq!(select.psn_from_start, Numbers::range(5, u64::MAX));
    assert_eq!(select.size, Numbers::range(0, 1024));
    assert_eq!((when.every, when.hits_max, when.probability), (2, 7, 0.01));
    assert_eq!((when.from_ns, when.until_ns), (100_000_000, 1_500_000_000));
    assert_eq!(
        *action,
        Action::Delay {
            nanos: 20_000,
            jitter_ns: 5_000
        }
    );
}

#[test]
fn every_action_has_its_words() {
    let corrupt = |what, icrc| Action::Corrupt { what, icrc };
    for (what, wanted) in [
        ("\"drop\"", Action::Drop),
        ("\"duplicate\"", Action::Duplicate(1)),
        ("{ duplicate = 3 }", Action::Duplicate(3)),
        (
            "{ reorder = 4, at_most = \"1ms\" }",
            Action::Reorder {
                past: 4,
                at_most_ns: 1_000_000,
            },
        ),
        ("{ corrupt = \"icrc\" }", corrupt(Corruption::Icrc, Icrc::Broken)),
        ("{ corrupt = \"bit\" }", corrupt(Corruption::AnyBit, Icrc::Broken)),
        (
            "{ corrupt = \"bit\", bit = 9 }",
            corrupt(Corruption::Bit(9), Icrc::Broken),
        ),
        (
            "{ corrupt = \"psn\", add = -1, icrc = \"repaired\" }",
            corrupt(Corruption::Field(Field::Psn, Change::Add(-1)), Icrc::Repaired),
        ),
        (
            "{ truncate = 20, icrc = \"repaired\" }",
            Action::Truncate {
                to_bytes: 20,
                icrc: Icrc::Repaired,
            },
        ),
        ("\"mark-ce\"", Action::MarkCe),
        ("\"blackhole\"", Action::Blackhole { lasts_ns: None }),
        (
            "{ blackhole = \"2s\" }",
            Action::Blackhole {
                lasts_ns: Some(2_000_000_000),
            },
        ),
        (
            "{ rate = \"100 Mbit/s\", queue = 4096 }",
            Action::RateLimit {
                bits_per_second: 100_000_000,
                queue_bytes: 4096,
            },
        ),
        (
            "{ inject = \"nak\", code = \"remote-access\", place = \"instead\", to_qpn = 5 }",
            Action::Inject {
                packet: Forgery::Nak(NakCode::RemoteAccess),
                place: Place::Instead,
                qpn: Some(5),
            },
        ),
        (
            "{ inject = \"nak\", code = 31 }",
            Action::Inject {
                packet: Forgery::Nak(NakCode::Reserved(31)),
                place: Place::Before,
                qpn: None,
            },
        ),
        (
            "{ inject = \"stale-duplicate\", age = 3, place = \"after\" }",
            Action::Inject {
                packet: Forgery::StaleDuplicate { age: 3 },
                place: Place::After,
                qpn: None,
            },
        ),
        ("{ event = \"qp-fatal\" }", Action::Raise(Event::QpFatal)),
    ] {
        assert_eq!(action(what), wanted, "{what}");
    }
    for packet in ["cnp", "ghost-ack", "rnr"] {
        action(&format!("{{ inject = \"{packet}\" }}"));
    }
}

#[test]
fn calls_completions_and_events_are_taken() {
    let rules = rules(
        r#"
        [[verb]]
        call = ["ibv_reg_mr", "create_cq"]
        nth = 2
        errno = "ENOMEM"
        [[verb]]
        call = "any"
        errno = 5
        [[completion]]
        of = "send"
        nth = 3
        status = "REM_ACCESS_ERR"
        [[event]]
        at = "1s"
        do = "port-down"
        for = "500ms"
        "#,
    );
    assert_eq!(
        rules.verbs[0].calls,
        VerbSet::one(Verb::RegMr).and(Verb::CreateCq)
    );
    assert_eq!((rules.verbs[0].errno, rules.verbs[1].errno), (12, 5));
    assert_eq!(rules.verbs[1].calls, VerbSet::ANY);
    assert_eq!(rules.completions[0].status, WcStatus::RemAccessErr);
    assert_eq!(rules.events[0].lasts_ns, Some(500_000_000));
    let names: Vec<&str> = rules.verbs.iter().map(|rule| rule.name.as_str()).collect();
    assert_eq!(names, ["verb 1", "verb 2"]);
}

#[test]
fn an_error_names_line_column_reason_and_what_would_be_right() {
    for (text, line, column, reason, help) in [
        (
            "[[packet]]\ndo = \"dorp\"",
            2,
            6,
            "\"dorp\" does not fit",
            "did you mean `drop`?",
        ),
        (
            "[[packet]]\nopcod = \"send\"\ndo = \"drop\"",
            2,
            1,
            "no key `opcod`",
            "`opcode`",
        ),
        (
            "[[packet]]\nopcode = \"sned\"\ndo = \"drop\"",
            2,
            10,
            "\"sned\"",
            "`send`",
        ),
        (
            "[[packet]]\nopcode = \"first last\"\ndo = \"drop\"",
            2,
            10,
            "first last",
            "no opcode is all of this",
        ),
        ("[[packet]]\nname = \"x\"", 1, 1, "no `do`", "do = \"drop\""),
        (
            "[[packet]]\ndo = \"delay\"",
            2,
            6,
            "\"delay\"",
            "{ delay = \"1ms\" }",
        ),
        (
            "[[packet]]\ndo = { delay = 5 }",
            2,
            16,
            "5 does not fit",
            "\"10 ms\"",
        ),
        (
            "[[packet]]\ndo = { drop = 1 }",
            2,
            15,
            "takes no value",
            "do = \"drop\"",
        ),
        (
            "[[packet]]\ndo = { delay = \"1s\", truncate = 20 }",
            2,
            6,
            "several things",
            "one thing",
        ),
        (
            "[[packet]]\ndo = { corrupt = \"psn\" }",
            2,
            18,
            "how does the field psn change",
            "set, flip and add",
        ),
        (
            "[[packet]]\npsn = 0x1000000\ndo = \"drop\"",
            2,
            7,
            "0x1000000",
            "0xffffff",
        ),
        (
            "[[packet]]\nprobability = 1.5\ndo = \"drop\"",
            2,
            15,
            "1.5",
            "from 0 to 1",
        ),
        ("[[packet]]\nnth = \"5-3\"\ndo = \"drop\"", 2, 7, "5-3", "\"3-5\""),
        (
            "[[packet]]\nfrom = \"2s\"\nuntil = \"1s\"\ndo = \"drop\"",
            3,
            9,
            "ends before",
            "later than",
        ),
        ("[packet]\ndo = \"drop\"", 1, 1, "table", "[[packet]]"),
        ("packets = 3", 1, 1, "no key `packets`", "`packet`"),
        (
            "[[verb]]\ncall = \"reg_rm\"\nerrno = 5",
            2,
            8,
            "reg_rm",
            "`reg_mr`",
        ),
        (
            "[[verb]]\ncall = \"reg_mr\"\nerrno = \"ENOMEN\"",
            3,
            9,
            "ENOMEN",
            "`ENOMEM`",
        ),
        ("[[verb]]\ncall = \"reg_mr\"", 1, 1, "no `errno`", "ENOMEM"),
        ("[[completion]]\nstatus = \"BAD\"", 2, 10, "BAD", "RETRY_EXC_ERR"),
        (
            "[[event]]\nat = \"1s\"\ndo = \"qp-fatal\"\nfor = \"1s\"",
            4,
            7,
            "does not end",
            "leave out",
        ),
        (
            "[[packet]]\nname = \"a\"\ndo = \"drop\"\n[[packet]]\nname = \"a\"\ndo = \"drop\"",
            5,
            8,
            "another rule is named \"a\"",
            "of its own",
        ),
        (
            "[[packet]]\nprob = 1\ndo = \"drop\"",
            2,
            1,
            "no key `prob`",
            "did you mean `probability`?",
        ),
        ("[[packet]]\ndo = ", 2, 6, "no TOML", ""),
        ("a = \"é\"; b = 1", 1, 8, "no TOML", ""),
    ] {
        let error = error(text);
        assert!(
            error.reason.contains(reason) && error.help.contains(help),
            "{text}\n{error}"
        );
        assert_eq!((error.line, error.column), (line, column), "{text}\n{error}");
    }
}

/// A rule for the zeroth match was taken, and never hit anything; a PSN of 25 bits was cut off.
#[test]
fn numbers_that_can_never_be_are_refused_where_they_stand() {
    let packet = |line: &str| (format!("[[packet]]\n{line}\ndo = \"drop\""), 2);
    let action = |what: &str| (format!("[[packet]]\ndo = {{ {what} }}"), 2);
    let mut wrong = vec![
        packet("nth = 0"),
        packet("nth = \"0-3\""),
        packet("nth = [2, 0]"),
        packet("nth = \"-0\""),
        packet("every = 0"),
        packet("hits = 0"),
        packet("transmission = 0"),
        packet("size = 0"),
        packet("size = \"-0\""),
        packet("size = 65536"),
        packet("qpn = 0x1000000"),
        packet("psn_from_start = 0x1000000"),
        packet("psn_in_message = 0x1000000"),
        ("[[verb]]\nnth = 0\ncall = \"reg_mr\"\nerrno = 5".to_owned(), 2),
        ("[[completion]]\nnth = 0\nstatus = \"FATAL_ERR\"".to_owned(), 2),
        (
            "[[event]]\nat = \"1s\"\nfor = \"0s\"\ndo = \"port-down\"".to_owned(),
            3,
        ),
        action("delay = \"0s\""),
        action("reorder = 0"),
        action("reorder = 1, at_most = \"0ms\""),
        action("duplicate = 0"),
        action("truncate = 0"),
        action("blackhole = \"0s\""),
        action("corrupt = \"bit\", bit = 524280"),
        action("corrupt = \"psn\", add = 0"),
        action("corrupt = \"psn\", flip = 0"),
        action("inject = \"rnr\", timer = 32"),
        action("inject = \"nak\", code = 32"),
        action("inject = \"cnp\", to_qpn = 0x1000000"),
    ];
    for field in Field::ALL {
        // Those of 64 bits hold whatever the file can say.
        if let Some(more) = field.max().checked_add(1) {
            for how in ["set", "flip", "add"] {
                wrong.push(action(&format!("corrupt = {:?}, {how} = {more}", field.name())));
            }
        }
    }
    for (text, line) in wrong {
        let error = error(&text);
        assert_eq!(error.line, line, "{text}\n{error}");
        assert!(
            error.column > 1 && !error.reason.is_empty() && !error.help.is_empty(),
            "{text}\n{error}"
        );
    }
    let right = [
        packet("nth = \"-3\""),
        packet("nth = \"1-\""),
        packet("size = \"-100\""),
        packet("psn = 0"),
        action("delay = \"0s\", jitter = \"1ms\""),
        action("corrupt = \"psn\", set = 0xffffff"),
        action("corrupt = \"psn\", add = -16777215"),
        action("corrupt = \"va\", set = 0x7fffffffffffffff"),
    ];
    for (text, _) in right {
        Rules::parse(&text).unwrap_or_else(|error| panic!("{text}\n{error}"));
    }
}

#[test]
fn hostile_files_are_errors_and_no_more() {
    let deep = format!("a = {}", "[".repeat(100_000));
    let many = "[[packet]]\ndo = \"drop\"\n".repeat(RULES_MAX + 1);
    let long = "#".repeat((1 << 20) + 1);
    for text in [
        deep.as_str(),
        &many,
        &long,
        "[[packet]]\nqpn = []\ndo = \"drop\"",
        "[[packet]]\nnth = -1\ndo = \"drop\"",
        "[[packet]]\nnth = 99999999999999999999\ndo = \"drop\"",
        "[[packet]]\nprobability = nan\ndo = \"drop\"",
        "[[packet]]\nname = \"\\n\"\ndo = \"drop\"",
        "[[packet]]\ndo = { delay = \"1e300s\" }",
        "[[packet]]\ndo = { rate = \"0 bit/s\" }",
        "[[packet]]\ndo = {}",
        "[[packet]]\ndo = 3",
        "packet = [1]",
        "seed = \"x\"",
        "[[packet]]\npeer = \"localhost\"\ndo = \"drop\"",
        "\0",
    ] {
        let error = error(text);
        assert!(error.line >= 1 && error.column >= 1, "{error}");
    }
    assert!(rules("").is_empty());
}
