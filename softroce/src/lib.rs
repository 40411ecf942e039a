//! A user-space RDMA network card: the provider, its progress and its UDP fabric.
