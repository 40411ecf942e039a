//! The provider through the traits that programs use.

mod datagram;
mod events;
mod kinds;
mod lifetimes;
mod manual;
mod pair;
mod threads;
mod traffic;
mod wire;
mod xrc;
