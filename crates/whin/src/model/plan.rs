//! From the tensors of a checkpoint to the weights of a model: each is found once, with the shape that the config
//! implies, and none is left over.

mod experts;

use std::collections::HashMap;
use std::sync::Arc;

use whin_kernels::int4::GROUP;
use whin_kernels::{Dtype, Tensor, WeightKind};

use super::families;
use super::forms;
use super::inventory::{self, Destination, Shape};
use super::names::{Names, Stored};
use super::spec::Spec;
use crate::Result;
use crate::checkpoint::{Storage, TensorRef, Tensors};
use experts::Projection;

/// All weights of a model, and where they are found.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Each weight with its shape, in load order.
    pub weights: Vec<(Destination, Shape)>,
    spec: &'a Spec,
    names: &'a Names,
}

/// A weight with the tensors found for it.
#[derive(Debug)]
pub struct Load {
    /// Where the numbers go.
    pub to: Destination,
    /// Whether this is a matrix, which a backend keeps in a form of its own, rather than a vector.
    pub is_matrix: bool,
    /// One below the other. Their columns agree.
    pub parts: Vec<TensorRef>,
    /// What the numbers of a vector stand for.
    pub stored: Stored,
}

impl<'a> Plan<'a> {
    /// The weights that `spec` needs.
    pub fn new(spec: &'a Spec) -> Self {
        Self { weights: inventory::weights(spec), spec, names: &spec.names }
    }

    /// For each matrix the form that comes closest to the one in which `tensors` hold it; empty where none is in blocks.
    pub fn native(&self, tensors: &Tensors) -> HashMap<Destination, WeightKind> {
        let (names, prefix) = self.names_in(tensors);
        let mut is_in_blocks = false;
        let mut native = HashMap::new();
        for (to, shape) in self.weights.iter().filter(|(_, shape)| shape.inputs.is_some()) {
            let parts = self.wanted((names, prefix), *to, shape);
            let stored: Vec<Dtype> = parts.iter().filter_map(|(name, _)| tensors.dtype(name)).collect();
            is_in_blocks |= stored.iter().any(|dtype| !dtype.is_single());
            // Columns that move in less than groups have none of the file's.
            let is_divided = names.columns(self.spec, *to).is_some_and(|(_, run)| !run.is_multiple_of(GROUP));
            native.insert(*to, if is_divided { WeightKind::Int8Groups } else { forms::nearest(&stored) });
        }
        if is_in_blocks { native } else { HashMap::new() }
    }

    /// The same as far as config.json says it, which other checkpoints than GGUF files are known by before their tensors are.
    pub fn native_by_config(&self) -> HashMap<Destination, WeightKind> {
        let is_of_experts = |to: &Destination| {
            self.spec.storage == Storage::Mxfp4
                && matches!(to, Destination::ExpertsGateUp(_) | Destination::ExpertsDown(_))
        };
        let of_experts = self.weights.iter().map(|(to, _)| *to).filter(is_of_experts);
        of_experts.map(|to| (to, forms::nearest(&[Dtype::F4E2m1]))).collect()
    }

