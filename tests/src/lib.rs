//! End-to-end tests with foreign programs, namespaces and captures.
