//! A whole run, for the command line: select, run, report.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use roce_wire::pcap::{LinkType, NgWriter, Reader};

use crate::beds::{BedKind, BedOptions, Entry, NativeBed, NativeOptions, Tolerance, entries, run_entry};
use crate::case::Mode;
use crate::outcome::Verdict;
use crate::report::{self, Format};
use crate::runner::Outcome;
use crate::scene::Completed;

/// What to run and how to report it.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// On which beds, in this order.
    pub beds: Vec<BedKind>,
    /// Only cases whose id or title contains this, in any letter case.
    pub filter: Option<String>,
    /// Only cases that are made with one of these; all when empty.
    pub modes: Vec<Mode>,
    /// How to report.
    pub format: Format,
    /// Write all packets of all cases to this pcapng file.
    pub capture: Option<PathBuf>,
    /// Where captures of failed cases go; `None` writes none.
    pub failures: Option<PathBuf>,
    /// Everything random on the simulator follows from it.
    pub seed: u64,
    /// Which library and device, for the beds on libibverbs.
    pub native: NativeOptions,
}

impl Default for RunOptions {
    /// All cases on the beds that need nothing else, as a table.
    fn default() -> Self {
        RunOptions {
            beds: BedKind::OWN.to_vec(),
            filter: None,
            modes: Vec::new(),
            format: Format::Pretty,
            capture: None,
            failures: Some(std::env::temp_dir().join("softroce-conformance")),
            seed: 1,
            native: NativeOptions::default(),
        }
    }
}

/// One case as it ended.
#[derive(Clone, Debug)]
pub struct Row {
    /// Which case on which bed.
    pub entry: Entry,
    /// How it ended.
    pub verdict: Verdict,
    /// Real time that it took.
    pub elapsed: Duration,
    /// Its packets, when it failed and the bed has them.
    pub capture: Option<PathBuf>,
    /// Completions that it has seen, when it failed or deviated.
    pub completions: Vec<Completed>,
}

impl Row {
    /// A row from its parts, for reports on runs that were made otherwise.
    pub fn of(entry: Entry, outcome: Outcome) -> Self {
        Row {
            entry,
            verdict: outcome.verdict,
            elapsed: outcome.elapsed,
            capture: outcome.capture,
            completions: outcome.completions,
        }
    }
}

/// What is going on, for a progress display.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A case starts: the `number`th of `total`, from 1.
    Starting {
        /// Which.
        entry: &'a Entry,
        /// Its number.
        number: usize,
        /// Of how many.
        total: usize,
    },
    /// A case has ended.
    Ended(&'a Row),
}

/// How a run ended, in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// As required.
    pub passed: usize,
    /// Documented deviations.
    pub deviations: usize,
    /// Failed.
    pub failed: usize,
    /// Not run, since something is missing.
    pub skipped: usize,
}

impl Summary {
    /// The exit status for a command: 0 when nothing failed, 1 when something did, 2 when nothing ran at all.
    pub fn exit_status(&self) -> u8 {
        match (self.failed, self.passed + self.deviations) {
            (0, 0) => 2,
            (0, _) => 0,
            (_, _) => 1,
        }
    }

    fn count(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Pass => self.passed += 1,
            Verdict::Deviation(_) => self.deviations += 1,
            Verdict::Fail(_) => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
        }
    }
}

impl RunOptions {
    /// What the beds are opened with.
    pub fn bed_options(&self) -> BedOptions {
        BedOptions {
            seed: self.seed,
            native: self.native.clone(),
            ..BedOptions::default()
        }
    }
}

fn selected(options: &RunOptions) -> io::Result<Vec<Entry>> {
    let mut all = Vec::new();
    for bed in &options.beds {
        all.extend(
            entries(*bed, &options.bed_options()).map_err(|failure| io::Error::other(failure.to_string()))?,
        );
    }
    if let Some(filter) = &options.filter {
        let filter = filter.to_lowercase();
        all.retain(|entry| {
            entry.id.to_lowercase().contains(&filter) || entry.title.to_lowercase().contains(&filter)
        });
    }
    if !options.modes.is_empty() {
        all.retain(|entry| options.modes.contains(&entry.mode));
    }
    Ok(all)
}

/// Print what would run; how many cases that are.
pub fn list(options: &RunOptions, out: &mut dyn Write) -> io::Result<usize> {
    let entries = selected(options)?;
    report::list(&entries, options.format, out)?;
    Ok(entries.len())
}

