//! The report as a page: complete in itself, the same with one case and with 500; and a browser shows it, light and dark,
//! without a network. Where there is no Chromium the last part is shown as ignored.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use conformance::beds::{BedKind, BedOptions, Entry, SimBed};
use conformance::{
    Case, CaseResult, Failure, Fate, Outcome, Row, Scene, Setup, Summary, Verdict, html_page, run_case, send,
};
use libtest_mimic::{Arguments, Failed, Trial};
use verbs_api::{Access, Mtu, WcStatus};

const LIMIT: Duration = Duration::from_secs(60);
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

fn main() {
    let arguments = Arguments::from_args();
    let browser = BROWSERS.into_iter().find(|name| {
        let found = Command::new(name).arg("--version").output();
        found.is_ok_and(|output| output.status.success())
    });
    let mut trials = vec![
        Trial::test("a_failed_case_stands_on_the_page_with_its_packets", failed_case),
        Trial::test("a_page_loads_nothing_and_runs_nothing", complete_in_itself),
        Trial::test("hostile_words_stay_words", hostile_words),
    ];
    for cases in [1, 500] {
        for look in ["light", "dark"] {
            let name = format!("a_browser_shows_{cases}_cases_{look}_without_a_network");
            let trial = match browser {
                Some(browser) => Trial::test(name, move || in_browser(browser, cases, look)),
                None => Trial::test(name, || Ok(()))
                    .with_kind("chromium is missing")
                    .with_ignored_flag(true),
            };
            trials.push(trial);
        }
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Loses a packet, sees it sent again, and then wants what cannot be.
fn fails(scene: &mut Scene<SimBed>) -> CaseResult {
    let pair = scene.pair(&Setup {
        mtu: Mtu::Mtu256,
        ..Setup::default()
    })?;
    let (from, to) = (
        pair.left.region(600, Access::LOCAL_WRITE)?,
        pair.right.region(600, Access::LOCAL_WRITE)?,
    );
    let mut is_first = true;
    scene.network().set_rule(Box::new(move |_| {
        if std::mem::take(&mut is_first) {
            Fate::Drop
        } else {
            Fate::Deliver
        }
    }));
    pair.right.recv(1, &[to.sge(0..600)])?;
    pair.left.send(9, send(), &[from.sge(0..600)])?;
    scene.ends_with(&pair.left.send_cq, 9, WcStatus::Success)?;
    scene.ends_with(&pair.right.recv_cq, 1, WcStatus::Success)?;
    Err(Failure::new("expected a <miracle> & seen none"))
}

fn case() -> Case<SimBed> {
    Case::faults("Z1", "what cannot be, is", &["SEND-1", "LOSS-1"], fails)
}

fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("page");
    fs::create_dir_all(&folder).expect("the target folder can be written");
    folder
}

/// A failed case with its packets.
fn failed_row(number: usize) -> Row {
    // Tests run at the same time.
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let made = MADE.fetch_add(1, Ordering::Relaxed);
    let capture = folder().join(format!("sim-Z1-{number}-{}-{made}.pcapng", std::process::id()));
    let outcome = run_case(
        || SimBed::open(&BedOptions::default()),
        case(),
        Some(&capture),
        LIMIT,
    );
    Row::of(Entry::of(BedKind::Sim, &case()), outcome)
}

/// So many cases: every twentieth has failed, some deviate, some were skipped.
fn page(cases: usize) -> (String, Summary) {
    let mut summary = Summary::default();
    let all = conformance::cases::all::<SimBed>();
    let rows: Vec<Row> = (0..cases)
        .map(|number| {
            if number % 20 == 0 {
                summary.failed += 1;
                return failed_row(number);
            }
            let bed = if number % 2 == 0 {
                BedKind::Sim
            } else {
                BedKind::Udp
            };
            let entry = Entry::of(bed, &all[number % all.len()]);
            let verdict = match number % 7 {
                0 => Verdict::Deviation("RNR code 0x19 waits 61.41 ms (documented: rxe rounds)".to_owned()),
                1 => Verdict::Skipped("this bed cannot drop, delay, see or forge packets".to_owned()),
                _ => Verdict::Pass,
            };
            match verdict {
                Verdict::Deviation(_) => summary.deviations += 1,
                Verdict::Skipped(_) => summary.skipped += 1,
                Verdict::Pass | Verdict::Fail(_) => summary.passed += 1,
            }
            let outcome = Outcome {
                verdict,
                elapsed: Duration::from_micros(number as u64),
                capture: None,
                completions: Vec::new(),
            };
            Row::of(entry, outcome)
        })
        .collect();
    let page = html_page(&rows, &summary, &[]);
    for row in rows {
        if let Some(capture) = row.capture {
            let _ = fs::remove_file(capture);
        }
    }
    (page, summary)
}

fn ensure(condition: bool, message: impl FnOnce() -> String) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(message().into()) }
}

