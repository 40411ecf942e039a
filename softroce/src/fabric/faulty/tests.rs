//! On a fabric that keeps what is sent and gives what it is told.
