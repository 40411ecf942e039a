//! The protocol core of softroce: no socket, no clock, no thread.
