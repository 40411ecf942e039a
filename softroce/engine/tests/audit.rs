//! A second look at reliable connections, by somebody who did not write them: suspicions that became tests.

mod completions;
mod crossfire;
mod requester;
mod responder;
mod swarm;
mod turnover;
