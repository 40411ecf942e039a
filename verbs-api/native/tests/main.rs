//! Libraries that are missing, that lie, or that do not belong together.

mod cm;
mod library;
