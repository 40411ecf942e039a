//! The provider through the traits that programs use.

mod events;
mod lifetimes;
mod manual;
mod pair;
mod threads;
mod traffic;
mod wire;
