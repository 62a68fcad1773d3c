//! From the tensors of a checkpoint to the weights of a model: each is found once, with the shape that the config
//! implies, and none is left over.

mod experts;

use std::sync::Arc;

use super::families;
use super::inventory::{self, Destination, Shape};
use super::names::Names;
use super::spec::Spec;
use crate::Result;
use crate::checkpoint::Storage;
use crate::checkpoint::{TensorRef, Tensors};
use experts::Projection;

/// All weights of a model, and where they are found.
#[derive(Clone, Debug)]
pub struct Plan<'a> {
    /// Each weight with its shape, in load order.
    pub weights: Vec<(Destination, Shape)>,
    spec: &'a Spec,
    names: &'static Names,
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
    /// What is added to each number of a vector.
    pub raise: f32,
}

impl<'a> Plan<'a> {
    /// The weights that `spec` needs.
    pub fn new(spec: &'a Spec) -> Self {
        Self { weights: inventory::weights(spec), spec, names: families::names(spec.family) }
    }

    /// Finds every tensor of the plan, each once and with its shape, and checks that none is left over.
    ///
    /// # Errors
    /// `invalid_checkpoint` with all tensors that are missing, left over, or of another shape or type;
    /// `unsupported_architecture` where only types are at fault, or names show that the tensors are quantised in a form
    /// that is not read.
    pub fn claim(&self, mut tensors: Tensors) -> Result<Vec<Load>> {
        let (storage, names) = (self.spec.storage, self.names);
        tensors.stored_as(storage)?;
        let [embedding] = &names.tensors(Destination::Embedding)[..] else { unreachable!("one tensor") };
        let is_there = |prefix: &&&str| tensors.contains(&format!("{prefix}{embedding}"));
        let prefix = names.prefixes.iter().find(is_there).unwrap_or(&names.prefixes[0]);
        let heads = names.tensors(Destination::Head);
        let head = heads.iter().find(|head| tensors.contains(head));
        let mut loads = Vec::with_capacity(self.weights.len());
        for (to, shape) in &self.weights {
            let raise = if names.is_raised(*to) { 1.0 } else { 0.0 };
            let is_matrix = shape.inputs.is_some();
            if let Some(projection) = Projection::new(names, prefix, *to, shape) {
                loads.push(Load { to: *to, is_matrix, parts: projection.claim(&mut tensors), raise });
                continue;
            }
            let mut wanted = self::tensors(names, prefix, *to, shape);
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
            let parts = self.claim_parts(&mut tensors, (*to, shape), wanted);
            loads.push(Load { to: *to, is_matrix, parts, raise });
        }
        let spare = head.filter(|_| self.spec.tied).and_then(|head| tensors.take(head));
        tensors.finish(|name| {
            name.ends_with(".rotary_emb.inv_freq")
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
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let prefix = self.names.prefixes[0];
        let of = |(to, shape): &(Destination, Shape)| tensors(self.names, prefix, *to, shape);
        self.weights.iter().flat_map(of).collect()
    }

    /// What is found of the tensors of one weight.
    fn claim_parts(
        &self,
        tensors: &mut Tensors,
        (to, shape): (Destination, &Shape),
        wanted: Vec<(String, Vec<usize>)>,
    ) -> Vec<TensorRef> {
        let order = self.names.order(self.spec, to, shape);
        let is_split = wanted.len() > 1;
        let claim = |(index, (name, shape)): (usize, (String, Vec<usize>))| {
            let part = tensors.claim(&name, &shape)?;
            Some(match &order {
                None => part,
                Some(order) if is_split => part.in_order(order[index].clone()),
                Some(order) => part.in_order(stacked(order)),
            })
        };
        wanted.into_iter().enumerate().filter_map(claim).collect()
    }
}

/// The tensors of one weight, of which there is one for each section or one for all, and their shapes.
fn tensors(names: &Names, prefix: &str, to: Destination, shape: &Shape) -> Vec<(String, Vec<usize>)> {
    if let Some(projection) = Projection::new(names, prefix, to, shape) {
        return projection.tensors();
    }
    let mut found = names.tensors(to);
    // The head stands outside of what the prefix names, and has one name of several.
    let prefix = if to == Destination::Head { "" } else { prefix };
    if to == Destination::Head {
        found.truncate(1);
    }
    let sections = if found.len() == 1 { vec![shape.outputs()] } else { shape.sections.clone() };
    let full = |(name, outputs): (String, usize)| {
        // A share is that of a projection with one output.
        let one = matches!(to, Destination::SharedGate(_)).then_some(1);
        (format!("{prefix}{name}"), one.into_iter().chain([outputs]).chain(shape.inputs).collect())
    };
    found.into_iter().zip(sections).map(full).collect()
}

/// The orders of sections that stand one below the other in the same tensor.
fn stacked(orders: &[Arc<[u32]>]) -> Arc<[u32]> {
    let mut first = 0;
    let mut all = Vec::new();
    for order in orders {
        all.extend(order.iter().map(|row| first + row));
        first += order.len() as u32;
    }
    all.into()
}
