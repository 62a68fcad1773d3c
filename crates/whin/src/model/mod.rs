//! What a model computes: read from `config.json` into a [`Spec`], before any weight is opened.

pub mod config;
mod describe;
mod families;
mod forms;
pub mod forward;
pub mod inventory;
mod names;
pub mod plan;
pub mod rope;
mod rope_parameters;
pub mod spec;
pub mod weights;

pub use describe::Layers;
pub use forms::Weights;
pub use inventory::Destination;
pub use plan::{Load, Plan};
pub use rope::Rope;
pub use spec::Spec;
