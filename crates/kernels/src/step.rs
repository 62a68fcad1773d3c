//! All that varies from one step to the next.

/// Positions in one block of the key-value cache.
pub const BLOCK: usize = 64;

/// The rows that run through the model together. They may belong to different sequences: a step may hold one row of
/// each of many (decode), many of one (prefill), or both.
///
/// Rows of one slot stand in the order of their positions, and every earlier position of the slot has run in an
/// earlier step or stands before them in this one.
#[derive(Clone, Debug, Default)]
pub struct Step {
    /// The token of each row. (rows,)
    pub tokens: Vec<u32>,
    /// Where in its sequence each row stands, from 0. (rows,)
    pub positions: Vec<u32>,
    /// The sequence of each row, an index into `tables`. (rows,)
    pub slots: Vec<u32>,
    /// For each sequence its blocks of the cache in order: position `p` is entry `p % BLOCK` of block
    /// `tables[slot][p / BLOCK]`.
    pub tables: Vec<Vec<u32>>,
    /// For each sequence the number of its state in recurrent layers, its own alone; empty where there are none.
    pub states: Vec<u32>,
    /// The rotations of the rows, one for each kind of rotary embedding in the model.
    pub rotations: Vec<Rotation>,
    /// The rows whose logits are asked for.
    pub wanted: Vec<u32>,
}

impl Step {
    /// How many rows run together.
    pub fn rows(&self) -> usize {
        self.tokens.len()
    }

    /// The state of the sequence that `row` belongs to.
    pub fn state(&self, row: usize) -> usize {
        self.states[self.slots[row] as usize] as usize
    }
}

/// By how much the pairs of a head turn at each row: Su et al., arXiv:2104.09864, in the order that Hugging Face
/// checkpoints use (number `i` pairs with number `i + pairs`). Numbers beyond the first `2 · pairs` of a head stay.
#[derive(Clone, Debug, Default)]
pub struct Rotation {
    /// How many pairs turn, at most half of the head.
    pub pairs: usize,
    /// (rows, pairs)
    pub cos: Vec<f32>,
    /// (rows, pairs)
    pub sin: Vec<f32>,
}
