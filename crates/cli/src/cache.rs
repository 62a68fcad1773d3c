//! `whin cache`: what packed weights there are, and how to be rid of them.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Result;
use clap::Subcommand;
use serde_json::json;
use whin::cache::{Cached, folders_of, list, remove};
use whin::memory::size;

use crate::model::{Weights, invalid};
use crate::out;

/// Lists or removes the packed weights that make loading quick
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Lists them
    List {
        #[command(flatten)]
        places: Places,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Removes them; they are made again when the checkpoint is loaded
    Rm {
        #[command(flatten)]
        places: Places,
        /// Remove the weights in this form only
        #[arg(long, value_enum)]
        weights: Option<Weights>,
        /// Remove all that `whin cache list` shows without --model
        #[arg(long, conflicts_with = "model")]
        all: bool,
    },
}

#[derive(clap::Args)]
struct Places {
    /// Folder of a checkpoint, or its name on the hub; may be given several times [default: all that can be found in the
    /// user's cache folder and in that of the hub]
    #[arg(short, long, value_name = "FOLDER|NAME")]
    model: Vec<PathBuf>,
    /// The folder that was given with --cache-dir or --out [default: the user's cache folder]
    #[arg(long, value_name = "FOLDER")]
    cache_dir: Option<PathBuf>,
}

impl Places {
    fn list(&self) -> Result<Vec<Cached>> {
        let mut checkpoints = Vec::new();
        for model in &self.model {
            checkpoints.extend(folders_of(model)?);
        }
        Ok(list(self.cache_dir.as_deref(), &checkpoints)?)
    }
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::List { places, json } => show(&places.list()?, *json),
        Command::Rm { places, .. } if places.model.is_empty() && !is_all(&args.command) => {
            Err(invalid("say which: --model FOLDER, or --all").into())
        }
        Command::Rm { places, weights, .. } => {
            let mut found = places.list()?;
            let form = weights.map(|weights| weights.form().name());
            found.retain(|cached| form.is_none() || cached.form.as_deref() == form);
            for cached in &found {
                remove(cached)?;
                out::text(&format!("removed {} ({})\n", cached.folder.display(), size(cached.bytes)))?;
            }
            if found.is_empty() {
                out::note("nothing to remove");
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn is_all(command: &Command) -> bool {
    matches!(command, Command::Rm { all: true, .. })
}

fn show(found: &[Cached], as_json: bool) -> Result<ExitCode> {
    if as_json {
        let one = |cached: &Cached| {
            let since = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).ok();
            json!({
                "folder": cached.folder,
                "checkpoint": cached.checkpoint,
                "weights": cached.form,
                "bytes": cached.bytes,
                "written": cached.written.and_then(since).map(|time| time.as_secs()),
            })
        };
        out::json(&json!({ "caches": found.iter().map(one).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for cached in found {
        let what = match (&cached.form, &cached.checkpoint) {
            (Some(form), Some(checkpoint)) => format!("{form:<8} of {}", checkpoint.display()),
            _ => "unfinished or damaged".to_owned(),
        };
        out::text(&format!("{:>10}  {what}\n            {}\n", size(cached.bytes), cached.folder.display()))?;
    }
    if found.is_empty() {
        out::note("no packed weights; those beside a checkpoint elsewhere are listed with --model FOLDER");
    }
    Ok(ExitCode::SUCCESS)
}