/// Run the selected cases one after the other and report to `out`.
pub fn run(
    options: &RunOptions,
    out: &mut dyn Write,
    progress: &mut dyn FnMut(Progress<'_>),
) -> io::Result<Summary> {
    let entries = selected(options)?;
    let mut capture = options.capture.as_deref().map(Capture::create).transpose()?;
    let mut summary = Summary::default();
    let mut rows = Vec::with_capacity(entries.len());
    let mut report = report::Report::begin(options.format, &entries, out)?;
    let total = entries.len();
    for (at, entry) in entries.into_iter().enumerate() {
        progress(Progress::Starting {
            entry: &entry,
            number: at + 1,
            total,
        });
        let row = run_one(entry, options, capture.as_mut())?;
        summary.count(&row.verdict);
        progress(Progress::Ended(&row));
        report.row(&row, out)?;
        rows.push(row);
    }
    let idle = did_not_occur(options, &rows);
    report.end(&rows, &summary, &idle, out)?;
    out.flush()?;
    Ok(summary)
}

/// Documented deviations whose case has run and shown another behaviour: perhaps they are no longer true.
fn did_not_occur(options: &RunOptions, rows: &[Row]) -> Vec<Tolerance> {
    if !options.beds.contains(&BedKind::Native) {
        return Vec::new();
    }
    let Ok(bed) = NativeBed::open(&options.native) else {
        return Vec::new();
    };
    let known = bed.tolerances().map(|known| known.tolerance.as_slice());
    let ran_otherwise = |tolerance: &&Tolerance| {
        rows.iter().any(|row| {
            row.entry.bed == BedKind::Native
                && row.entry.id == tolerance.case
                && !matches!(row.verdict, Verdict::Deviation(_) | Verdict::Skipped(_))
        })
    };
    known
        .unwrap_or_default()
        .iter()
        .filter(ran_otherwise)
        .cloned()
        .collect()
}

fn run_one(entry: Entry, options: &RunOptions, capture: Option<&mut Capture>) -> io::Result<Row> {
    if let Some(missing) = entry.missing {
        let verdict = Verdict::Skipped(missing.to_owned());
        return Ok(Row {
            entry,
            verdict,
            elapsed: Duration::ZERO,
            capture: None,
            completions: Vec::new(),
        });
    }
    let mut bed_options = options.bed_options();
    if let Some(capture) = &capture {
        bed_options.capture = Some(capture.part());
    }
    let on_failure = options.failures.as_deref().and_then(|folder| {
        fs::create_dir_all(folder).ok()?;
        Some(folder.join(format!("{}-{}.pcapng", entry.bed, entry.id)))
    });
    // A page shows the packets of what fails; real sockets keep none by themselves.
    let kept = on_failure.clone().filter(|_| {
        options.format == Format::Html && entry.bed == BedKind::Udp && bed_options.capture.is_none()
    });
    bed_options.capture = bed_options.capture.or_else(|| kept.clone());
    let mut outcome = run_entry(&entry, &bed_options, on_failure.as_deref());
    if let Some(kept) = kept {
        match outcome.verdict {
            Verdict::Pass | Verdict::Skipped(_) => drop(fs::remove_file(kept)),
            Verdict::Fail(_) | Verdict::Deviation(_) => {
                outcome.capture = outcome.capture.or_else(|| kept.exists().then_some(kept));
            }
        }
    }
    if let Some(capture) = capture {
        capture.append(&entry)?;
    }
    Ok(Row::of(entry, outcome))
}

/// What went wrong with the capture of a run.
fn unwritable(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("the capture {} cannot be written: {error}", path.display()),
    )
}

/// One file with the packets of all cases. Each case writes a file beside it, which is taken over and removed.
struct Capture {
    path: PathBuf,
    writer: NgWriter<io::BufWriter<fs::File>>,
}

impl Capture {
    fn create(path: &Path) -> io::Result<Self> {
        let file = fs::File::create(path).map_err(|error| unwritable(path, &error))?;
        let mut writer = NgWriter::new(io::BufWriter::new(file), LinkType::RawIp)?;
        // A full disk shows before the first case.
        writer.flush().map_err(|error| unwritable(path, &error))?;
        Ok(Capture {
            path: path.to_owned(),
            writer,
        })
    }

    fn part(&self) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(".part");
        name.into()
    }

    fn append(&mut self, entry: &Entry) -> io::Result<()> {
        let part = self.part();
        let Ok(file) = fs::File::open(&part) else {
            return Ok(());
        }; // The case sent no packet.
        let mut reader = Reader::new(io::BufReader::new(file)).map_err(io::Error::other)?;
        let label = format!("{} on {}: {}", entry.id, entry.bed, entry.title);
        let mut label = Some(label.as_str());
        while let Some(record) = reader.next_record().map_err(io::Error::other)? {
            let comment = label.take().or(record.comment);
            let time = record.timestamp_ns.unwrap_or(0);
            let written = self
                .writer
                .write_directed(time, record.data, record.direction, comment);
            written.map_err(|error| unwritable(&self.path, &error))?;
        }
        let flushed = self.writer.flush();
        flushed.map_err(|error| unwritable(&self.path, &error))?;
        fs::remove_file(part)
    }
}
