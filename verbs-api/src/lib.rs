//! The verbs API of RDMA as Rust traits that any provider can implement.