fn contains(page: &str, words: &str) -> Result<(), Failed> {
    ensure(page.contains(words), || {
        format!("the page has no {words:?}:\n{}", &page[..page.len().min(20_000)])
    })
}

fn failed_case() -> Result<(), Failed> {
    let (page, _) = page(1);
    for words in [
        "Z1 on sim: what cannot be, is",
        "expected a &lt;miracle&gt; &amp; seen none",
        "<b>LOSS-1</b>",
        "RC_SEND_FIRST psn",
        "lost",
        "sent again (2)",
        "nak psn-sequence",
        "2 completions",
        "<td>Success</td>",
        "href=\"data:application/x-pcapng;base64,Cg0NC",
        "href=\"#sim-Z1\">1 fail</a>",
    ] {
        contains(&page, words)?;
    }
    Ok(())
}

fn complete_in_itself() -> Result<(), Failed> {
    let (page, summary) = page(500);
    for forbidden in [
        "<script", "<link", "<img", "<iframe", "src=", "url(", "@import", "http:", "https:",
    ] {
        ensure(!page.contains(forbidden), || {
            format!("the page has {forbidden:?}")
        })?;
    }
    contains(&page, "default-src 'none'")?;
    contains(&page, &format!("{} failed", summary.failed))?;
    // Every case has a line; the failed ones have a ladder each.
    ensure(
        page.matches("<svg class=\"ladder\"").count() == summary.failed,
        || "ladders are missing".to_owned(),
    )?;
    ensure(page.len() < 8 << 20, || format!("a page of {} bytes", page.len()))
}

fn hostile_words() -> Result<(), Failed> {
    let case = Case::<SimBed>::verbs("<X>", "\"><script>alert(1)</script>", &[], |_| Ok(()));
    let outcome = Outcome {
        verdict: Verdict::Fail("</article><script>\u{7}".to_owned()),
        elapsed: LIMIT,
        capture: Some(PathBuf::from("/nowhere/<b>.pcapng")),
        completions: Vec::new(),
    };
    let row = Row::of(Entry::of(BedKind::Udp, &case), outcome);
    let page = html_page(
        &[row],
        &Summary {
            failed: 1,
            ..Summary::default()
        },
        &[],
    );
    ensure(
        !page.contains("<script") && !page.contains("<X>") && !page.contains("<b>.pcapng"),
        || page.clone(),
    )?;
    contains(&page, "&lt;/article&gt;&lt;script&gt;")
}

/// Chromium with no host that could be reached and nothing kept.
fn chromium(browser: &str, profile: &Path, look: &str) -> Command {
    let mut command = Command::new("timeout");
    command.args([
        "--kill-after=5",
        "90",
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
    ]);
    command.args([
        "--host-resolver-rules=MAP * ~NOTFOUND",
        "--proxy-server=127.0.0.1:9",
        "--no-first-run",
    ]);
    command.arg(format!("--user-data-dir={}", profile.display()));
    // 0 is dark, 1 light.
    let scheme = if look == "dark" { 0 } else { 1 };
    command.arg(format!("--blink-settings=preferredColorScheme={scheme}"));
    command
}

fn in_browser(browser: &str, cases: usize, look: &str) -> Result<(), Failed> {
    let folder = folder();
    let (text, summary) = page(cases);
    let file = folder.join(format!("{cases}-{look}.html"));
    fs::write(&file, &text)?;
    let picture = folder.join(format!("{cases}-{look}.png"));
    let _ = fs::remove_file(&picture);
    let profile = folder.join(format!("profile-{cases}-{look}"));
    let url = format!("file://{}", file.display());
    let shot = chromium(browser, &profile, look)
        .args(["--window-size=1360,1800", "--hide-scrollbars"])
        .arg(format!("--screenshot={}", picture.display()))
        .arg(&url)
        .output()?;
    let tree = chromium(browser, &profile, look)
        .arg("--dump-dom")
        .arg(&url)
        .output()?;
    let _ = fs::remove_dir_all(&profile);
    let words = String::from_utf8_lossy(&shot.stderr).into_owned();
    let png = fs::read(&picture).map_err(|error| format!("no screenshot ({error}): {words}"))?;
    ensure(png.starts_with(b"\x89PNG") && png.len() > 20_000, || {
        format!("a screenshot of {} bytes: {words}", png.len())
    })?;
    let tree = String::from_utf8_lossy(&tree.stdout).into_owned();
    contains(&tree, &format!("{} failed", summary.failed))?;
    ensure(
        tree.matches("<svg class=\"ladder\"").count() == summary.failed,
        || {
            format!(
                "the browser sees {} ladders of {}",
                tree.matches("<svg class=\"ladder\"").count(),
                summary.failed
            )
        },
    )?;
    // What the style says of the paper's colour is in the picture: light and dark differ.
    let other = folder.join(format!(
        "{cases}-{}.png",
        if look == "dark" { "light" } else { "dark" }
    ));
    match fs::read(other) {
        Ok(other) => ensure(other != png, || "light and dark look the same".to_owned()),
        Err(_) => Ok(()),
    }
}
