//! The RDMA conformance suite, generic over the provider.
