//! libibverbs.so.1 as a drop-in: unmodified programs run on softroce.
