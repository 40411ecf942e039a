//! The command as a program. One program, so that what it stands on is linked once.

mod output;
mod refusals;
mod run;
