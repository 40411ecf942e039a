use super::*;

const CLIENT: u32 = 7;

fn entry(time_s: u64, kind: Kind, text: &str) -> Entry {
    Entry {
        process: CLIENT,
        time_ns: time_s * 1_000_000_000,
        kind,
        place: None,
        text: text.to_owned(),
    }
}

fn report(entries: &[Entry], waiting: &[Entry]) -> Report {
    Report {
        entries: entries.to_vec(),
        waiting: waiting.to_vec(),
        silent: Vec::new(),
        rules: Vec::new(),
    }
}

const REJECTED: &str =
    "rdma_connect to 127.0.0.1:7999 was rejected: nobody listens on TCP port 7999 there (reason 8)";

#[test]
fn a_connection_that_did_not_come_about_is_the_cause_before_verbs() {
    let entries = [
        entry(0, Kind::Process, "rping"),
        entry(1, Kind::Connect, REJECTED),
        entry(2, Kind::Verb, "rdma_connect: it was refused"),
    ];
    let text = report(&entries, &[]).text("rping", &End::Exited(1), None, None);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0],
        format!("softroce: rping ended with status 1: {REJECTED}")
    );
    assert_eq!(lines[1], format!("softroce:   connect [7 rping]: {REJECTED}"));
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_connection_that_came_about_later_is_no_cause() {
    let mut entries = vec![
        entry(0, Kind::Process, "rping"),
        entry(1, Kind::Connect, REJECTED),
        entry(2, Kind::Connected, "127.0.0.1:7999"),
    ];
    let cause = |entries: &[Entry]| report(entries, &[]).cause().0;
    assert_eq!(cause(&entries), "no verb and no completion failed");
    // Another peer's success says nothing of this one, and neither does an earlier one.
    entries[2].text = "127.0.0.1:799".into();
    assert_eq!(cause(&entries), REJECTED);
    entries[2] = entry(0, Kind::Connected, "127.0.0.1:7999");
    assert_eq!(cause(&entries), REJECTED);
}

#[test]
fn an_error_completion_is_the_cause_before_connections() {
    let entries = [
        entry(1, Kind::Connect, REJECTED),
        entry(2, Kind::NoAnswer, "127.0.0.1 stopped answering"),
    ];
    assert_eq!(report(&entries, &[]).cause().0, "127.0.0.1 stopped answering");
}

#[test]
fn who_waits_for_an_answer_to_a_request_is_the_cause_before_who_waits_for_a_message() {
    let message = entry(
        9,
        Kind::Waiting,
        "queue pair 0x12 waits for a message of the peer",
    );
    let connecting = entry(9, Kind::Connecting, "a request to 127.0.0.77:7998 has no answer");
    let mut waiting = vec![message.clone(), connecting.clone()];
    waiting.sort_by_key(Telling::of);
    assert_eq!(waiting, [connecting, message.clone()]);
    let rejected = [entry(1, Kind::Connect, REJECTED)];
    assert_eq!(
        report(&rejected, &waiting).cause().0,
        "a request to 127.0.0.77:7998 has no answer"
    );
    assert_eq!(report(&rejected, &[message]).cause().0, REJECTED);
}

#[test]
fn what_nobody_answered_is_put_down_to_rules_that_took_packets() {
    let page = |name: &str, effect, hits| Page {
        name: name.into(),
        effect,
        hits,
    };
    let mut failed = report(&[entry(1, Kind::NoAnswer, "127.0.0.1 stopped answering")], &[]);
    failed.rules = vec![
        page("loss", Effect::Takes, 3),
        page("nak", Effect::Makes, 0),
        page("slow", Effect::Other, 5),
        page("loss", Effect::Takes, 4),
    ];
    let first = |report: &Report| {
        let text = report.text("pingpong", &End::Exited(1), None, None);
        text.lines().next().unwrap_or_default().to_owned()
    };
    assert_eq!(
        first(&failed),
        "softroce: pingpong ended with status 1: 127.0.0.1 stopped answering; fault rule \"loss\" took 7 packets"
    );
    // A refusal is none of what rules took.
    failed.entries[0].kind = Kind::Rejected;
    assert!(!first(&failed).contains("fault rule"));
    failed.rules[1].hits = 1;
    assert!(first(&failed).ends_with("; fault rule \"nak\" made 1 packet"));
}
