//! `whin prepare`: packs a checkpoint's weights ahead of time.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use whin::{CacheMode, Device, Engine, Options};

use crate::model::{ModelArgs, VerifyArgs, Weights, progress_bar, shown_by};
use crate::out;

/// Packs the weights of a checkpoint ahead of time, so that the first start is as quick as the others
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    model: ModelArgs,
    /// The form of the matrices to pack
    #[arg(long, value_enum, default_value_t = Weights::Auto)]
    weights: Weights,
    /// Write into this folder, to be named with --cache-dir when the checkpoint is run [default: .whin-cache in the
    /// checkpoint's folder, else the user's cache folder]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
    #[command(flatten)]
    verify: VerifyArgs,
    /// Where the checkpoint is to be computed: auto, cpu
    #[arg(long, default_value = "auto", value_name = "DEVICE")]
    device: String,
    /// Threads of the processor [default: all that this process may use]
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let checkpoint = args.model.open()?;
    let options = Options {
        device: args.device.parse::<Device>()?,
        weights: args.weights.form(),
        threads: args.threads,
        cache: args.out.clone().map_or(CacheMode::Auto, CacheMode::Folder),
        verify: args.verify.way(),
        ..Options::default()
    };
    let started = Instant::now();
    let bar = progress_bar("packing");
    let prepared = Engine::prepare(&checkpoint, &options, &mut shown_by(&bar));
    bar.finish_and_clear();
    let prepared = prepared?;
    let seconds = started.elapsed().as_secs_f64();
    let folder = prepared.folder.display();
    if args.json {
        let folder = folder.to_string();
        out::json(&json!({ "folder": folder, "is_new": prepared.is_new, "seconds": seconds }))?;
    } else if prepared.is_new {
        out::text(&format!("packed in {seconds:.2} s into {folder}\n"))?;
    } else {
        out::text(&format!("packed already in {folder}\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
