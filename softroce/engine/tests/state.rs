//! States of queue pairs in virtual time: transitions, draining, path migration, limits, events.

mod completion_queue;
mod draining;
mod events;
mod limits;
mod matrix;
mod migration;
mod subject;
mod table;
mod transitions;
