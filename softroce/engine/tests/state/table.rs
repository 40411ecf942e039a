//! The reviewed table of what `modify_qp` takes, read from its snapshot.

use std::sync::OnceLock;

use verbs_api::{QpAttrMask, QpState, QpType};

/// What a way takes besides the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    pub required: QpAttrMask,
    pub optional: QpAttrMask,
}

type Row = (String, QpState, QpState, Option<Way>);

/// `None` where there is no such way.
pub fn way(qp_type: QpType, from: QpState, to: QpState) -> Option<Way> {
    static ROWS: OnceLock<Vec<Row>> = OnceLock::new();
    let rows = ROWS.get_or_init(read);
    let name = format!("{qp_type:?}");
    let row = rows
        .iter()
        .find(|row| row.0 == name && row.1 == from && row.2 == to);
    row.expect("every way stands in the table").3
}

fn read() -> Vec<Row> {
    let mut rows = Vec::new();
    let mut qp_type = String::new();
    for line in include_str!("../../src/qp/transition/table.txt").lines() {
        let Some(row) = line.strip_prefix("  ") else {
            qp_type = line.to_owned();
            continue;
        };
        let (from, rest) = row.split_once(" -> ").unwrap();
        let (to, taken) = rest.split_once(' ').unwrap();
        let taken = taken.trim();
        let way = (taken != "no").then(|| {
            let (required, optional) = taken.split_once("] may [").unwrap();
            Way {
                required: mask(required.strip_prefix("needs [").unwrap()),
                optional: mask(optional.strip_suffix(']').unwrap()),
            }
        });
        rows.push((qp_type.clone(), state(from), state(to), way));
    }
    assert_eq!(rows.len(), 7 * 49);
    rows
}

fn mask(names: &str) -> QpAttrMask {
    names
        .split(", ")
        .filter(|name| !name.is_empty())
        .map(|name| QpAttrMask::from_name(name).unwrap())
        .collect()
}

fn state(name: &str) -> QpState {
    *QpState::ALL
        .iter()
        .find(|state| format!("{state:?}").to_uppercase() == name)
        .unwrap()
}
