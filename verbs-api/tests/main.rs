//! Values and tables of the verbs. One program, so that what it stands on is linked once.

mod table;
mod values;
