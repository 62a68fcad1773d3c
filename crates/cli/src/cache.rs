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
        let mut gone = Vec::new();
        for model in &self.model {
            match folders_of(model) {
                Ok(folders) => checkpoints.extend(folders),
                Err(error) => gone.push((model, error)),
            }
        }
        let shared = self.cache_dir.as_deref();
        let mut found = if gone.len() < self.model.len() || gone.is_empty() {
            list(shared, &checkpoints)?
        } else {
            Vec::new()
        };
        // Of a checkpoint that has been removed, packed weights may be left elsewhere.
        for (model, error) in gone {
            let mut left = list(shared, &[])?;
            left.retain(|cached| cached.checkpoint.as_deref() == Some(model));
            if left.is_empty() {
                return Err(error.into());
            }
            found.append(&mut left);
        }
        Ok(found)
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
            found.retain(|cached| form.is_none_or(|form| cached.form == form));
            let mut failure = None;
            for cached in &found {
                match remove(cached) {
                    Ok(()) => {
                        out::text(&format!("removed {}, {}\n", cached.folder.display(), size(cached.bytes)))?
                    }
                    // The others can go all the same.
                    Err(error) => failure = failure.or(Some(error)),
                }
            }
            if let Some(error) = failure {
                return Err(error.into());
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
                "folder": cached.folder.display().to_string(),
                "checkpoint": cached.checkpoint.as_ref().map(|path| path.display().to_string()),
                "weights": cached.form,
                "bytes": cached.bytes,
                "written": cached.written.and_then(since).map(|time| time.as_secs()),
            })
        };
        out::json(&json!({ "caches": found.iter().map(one).collect::<Vec<_>>() }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for cached in found {
        let of = match &cached.checkpoint {
            Some(checkpoint) => format!("of {}", checkpoint.display()),
            None => "unfinished or damaged".to_owned(),
        };
        let (bytes, folder) = (size(cached.bytes), cached.folder.display());
        out::text(&format!("{bytes:>10}  {:<8} {of}\n            {folder}\n", cached.form))?;
    }
    if found.is_empty() {
        out::note("no packed weights; those beside a checkpoint elsewhere are listed with --model FOLDER");
    }
    Ok(ExitCode::SUCCESS)
}
