//! The states of recurrent layers: memory of a fixed size for each sequence.

use std::ops::Range;

use super::buffer::{Buffer, Parts};
use super::isa::PANEL;
use crate::{LayerCache, Result, StateShape};

/// Columns of a matrix that are worked on together: few enough to stay in registers and, with all their rows, in the
/// innermost cache. Matrices are padded with zeros to a multiple of it.
pub const COLUMNS: usize = 64;

/// The states of all sequences.
#[derive(Debug)]
pub struct States {
    layers: Vec<Option<Place>>, // none for those that keep keys and values
    len: usize,                 // numbers of a state
    states: Vec<Buffer<f32>>,   // each (layers,) of what `Place` says
}

/// Where one layer stands in a state: the last inputs of its convolution, (positions, channels), then its matrices,
/// (heads, value_dim / COLUMNS, key_dim, COLUMNS).
#[derive(Clone, Copy, Debug)]
pub struct Place {
    shape: StateShape,
    offset: usize,
}

impl Place {
    fn inputs_len(&self) -> usize {
        (self.shape.inputs.0 * self.shape.inputs.1).next_multiple_of(PANEL)
    }

    /// Blocks of columns in a matrix.
    pub fn blocks(&self) -> usize {
        self.shape.matrices.2.div_ceil(COLUMNS)
    }

    fn len(&self) -> usize {
        let (heads, key_dim, _) = self.shape.matrices;
        self.inputs_len() + heads * self.blocks() * key_dim * COLUMNS
    }

    /// The last inputs: (positions, channels).
    pub fn inputs(&self) -> Range<usize> {
        self.offset..self.offset + self.shape.inputs.0 * self.shape.inputs.1
    }

    /// Some columns of the matrix of a head: (key_dim, COLUMNS).
    pub fn matrix(&self, head: usize, block: usize) -> Range<usize> {
        let (heads, key_dim, _) = self.shape.matrices;
        assert!(head < heads && block < self.blocks(), "part of a matrix");
        let start = self.offset + self.inputs_len() + (head * self.blocks() + block) * key_dim * COLUMNS;
        start..start + key_dim * COLUMNS
    }
}

impl States {
    pub fn new(layers: &[LayerCache]) -> Self {
        let mut len = 0;
        let mut place = |layer: &LayerCache| {
            let &LayerCache::State(shape) = layer else { return None };
            let place = Place { shape, offset: len };
            len += place.len();
            Some(place)
        };
        let layers = layers.iter().map(&mut place).collect();
        Self { layers, len, states: Vec::new() }
    }

    /// Makes room for at least `count` states.
    pub fn grow(&mut self, count: usize) -> Result<()> {
        while self.states.len() < count {
            self.states.push(Buffer::new(self.len, "the states of recurrent layers")?);
        }
        Ok(())
    }

    /// Frees the states from number `count` on.
    pub fn shrink(&mut self, count: usize) {
        self.states.truncate(count);
    }

    /// Where a layer stands, whose state must have this shape.
    pub fn place(&self, layer: usize, shape: StateShape) -> Place {
        let place = self.layers[layer].expect("a layer that keeps a state");
        assert_eq!(place.shape, shape, "shape of the state");
        place
    }

    /// The numbers of one state.
    pub fn numbers(&self, state: usize) -> &[f32] {
        self.states[state].values()
    }

    /// The same, to write.
    pub fn numbers_mut(&mut self, state: usize) -> &mut [f32] {
        self.states[state].values_mut()
    }

    /// All states, of which several threads write different parts.
    pub fn parts(&mut self) -> Vec<Parts<'_, f32>> {
        self.states.iter_mut().map(|state| Parts::new(state.values_mut())).collect()
    }
}
