//! Enums whose numbers are those of C: from the number and back.

/// Give an enum `ALL`, `code` and `from_code`.
macro_rules! codes {
    ($name:ident: $($variant:ident),* $(,)?) => {
        impl $name {
            /// All of them, in the order of their numbers.
            pub const ALL: [$name; [$($name::$variant),*].len()] = [$($name::$variant),*];

            /// The number that C uses.
            pub const fn code(self) -> u32 {
                self as u32
            }

            /// From the number that C uses; `None` when it names nothing.
            pub fn from_code(code: u32) -> Option<Self> {
                Self::ALL.into_iter().find(|each| each.code() == code)
            }
        }
    };
}
pub(crate) use codes;

#[cfg(test)]
mod tests {
    use crate::*;

    #[test]
    fn numbers_are_those_of_c_both_ways() {
        assert_eq!(WcStatus::from_code(12), Some(WcStatus::RetryExcErr));
        assert_eq!(WcOpcode::from_code(128), Some(WcOpcode::Recv));
        assert_eq!(WcOpcode::from_code(7), None);
        assert_eq!(QpState::from_code(3), Some(QpState::Rts));
        assert_eq!(QpState::from_code(7), None);
        assert_eq!(QpType::from_code(10), Some(QpType::XrcTarget));
        assert_eq!(EventKind::from_code(18), Some(EventKind::GidChange));
        assert_eq!(CmEventKind::from_code(10), Some(CmEventKind::Disconnected));
        assert_eq!(CmEventKind::from_code(19), None);
        for kind in CmEventKind::ALL {
            assert_eq!(CmEventKind::from_code(kind.code()), Some(kind));
        }
        for status in WcStatus::ALL {
            assert_eq!(WcStatus::from_code(status.code()), Some(status));
        }
        for kind in EventKind::ALL {
            assert_eq!(EventKind::from_code(kind.code()), Some(kind));
        }
    }
}
