//! `whin devices`: what this machine can compute with.

use std::process::ExitCode;

use anyhow::Result;
use serde_json::json;
use whin::memory::size;

use crate::out;

/// Lists the devices found
#[derive(clap::Args)]
pub struct Args {
    /// Print one JSON list
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub fn run(args: &Args) -> Result<ExitCode> {
    let devices = whin::devices();
    if args.json {
        let entry = |device: &whin::DeviceInfo| {
            json!({
                "id": device.id,
                "name": device.name,
                "memory_bytes": device.memory,
                "available_bytes": device.available,
                "detail": device.detail,
            })
        };
        out::json(&devices.iter().map(entry).collect())?;
        return Ok(ExitCode::SUCCESS);
    }
    let unknown = || "?".to_owned();
    for device in devices {
        out::text(&format!(
            "{:<10} {} · {} of memory, {} free · {}\n",
            device.id,
            device.name,
            device.memory.map_or_else(unknown, size),
            device.available.map_or_else(unknown, size),
            device.detail,
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}
