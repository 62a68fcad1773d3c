//! The real binary, run as a user runs it: one module a theme.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

mod bench;
mod cache;
mod chat;
mod checkpoints;
mod failures;
mod hub;
mod hub_cache;
mod hub_server;
mod interrupt;
mod output;
mod process;
mod reports;
mod run;
mod sampling;