    /// How `tensors` are named, and what stands before all names but the head's.
    fn names_in(&self, tensors: &Tensors) -> (&'a Names, &'static str) {
        let names: &'a Names = match tensors.architecture() {
            Some(architecture) => families::names_in_gguf(architecture),
            None => self.names,
        };
        let embedding = format!("{}.weight", names.embedding);
        let is_there = |prefix: &&&str| tensors.contains(&format!("{prefix}{embedding}"));
        (names, names.prefixes.iter().find(is_there).unwrap_or(&names.prefixes[0]))
    }

    /// Finds every tensor of the plan, each once and with its shape, and checks that none is left over.
    ///
    /// # Errors
    /// `invalid_checkpoint` with all tensors that are missing, left over, or of another shape or type;
    /// `unsupported_architecture` where only types are at fault, or names show that the tensors are quantised in a form
    /// that is not read.
    pub fn claim(&self, mut tensors: Tensors) -> Result<Vec<Load>> {
        let storage = self.spec.storage;
        let (names, prefix) = self.names_in(&tensors);
        tensors.stored_as(storage)?;
        let heads: Vec<String> = names.heads.iter().map(|head| format!("{head}.weight")).collect();
        let head = heads.iter().find(|head| tensors.contains(head));
        let mut loads = Vec::with_capacity(self.weights.len());
        for (to, shape) in &self.weights {
            let stored = names.stored(*to);
            let is_matrix = shape.inputs.is_some();
            if let Some(projection) = Projection::new(names, prefix, *to, shape) {
                loads.push(Load { to: *to, is_matrix, parts: projection.claim(&mut tensors), stored });
                continue;
            }
            let (mut wanted, holders) = self.tensors_of((names, prefix), *to, shape);
            if *to == Destination::Head {
                let Some(head) = head else {
                    tensors.note(format!(
                        "tensor \"{}\" is missing, and config.json does not tie the head to the embedding: \
                         get the file that holds it, or set tie_word_embeddings to true if they are one",
                        heads[0]
                    ));
                    continue;
                };
                wanted[0].0.clone_from(head);
            }
            let mut parts = claim_parts(&mut tensors, names.order(self.spec, *to, shape), (wanted, holders));
            if let Some((order, together)) = names.columns(self.spec, *to) {
                let moved = |part: TensorRef| part.with_columns(order.clone(), together);
                parts = parts.into_iter().map(moved).collect();
            }
            loads.push(Load { to: *to, is_matrix, parts, stored });
        }
        let spare = head.filter(|_| self.spec.tied).and_then(|head| tensors.take(head));
        let layers = self.spec.layers.len();
        let further = names.further.map(|name| format!("{prefix}{}{name}", names.layer(layers)));
        let has_further = further.is_some_and(|name| tensors.contains(&name));
        tensors.finish(|name| {
            name.ends_with(".rotary_emb.inv_freq")
                || (has_further && names.is_from(layers, name))
                || names.ignored.iter().any(|ignored| name.starts_with(ignored))
        })?;
        if let (Some(spare), [Load { parts, .. }, ..]) = (spare, loads.as_slice())
            && parts.iter().any(|embedding| !embedding.same_bytes(&spare))
        {
            tracing::warn!(
                "{} differs from the embedding, but config.json ties the two: the embedding is used for both",
                spare.name()
            );
        }
        // As in transformers, which multiplies matrices of more than a byte a number as they are.
        let mut parts = loads.iter().flat_map(|load| &load.parts);
        if storage != Storage::Unsaid && !parts.any(|part| part.dtype().needs_scale()) {
            tracing::warn!(
                "config.json holds a quantization_config, but no weight is quantised: they are used as they stand"
            );
        }
        Ok(loads)
    }

    /// All tensors of the plan by the names that they most often have, and their shapes.
    pub fn tensors(&self) -> Vec<Wanted> {
        let prefix = self.names.prefixes[0];
        let of = |(to, shape): &(Destination, Shape)| self.wanted((self.names, prefix), *to, shape);
        self.weights.iter().flat_map(of).collect()
    }

    /// The tensors that most often hold one weight.
    fn wanted(&self, (names, prefix): (&Names, &str), to: Destination, shape: &Shape) -> Vec<Wanted> {
        match Projection::new(names, prefix, to, shape) {
            Some(projection) => projection.tensors(),
            None => self.tensors_of((names, prefix), to, shape).0,
        }
    }

    /// The tensors of one weight, and which of them holds each section.
    fn tensors_of(
        &self,
        (names, prefix): (&Names, &str),
        to: Destination,
        shape: &Shape,
    ) -> (Vec<Wanted>, Vec<usize>) {
        let (tensors, holders) = names.tensors(self.spec, to, shape);
        // The head stands outside of what the prefix names.
        let prefix = if to == Destination::Head { "" } else { prefix };
        let full = |(tensor, name): (usize, String)| {
            let held = shape.sections.iter().zip(&holders).filter(|(_, holder)| **holder == tensor);
            let outputs = held.map(|(rows, _)| rows).sum();
            let shape = match to {
                Destination::Taps(_) if names.taps_flat => vec![shape.sections[0], shape.sections.len()],
                // Files have the positions of each channel together, behind an axis that all channels of a group share.
                Destination::Taps(_) => vec![shape.sections[0], 1, shape.sections.len()],
                // A share is that of a projection with one output.
                Destination::SharedGate(_) => vec![1, outputs],
                _ => std::iter::once(outputs).chain(shape.inputs).collect(),
            };
            (format!("{prefix}{name}"), shape)
        };
        (tensors.into_iter().enumerate().map(full).collect(), holders)
    }
}

/// What is found of the tensors of one weight, their rows in the order of each section, of which `holders` says in which
/// tensor it is.
fn claim_parts(
    tensors: &mut Tensors,
    order: Option<Vec<Arc<[u32]>>>,
    (wanted, holders): (Vec<Wanted>, Vec<usize>),
) -> Vec<TensorRef> {
    let claimed = wanted.iter().map(|(name, shape)| tensors.claim(name, shape));
    let claimed: Vec<Option<TensorRef>> = claimed.collect();
    let Some(order) = order else {
        return claimed.into_iter().flatten().collect();
    };
    let section = |(order, tensor): (&Arc<[u32]>, &usize)| {
        claimed[*tensor].as_ref().map(|tensor| tensor.clone().in_order(order.clone()))
    };
    order.iter().zip(&holders).filter_map(section).collect()
}

/// A tensor's name and shape.
type Wanted = (String, Vec<usize>);

impl Load {
    /// The numbers of a vector, as a backend takes them.
    pub fn numbers(&self) -> Vec<f32> {
        if matches!(self.to, Destination::Taps(_)) {
            return self.parts.iter().flat_map(|part| turned(&part.view())).collect();
        }
        let numbers = self.parts.iter().flat_map(|part| part.view().to_vec());
        let meant = |number: f32| match self.stored {
            Stored::Plain => number,
            Stored::OnesOff => number + 1.0,
            Stored::Logarithms => f64::from(number).exp() as f32,
            Stored::Negated => -number,
        };
        numbers.map(meant).collect()
    }
}

/// Column after column.
fn turned(tensor: &Tensor<'_>) -> Vec<f32> {
    let (numbers, cols) = (tensor.to_vec(), tensor.cols());
    (0..cols).flat_map(|col| numbers.iter().skip(col).step_by(cols)).copied().collect()
}
