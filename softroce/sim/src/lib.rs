//! Virtual time and lossy links around unchanged softroce engines.
