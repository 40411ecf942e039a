//! The captures of the kernel, and the corpus of the fuzz target. One program, so that what it stands on is linked once.

mod captures;
mod cm_captures;
mod corpus;
