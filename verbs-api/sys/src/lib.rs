//! The C structs of libibverbs, as Rust mirrors.
