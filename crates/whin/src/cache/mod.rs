//! The load cache: packed weights in files, exactly as a backend reads them, so that a checkpoint is converted once.
//!
//! Each checkpoint and form of weights has a folder, the *cell*, with `manifest.json`, one file of weights and
//! `witness.json`. The manifest says what the weights were made from and where each lies; the head of the weights holds
//! the manifest's SHA-256. Whatever does not fit, in whatever way, makes the cell worthless, never wrong: the checkpoint
//! is then converted again, and the cell replaced. Knows files and bytes; what a model needs of them is `model/weights`'
//! business.

mod cell;
mod manifest;
mod places;
mod reader;
mod sources;
mod writer;

use std::path::PathBuf;

pub(crate) use cell::{Cell, Keeper, Kept};
pub use places::{Cached, folders_of, list, remove};
pub(crate) use reader::Packed;
pub(crate) use sources::Sources;

/// Rises whenever the same checkpoint would be packed into other numbers. Tests pin what this version makes.
pub(crate) const QUANTISER: u32 = 2;

/// Where packed weights are kept.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum CacheMode {
    /// In the checkpoint's own folder, under `.whin-cache`, or where that cannot be written in the user's cache folder.
    #[default]
    Auto,
    /// In this folder, which may hold those of many checkpoints.
    Folder(PathBuf),
    /// Nowhere: each load converts the checkpoint.
    Off,
}

/// How closely the files of a checkpoint are compared with those that its cache was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// By size, times and samples; where the times differ, by their whole contents.
    #[default]
    Quick,
    /// By their whole contents.
    Full,
}
