//! What the rules of a process have done, kept outside of it: `softroce run` reads it at the end, however that came.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use softroce_faults::{Effect, Injector, RULES_MAX, Tally};

use crate::journal;

/// Bytes of a rule's two numbers, each with a blank behind it.
const NUMBERS_BYTES: usize = 42;
/// The longest line: the numbers, a letter, a name, and the end of the line.
const LINE_BYTES_MAX: u64 = 42 + 1 + 200 + 8;

/// The file.
pub(super) struct Book {
    file: File,
    /// Where the line of each rule begins, and the counts that stand in it.
    lines: Vec<(u64, u64)>,
}

impl Book {
    /// In the directory of the run, if there is one and it can be written.
    pub(super) fn open(tallies: &[Tally]) -> Option<Book> {
        let directory = journal::directory()?;
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(journal::own_name(directory, "faults"))
            .ok()?;
        let mut text = String::new();
        let mut lines = Vec::with_capacity(tallies.len());
        for tally in tallies {
            lines.push((text.len() as u64, 0));
            text.push_str(&numbers(0, 0));
            text.push(letter(tally.effect));
            text.push_str(&tally.name);
            text.push('\n');
        }
        file.write_all_at(text.as_bytes(), 0).ok()?;
        Some(Book { file, lines })
    }

    /// Write down what is new.
    pub(super) fn keep(&mut self, injector: &Injector) {
        for ((at, written), (matched, hits)) in self.lines.iter_mut().zip(injector.counts()) {
            // What only matched is written along with the next hit.
            if *written != hits {
                *written = hits;
                let _ = self.file.write_all_at(numbers(matched, hits).as_bytes(), *at);
            }
        }
    }
}

/// What stands in front of a rule's name.
const fn letter(effect: Effect) -> char {
    match effect {
        Effect::Takes => 'T',
        Effect::Spoils => 'S',
        Effect::Changes => 'C',
        Effect::HoldsBack => 'H',
        Effect::Makes => 'M',
        Effect::Other => '-',
    }
}

fn numbers(matched: u64, hits: u64) -> String {
    format!("{matched:>20} {hits:>20} ")
}

/// What a rule has done in one process, as it stands in a book.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its name.
    pub name: String,
    /// What it does to packets.
    pub effect: Effect,
    /// Its hits.
    pub hits: u64,
}

/// All pages of the books in a run's directory. What is none is passed over.
pub fn pages(directory: &Path) -> Vec<Page> {
    let mut books: Vec<_> = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .map(|file| file.path())
        .filter(|path| path.extension().is_some_and(|kind| kind == "faults"))
        .collect();
    books.sort();
    books.iter().flat_map(|book| read(book)).collect()
}

fn read(book: &Path) -> Vec<Page> {
    let mut text = String::new();
    let longest = RULES_MAX as u64 * LINE_BYTES_MAX;
    let Ok(file) = File::open(book) else {
        return Vec::new();
    };
    if file.take(longest).read_to_string(&mut text).is_err() {
        return Vec::new();
    }
    text.lines().filter_map(page).collect()
}

fn page(line: &str) -> Option<Page> {
    let (numbers, name) = line.split_at_checked(NUMBERS_BYTES)?;
    let hits = numbers.get(21..)?.trim().parse().ok()?;
    let mut name = name.chars();
    let first = name.next()?;
    let effect = Effect::ALL.into_iter().find(|effect| letter(*effect) == first)?;
    Some(Page {
        name: name.as_str().to_owned(),
        effect,
        hits,
    })
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_page_and_noise_is_none() {
        let line = format!("{}Tloss of one in a hundred", numbers(100, 7));
        let wanted = Page {
            name: "loss of one in a hundred".into(),
            effect: Effect::Takes,
            hits: 7,
        };
        assert_eq!(page(&line), Some(wanted));
        assert_eq!(page(&format!("{}?x", numbers(1, 1))), None);
        assert_eq!(numbers(u64::MAX, u64::MAX).len(), NUMBERS_BYTES);
        for noise in ["", "1 2 x", &"é".repeat(60), &" ".repeat(60)] {
            assert_eq!(page(noise), None, "{noise:?}");
        }
    }
}
