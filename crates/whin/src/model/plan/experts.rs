//! Where the tensors of experts are: one for each expert and projection, or one for all experts, as floats or as MXFP4.
//! Knows no family.

use std::sync::Arc;

use crate::checkpoint::{TensorRef, Tensors};
use crate::model::inventory::{Destination, Shape};
use crate::model::names::{Names, Turned};

/// A projection of all experts of a layer, or the bias of one.
pub(super) struct Projection<'a> {
    names: &'a Names,
    /// What stands before the names of the layer's tensors.
    layer: String,
    shape: &'a Shape,
    /// Whether it is that to the gates and to what these multiply, rather than that back.
    is_gate_up: bool,
}

impl<'a> Projection<'a> {
    /// None where `to` is no projection of experts.
    pub fn new(names: &'a Names, prefix: &str, to: Destination, shape: &'a Shape) -> Option<Self> {
        use Destination as To;
        let (layer, is_gate_up) = match to {
            To::ExpertsGateUp(layer) | To::ExpertsGateUpBias(layer) => (layer, true),
            To::ExpertsDown(layer) | To::ExpertsDownBias(layer) => (layer, false),
            _ => return None,
        };
        Some(Self { names, layer: format!("{prefix}{}", names.layer(layer)), shape, is_gate_up })
    }

    /// The tensors that most often hold it, and their shapes.
    pub fn tensors(&self) -> Vec<(String, Vec<usize>)> {
        let apart = self.apart();
        match self.names.experts.turned {
            _ if !apart.is_empty() => {
                let of_all =
                    |(name, section): (String, Vec<usize>)| (name, [&[self.shape.sets], &*section].concat());
                apart.into_iter().map(of_all).collect()
            }
            Turned::No => self.each(),
            Turned::Yes | Turned::Unless => {
                vec![(self.all(), [&[self.shape.sets], &*self.of_one(true)].concat())]
            }
        }
    }

    /// Takes the tensors that are there: the parts of the weight, one below the other.
    pub fn claim(&self, tensors: &mut Tensors) -> Vec<TensorRef> {
        let apart = self.apart();
        if !apart.is_empty() {
            let slices = |(name, section): &(String, Vec<usize>)| {
                tensors.claim_slices(name, self.shape.sets, section, false).into_iter()
            };
            let mut sections: Vec<_> = apart.iter().map(slices).collect();
            let of_one = |_| sections.iter_mut().filter_map(Iterator::next).collect::<Vec<_>>();
            return (0..self.shape.sets).flat_map(of_one).collect();
        }
        let (all, sets) = (self.all(), self.shape.sets);
        if let Some(inputs) = self.shape.inputs
            && tensors.contains(&format!("{all}_blocks"))
        {
            let rows = self.shape.sections.iter().sum();
            return self.in_order(tensors.claim_mxfp4(&all, sets, (rows, inputs)));
        }
        let turned = self.names.experts.turned;
        // Of a stacked one whose other half is missing, that half is named, and not each expert.
        if turned != Turned::No || [true, false].iter().any(|half| tensors.contains(&self.all_of(*half))) {
            let plain = [&[sets], &*self.of_one(false)].concat();
            let is_turned = self.shape.inputs.is_some()
                && (turned == Turned::Yes
                    || (turned == Turned::Unless && tensors.stored_shape(&all) != Some(&plain)));
            return self.in_order(tensors.claim_slices(&all, sets, &self.of_one(is_turned), is_turned));
        }
        self.each().into_iter().filter_map(|(name, shape)| tensors.claim(&name, &shape)).collect()
    }

    /// The tensors with one section of all experts each, and what one expert has of it; empty where none hold sections.
    fn apart(&self) -> Vec<(String, Vec<usize>)> {
        let names = &self.names.experts;
        let modules = match names.all_apart {
            [] => return Vec::new(),
            apart if self.is_gate_up => apart,
            _ => &[names.all_down],
        };
        let of = |(module, outputs): (&&str, &usize)| {
            let shape = std::iter::once(*outputs).chain(self.shape.inputs).collect();
            (format!("{}{module}{}", self.layer, self.end()), shape)
        };
        modules.iter().zip(&self.shape.sections).map(of).collect()
    }

    /// What ends the name of a tensor of all experts.
    fn end(&self) -> &'static str {
        let [weight, bias] = self.names.experts.all_ends;
        if self.shape.inputs.is_some() { weight } else { bias }
    }

    /// The name of the tensor with all experts.
    fn all(&self) -> String {
        self.all_of(self.is_gate_up)
    }

    fn all_of(&self, is_gate_up: bool) -> String {
        let names = &self.names.experts;
        let name = if is_gate_up { names.all_gate_up } else { names.all_down };
        format!("{}{name}{}", self.layer, self.end())
    }

    /// What one expert has of it.
    fn of_one(&self, is_turned: bool) -> Vec<usize> {
        let outputs = self.shape.sections.iter().sum();
        match self.shape.inputs {
            Some(inputs) if is_turned => vec![inputs, outputs],
            Some(inputs) => vec![outputs, inputs],
            None => vec![outputs],
        }
    }

    /// The tensors with one section of one expert each, and their shapes.
    fn each(&self) -> Vec<(String, Vec<usize>)> {
        let names = &self.names.experts;
        let modules = if self.is_gate_up { &names.gate_up[..] } else { &[names.down] };
        let last = if self.shape.inputs.is_some() { "weight" } else { "bias" };
        let of = |expert: usize| {
            let expert = expert.to_string();
            modules.iter().zip(&self.shape.sections).map(move |(module, outputs)| {
                let name = format!("{}{}.{last}", self.layer, module.replace("{}", &expert));
                (name, std::iter::once(*outputs).chain(self.shape.inputs).collect())
            })
        };
        (0..self.shape.sets).flat_map(of).collect()
    }

    /// Parts of one expert each with all gates first.
    fn in_order(&self, parts: Vec<TensorRef>) -> Vec<TensorRef> {
        if !(self.names.experts.in_turn && self.is_gate_up) {
            return parts;
        }
        let inner = self.shape.sections[0] as u32;
        let order: Arc<[u32]> = (0..2 * inner).map(|row| row % inner * 2 + row / inner).collect();
        parts.into_iter().map(|part| part.in_order(order.clone())).collect()
    }
}
