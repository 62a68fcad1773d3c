//! The command `whin`: one file a subcommand.
//!
//! Results go to stdout, everything else to stderr. Exit codes: 0, 1 for a failure, 2 for wrong usage, 130 after
//! Ctrl-C.

mod answer;
mod bench;
mod cache;
mod chat;
mod devices;
mod faults;
mod formats;
mod inspect;
mod interrupt;
mod messages;
mod model;
mod out;
mod prepare;
mod run;
mod sampling;
mod score;
mod tokenize;
mod warnings;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// Runs Hugging Face language-model checkpoints on this machine.
#[derive(Parser)]
#[command(name = "whin", version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Box<run::Args>),
    Chat(Box<chat::Args>),
    Score(score::Args),
    Bench(bench::Args),
    Inspect(inspect::Args),
    Tokenize(tokenize::Args),
    Devices(devices::Args),
    Prepare(prepare::Args),
    Cache(cache::Args),
}

fn main() -> ExitCode {
    let command = Cli::parse().command;
    warnings::show();
    #[cfg(unix)]
    faults::let_writes_fail();
    faults::guard(|| run(&command).unwrap_or_else(|error| out::failure(&error)))
}

fn run(command: &Command) -> Result<ExitCode> {
    match command {
        Command::Run(args) => run::run(args),
        Command::Chat(args) => chat::run(args),
        Command::Score(args) => score::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Inspect(args) => inspect::run(args),
        Command::Tokenize(args) => tokenize::run(args),
        Command::Devices(args) => devices::run(args),
        Command::Prepare(args) => prepare::run(args),
        Command::Cache(args) => cache::run(args),
    }
}
