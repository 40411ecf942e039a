//! Texts for numbers, and conversions between units of speed.

use std::ffi::{CStr, CString, c_char, c_int};
use std::sync::OnceLock;

use softroce::announce;
use verbs_api::{EventKind, WcStatus};

/// Texts as C strings, made once.
struct Texts(OnceLock<Vec<CString>>);

impl Texts {
    fn get(&self, code: c_int, all: impl Fn() -> Vec<&'static str>) -> *const c_char {
        let texts = self.0.get_or_init(|| {
            announce::start();
            let made = all()
                .into_iter()
                .map(|text| CString::new(text).unwrap_or_default())
                .collect();
            announce::given(&raw const *self);
            made
        });
        announce::taken(&raw const *self);
        let found = usize::try_from(code).ok().and_then(|code| texts.get(code));
        found.map_or(c"unknown".as_ptr(), |text| text.as_ptr())
    }
}

/// `ibv_wc_status_str`
pub(crate) extern "C" fn ibv_wc_status_str(status: c_int) -> *const c_char {
    static TEXTS: Texts = Texts(OnceLock::new());
    TEXTS.get(status, || WcStatus::ALL.map(WcStatus::describe).to_vec())
}

/// `ibv_event_type_str`
pub(crate) extern "C" fn ibv_event_type_str(kind: c_int) -> *const c_char {
    static TEXTS: Texts = Texts(OnceLock::new());
    TEXTS.get(kind, || EventKind::ALL.map(EventKind::describe).to_vec())
}

fn pick(texts: &'static [&'static CStr], code: c_int) -> *const c_char {
    usize::try_from(code)
        .ok()
        .and_then(|code| texts.get(code))
        .copied()
        .unwrap_or(c"unknown")
        .as_ptr()
}

/// `ibv_node_type_str`
pub(crate) extern "C" fn ibv_node_type_str(kind: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"unknown",
        c"InfiniBand channel adapter",
        c"InfiniBand switch",
        c"InfiniBand router",
        c"iWARP NIC",
        c"usNIC",
        c"usNIC UDP",
        c"unspecified",
    ];
    pick(TEXTS, kind)
}

/// `ibv_port_state_str`
pub(crate) extern "C" fn ibv_port_state_str(state: c_int) -> *const c_char {
    const TEXTS: &[&CStr] = &[
        c"no state change (NOP)",
        c"DOWN",
        c"INIT",
        c"ARMED",
        c"ACTIVE",
        c"ACTIVE_DEFER",
    ];
    pick(TEXTS, state)
}

/// Codes of `ibv_rate`, multiples of 2.5 Gbit/s where they are whole, and Mbit/s.
const RATES: [(c_int, Option<c_int>, c_int); 24] = [
    (2, Some(1), 2_500),
    (5, Some(2), 5_000),
    (3, Some(4), 10_000),
    (6, Some(8), 20_000),
    (4, Some(12), 30_000),
    (7, Some(16), 40_000),
    (8, Some(24), 60_000),
    (9, Some(32), 80_000),
    (10, Some(48), 120_000),
    (11, None, 14_062),
    (12, None, 56_250),
    (13, None, 112_500),
    (14, None, 168_750),
    (15, None, 25_781),
    (16, None, 103_125),
    (17, None, 206_250),
    (18, None, 309_375),
    (19, Some(11), 28_125),
    (20, Some(20), 53_125),
    (21, Some(160), 425_000),
    (22, Some(240), 637_500),
    (23, Some(320), 850_000),
    (24, Some(480), 1_275_000),
    (0, None, 0),
];

/// `ibv_rate_to_mult`: -1 for what is no multiple.
pub(crate) extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES
        .iter()
        .find(|(code, _, _)| *code == rate)
        .and_then(|(_, multiple, _)| *multiple)
        .unwrap_or(-1)
}

/// `mult_to_ibv_rate`: 0 (the port's own rate) for what is no rate.
pub(crate) extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    RATES
        .iter()
        .find(|(_, each, _)| *each == Some(multiple))
        .map_or(0, |(code, _, _)| *code)
}

/// `ibv_rate_to_mbps`: -1 for what is no rate.
pub(crate) extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES
        .iter()
        .find(|(code, _, _)| *code == rate)
        .map_or(-1, |(_, _, mbps)| *mbps)
}

/// `mbps_to_ibv_rate`: 0 (the port's own rate) for what is no rate.
pub(crate) extern "C" fn mbps_to_ibv_rate(mbps: c_int) -> c_int {
    RATES
        .iter()
        .find(|(_, _, each)| *each == mbps)
        .map_or(0, |(code, _, _)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(pointer: *const c_char) -> &'static str {
        // SAFETY: our texts are C strings that live for ever.
        unsafe { CStr::from_ptr(pointer) }.to_str().unwrap()
    }

    #[test]
    fn numbers_have_texts_and_unknown_ones_are_said_to_be() {
        assert_eq!(text(ibv_wc_status_str(12)), "transport retries exhausted");
        assert_eq!(text(ibv_wc_status_str(99)), "unknown");
        assert_eq!(text(ibv_wc_status_str(-1)), "unknown");
        assert_eq!(text(ibv_event_type_str(18)), "GID table changed");
        assert_eq!(text(ibv_port_state_str(4)), "ACTIVE");
        assert_eq!(text(ibv_node_type_str(-1)), "unknown");
    }

    #[test]
    fn rates_lead_to_multiples_and_speeds_and_back() {
        for (code, multiple, mbps) in RATES {
            assert_eq!(mbps_to_ibv_rate(mbps), code);
            assert_eq!(ibv_rate_to_mbps(code), mbps);
            if let Some(multiple) = multiple {
                assert_eq!(mult_to_ibv_rate(multiple), code);
                assert_eq!(ibv_rate_to_mult(code), multiple);
            }
        }
        assert_eq!(ibv_rate_to_mult(999), -1);
    }
}
