//! The provider through the traits that programs use.

mod datagram;
mod events;
mod kinds;
mod lifetimes;
mod manual;
pub mod pair;
mod threads;
mod traffic;
pub mod wire;
mod xrc;
