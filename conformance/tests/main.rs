//! The suite about itself. One program, so that what it stands on is linked once.

mod analysis;
mod leftovers;
mod report;
