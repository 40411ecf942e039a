//! Sets of opcodes, by exact names and by classes.

use roce_wire::{Opcode, OpcodeInfo, Operation, Transport};

/// Opcodes that a rule is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpcodeSet {
    bits: [u64; 4],
}

/// A word that names neither an opcode nor a class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownOpcode;

/// A class and what is in it.
type Class = (&'static str, fn(&OpcodeInfo) -> bool);

/// Every class with its word. NAK and RNR NAK share the opcode of the acknowledgement; see
/// [`Select::syndrome`](crate::Select).
const CLASSES: &[Class] = &[
    ("request", |info| info.is_request()),
    ("response", |info| info.is_response()),
    ("send", |info| info.operation == Operation::Send),
    ("write", |info| info.operation == Operation::Write),
    ("read-request", |info| info.operation == Operation::ReadRequest),
    ("read-response", |info| info.operation == Operation::ReadResponse),
    ("acknowledge", |info| info.operation == Operation::Acknowledge),
    ("atomic", |info| {
        matches!(info.operation, Operation::CompareSwap | Operation::FetchAdd)
    }),
    ("atomic-response", |info| {
        info.operation == Operation::AtomicAcknowledge
    }),
    ("atomic-write", |info| info.operation == Operation::AtomicWrite),
    ("flush", |info| info.operation == Operation::Flush),
    ("cnp", |info| info.operation == Operation::CongestionNotification),
    ("first", |info| info.position == roce_wire::Position::First),
    ("middle", |info| info.position == roce_wire::Position::Middle),
    ("last", |info| info.position == roce_wire::Position::Last),
    ("only", |info| info.position == roce_wire::Position::Only),
    ("immediate", |info| info.headers.immediate),
    ("rc", |info| info.transport == Transport::Rc),
    ("uc", |info| info.transport == Transport::Uc),
    ("ud", |info| info.transport == Transport::Ud),
    ("xrc", |info| info.transport == Transport::Xrc),
];

impl OpcodeSet {
    /// Every opcode, reserved ones too.
    pub const ANY: OpcodeSet = OpcodeSet { bits: [u64::MAX; 4] };
    /// None.
    pub const NONE: OpcodeSet = OpcodeSet { bits: [0; 4] };

    /// This one.
    pub fn exactly(opcode: Opcode) -> OpcodeSet {
        let mut set = OpcodeSet::NONE;
        set.insert(opcode);
        set
    }

    /// Those of a class, as [`OpcodeSet::named`] knows them.
    fn of_class(belongs: fn(&OpcodeInfo) -> bool) -> OpcodeSet {
        let mut set = OpcodeSet::NONE;
        for value in 0..=u8::MAX {
            let opcode = Opcode::new(value);
            if opcode.info().is_some_and(belongs) {
                set.insert(opcode);
            }
        }
        set
    }

    /// An exact name such as `RC_SEND_ONLY`, a class such as `read-response`, a number such as `0x04`, or several classes
    /// that must all hold, such as `rc send last`.
    ///
    /// # Errors
    /// The word names nothing.
    pub fn named(text: &str) -> Result<OpcodeSet, UnknownOpcode> {
        let mut set = OpcodeSet::ANY;
        let mut words = text.split_whitespace().peekable();
        if words.peek().is_none() {
            return Err(UnknownOpcode);
        }
        for word in words {
            let named = OpcodeSet::word(word).ok_or(UnknownOpcode)?;
            for (bits, other) in set.bits.iter_mut().zip(named.bits) {
                *bits &= other;
            }
        }
        if set == OpcodeSet::NONE {
            return Err(UnknownOpcode);
        }
        Ok(set)
    }

    fn word(word: &str) -> Option<OpcodeSet> {
        if let Some((_, belongs)) = CLASSES.iter().find(|(name, _)| *name == word) {
            return Some(OpcodeSet::of_class(*belongs));
        }
        if let Some(digits) = word.strip_prefix("0x") {
            let value = u8::from_str_radix(digits, 16).ok()?;
            return Some(OpcodeSet::exactly(Opcode::new(value)));
        }
        (0..=u8::MAX)
            .map(Opcode::new)
            .find(|opcode| opcode.info().is_some() && opcode.to_string() == word)
            .map(OpcodeSet::exactly)
    }

    /// The words for classes.
    pub fn classes() -> impl Iterator<Item = &'static str> + Clone {
        CLASSES.iter().map(|(name, _)| *name)
    }

    /// Those of both.
    #[must_use]
    pub fn or(mut self, other: &OpcodeSet) -> OpcodeSet {
        for (bits, other) in self.bits.iter_mut().zip(other.bits) {
            *bits |= other;
        }
        self
    }

    fn insert(&mut self, opcode: Opcode) {
        let value = usize::from(opcode.value());
        self.bits[value / 64] |= 1 << (value % 64);
    }

    /// Whether it is one of them.
    pub fn contains(&self, opcode: Opcode) -> bool {
        let value = usize::from(opcode.value());
        self.bits[value / 64] & (1 << (value % 64)) != 0
    }
}

impl Default for OpcodeSet {
    fn default() -> Self {
        OpcodeSet::ANY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_classes_and_numbers_name_opcodes() {
        assert_eq!(
            OpcodeSet::named("RC_SEND_ONLY"),
            Ok(OpcodeSet::exactly(Opcode::RC_SEND_ONLY))
        );
        assert_eq!(
            OpcodeSet::named("0x04"),
            Ok(OpcodeSet::exactly(Opcode::RC_SEND_ONLY))
        );
        let last = OpcodeSet::named("rc send last").unwrap();
        assert!(last.contains(Opcode::RC_SEND_LAST) && last.contains(Opcode::RC_SEND_LAST_WITH_INVALIDATE));
        assert!(!last.contains(Opcode::UC_SEND_LAST) && !last.contains(Opcode::RC_SEND_ONLY));
        assert_eq!(OpcodeSet::named("cnp"), Ok(OpcodeSet::exactly(Opcode::CNP)));
        for text in ["", "sned", "RC_SEND", "0x100", "first last"] {
            assert_eq!(OpcodeSet::named(text), Err(UnknownOpcode), "{text:?}");
        }
    }

    #[test]
    fn every_class_has_an_opcode() {
        for class in OpcodeSet::classes() {
            assert!(OpcodeSet::named(class).is_ok(), "{class}");
        }
    }
}
