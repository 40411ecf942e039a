//! RoCEv2 on the wire: bytes to values and back, with no I/O and no clock.
