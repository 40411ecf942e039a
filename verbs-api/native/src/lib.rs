//! The provider backed by libibverbs, opened at run time.
