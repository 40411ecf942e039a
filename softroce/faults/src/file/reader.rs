//! Takes a table of a file apart, key by key, and knows where everything stands.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value with its place.
pub(super) type Value<'a> = Spanned<DeValue<'a>>;

/// Something is wrong at these bytes.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) at: Range<usize>,
    pub(super) reason: String,
    pub(super) help: String,
}

impl Fault {
    pub(super) fn new(at: Range<usize>, reason: impl Into<String>, help: impl Into<String>) -> Fault {
        Fault {
            at,
            reason: reason.into(),
            help: help.into(),
        }
    }

    /// The value of a key is not what it should be.
    pub(super) fn wrong(value: &Value<'_>, help: impl Into<String>) -> Fault {
        let reason = match value.get_ref() {
            DeValue::String(text) => format!("{:?} does not fit here", text),
            DeValue::Integer(number) => format!("{number} does not fit here"),
            DeValue::Float(number) => format!("{number} does not fit here"),
            other => format!("a value of the kind {} does not fit here", other.type_str()),
        };
        Fault::new(value.span(), reason, help)
    }
}

/// A table whose keys are taken one after the other.
pub(super) struct Reader<'a> {
    at: Range<usize>,
    table: &'a DeTable<'a>,
    what: &'static str,
    known: Vec<&'static str>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(at: Range<usize>, table: &'a DeTable<'a>, what: &'static str) -> Self {
        Reader {
            at,
            table,
            what,
            known: Vec::new(),
        }
    }

    fn value(&mut self, key: &'static str) -> Option<&'a Value<'a>> {
        self.known.push(key);
        self.table
            .iter()
            .find(|(name, _)| name.get_ref() == key)
            .map(|(_, value)| value)
    }

    /// Where the value of a key stands, or else the table.
    pub(super) fn place_of(&self, key: &str) -> Range<usize> {
        let found = self.table.iter().find(|(name, _)| name.get_ref() == key);
        found.map_or(self.at.clone(), |(_, value)| value.span())
    }

    pub(super) fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&Value<'a>) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.value(key).map(read).transpose()
    }

    pub(super) fn required<T>(
        &mut self,
        key: &'static str,
        help: &str,
        read: impl FnOnce(&Value<'a>) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let (at, what) = (self.at.clone(), self.what);
        self.optional(key, read)?
            .ok_or_else(|| Fault::new(at, format!("{what} has no `{key}`"), help))
    }

    /// The tables of an array such as `[[packet]]`.
    pub(super) fn tables(&mut self, key: &'static str) -> Result<Vec<Reader<'a>>, Fault> {
        let Some(value) = self.value(key) else {
            return Ok(Vec::new());
        };
        let help = || format!("rules begin with [[{key}]], in two brackets");
        let DeValue::Array(items) = value.get_ref() else {
            return Err(Fault::wrong(value, help()));
        };
        items
            .iter()
            .map(|item| match item.get_ref() {
                DeValue::Table(table) => Ok(Reader::new(item.span(), table, "this rule")),
                _ => Err(Fault::wrong(item, help())),
            })
            .collect()
    }

    /// Nothing may be left that nobody asked for.
    pub(super) fn finish(&self) -> Result<(), Fault> {
        for (name, _) in self.table {
            let key = name.get_ref().as_ref();
            if !self.known.contains(&key) {
                let help = suggestion(key, self.known.iter().copied());
                return Err(Fault::new(
                    name.span(),
                    format!("{} has no key `{key}`", self.what),
                    help,
                ));
            }
        }
        Ok(())
    }
}

/// What was probably meant, or else all that there is.
pub(super) fn suggestion<'w>(word: &str, known: impl Iterator<Item = &'w str> + Clone) -> String {
    if let Some(whole) = known
        .clone()
        .find(|other| word.len() >= 4 && other.starts_with(word))
    {
        return format!("did you mean `{whole}`?");
    }
    let nearest = known
        .clone()
        .map(|other| (distance(word, other), other))
        .min_by_key(|(distance, _)| *distance);
    match nearest {
        Some((distance, other)) if distance <= 1 + other.len() / 4 => format!("did you mean `{other}`?"),
        _ => format!("there are: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// Letters to be changed, added or left out to make one word of the other.
fn distance(a: &str, b: &str) -> usize {
    // What nobody mistypes needs no table.
    if a.len() > 64 {
        return a.len();
    }
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, letter) in a.chars().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, other) in b.iter().enumerate() {
            let changed = corner + usize::from(letter != *other);
            corner = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}
