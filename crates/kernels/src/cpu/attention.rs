//! The key-value cache, and attention over it.
//!
//! Scores, softmax and sums run over the cache block by block with a running maximum (Milakov and Gimelshein,
//! arXiv:1805.02867; Dao et al., arXiv:2205.14135). What a row computes depends on its own position alone, so its bits
//! do not change with the rows that share its task.

use std::ops::Range;

use super::buffer::{Buffer, Parts};
use super::isa::Isa;
use super::rows::{Rows, exp, fused};
use super::threads::Threads;
use crate::{Attend, BLOCK, CacheShape, Result, Step};

/// Keys and values of all sequences.
#[derive(Debug)]
pub struct State {
    layers: Vec<Layer>,
    block_len: usize,
    blocks: Vec<Buffer<f32>>, // each (layers, kv_heads, keys | values, BLOCK, stride)
}

#[derive(Debug)]
struct Layer {
    offset: usize, // of its first head in a block
    kv_heads: usize,
    head_dim: usize,
    stride: usize, // head_dim padded to whole vectors
}

/// A head is padded with zeros to a multiple of this.
const HEAD_PAD: usize = 16;

impl State {
    pub(super) fn new(shape: &CacheShape) -> Self {
        let mut block_len = 0;
        let mut layers = Vec::new();
        for &(kv_heads, head_dim) in &shape.layers {
            let stride = head_dim.next_multiple_of(HEAD_PAD);
            layers.push(Layer { offset: block_len, kv_heads, head_dim, stride });
            block_len += kv_heads * 2 * BLOCK * stride;
        }
        Self { layers, block_len, blocks: Vec::new() }
    }

    /// Makes room for at least `blocks` blocks.
    pub(super) fn grow(&mut self, blocks: usize) -> Result<()> {
        while self.blocks.len() < blocks {
            self.blocks.push(Buffer::new(self.block_len, "the key-value cache")?);
        }
        Ok(())
    }

    /// Frees the blocks from number `blocks` on.
    pub(super) fn shrink(&mut self, blocks: usize) {
        self.blocks.truncate(blocks);
    }

    /// Stores the key and the value of all heads at `position` of a sequence.
    pub(super) fn store(
        &mut self,
        layer: usize,
        table: &[u32],
        position: usize,
        keys: &[f32],
        values: &[f32],
    ) {
        let Layer { offset, kv_heads, head_dim, stride } = self.layers[layer];
        let width = kv_heads * head_dim;
        assert!(keys.len() == width && values.len() == width, "width of the keys and values");
        let block = self.blocks[table[position / BLOCK] as usize].values_mut();
        let heads = keys.chunks_exact(head_dim).zip(values.chunks_exact(head_dim));
        for (head, (key, value)) in heads.enumerate() {
            let at = offset + (head * 2 * BLOCK + position % BLOCK) * stride;
            block[at..at + head_dim].copy_from_slice(key);
            block[at + BLOCK * stride..][..head_dim].copy_from_slice(value);
        }
    }

    /// Keys and values of one head in one block: (BLOCK, stride) each.
    fn head(&self, layer: &Layer, head: usize, block: u32) -> (&[f32], &[f32]) {
        let len = BLOCK * layer.stride;
        let at = layer.offset + head * 2 * len;
        self.blocks[block as usize].values()[at..at + 2 * len].split_at(len)
    }
}

/// Below this many multiplications one thread is done sooner than several.
const WORTH_SHARING: usize = 1 << 17;

/// Rows of one sequence that share a task, and with it each load of keys and values.
const ROWS_A_TASK: usize = 16;

/// All rows and heads: `y` (rows, heads · head_dim).
pub fn attend<I: Isa>(
    isa: I,
    threads: &mut Threads,
    args: &Attend,
    step: &Step,
    q: &Rows,
    state: &State,
    y: &mut Rows,
) {
    let layer = &state.layers[args.layer];
    assert!(layer.kv_heads == args.kv_heads && layer.head_dim == args.head_dim, "heads of the cache");
    assert!(args.heads.is_multiple_of(args.kv_heads), "query heads of each key-value head");
    let width = args.heads * args.head_dim;
    assert!(q.width() == width && y.width() == width, "width of the queries and of the result");
    let runs = runs(step);
    let group = args.heads / args.kv_heads * args.head_dim;
    let parts = Parts::new(y.values_mut());
    let seen: usize = step.positions.iter().map(|&position| position as usize + 1).sum();
    let work = seen * args.heads * args.head_dim;
    let attend_one = |task: usize| {
        // Long contexts stand at the end of a chunk: they go first, so that no thread is left with one alone.
        let run = runs[runs.len() - 1 - task / args.kv_heads].clone();
        let kv_head = task % args.kv_heads;
        let mut heads = Heads::new(isa, args, step, run.clone(), kv_head, q, state);
        heads.walk();
        for (index, row) in run.enumerate() {
            let at = row * width + kv_head * group;
            // SAFETY: these heads of this row belong to this task; `width` holds all heads, as checked above.
            heads.finish(index, unsafe { parts.part(at..at + group) });
        }
    };
    let tasks = runs.len() * args.kv_heads;
    if work < WORTH_SHARING { (0..tasks).for_each(attend_one) } else { threads.run(tasks, &attend_one) }
}

/// Cuts the rows where the sequence changes, and into pieces of [`ROWS_A_TASK`].
fn runs(step: &Step) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for row in 0..step.rows() {
        match runs.last_mut() {
            Some(run) if run.len() < ROWS_A_TASK && step.slots[run.start] == step.slots[row] => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    runs
}

/// The query heads that share one key-value head, for a run of rows of one sequence.
struct Heads<'a, I> {
    isa: I,
    args: &'a Attend,
    step: &'a Step,
    state: &'a State,
    layer: &'a Layer,
    run: Range<usize>,
    kv_head: usize,
    group: usize,          // query heads
    queries: Vec<f32>,     // (rows · group, stride)
    scores: Vec<f32>,      // (rows · group, BLOCK)
    sums: Vec<f32>,        // (rows · group, stride)
    softmax: Vec<Softmax>, // (rows · group,)
}

/// Of all scores so far: the largest, and the sum of `e^(score − largest)`.
#[derive(Clone, Copy)]
struct Softmax {
    max: f32,
    total: f32,
}

impl<'a, I: Isa> Heads<'a, I> {
    fn new(
        isa: I,
        args: &'a Attend,
        step: &'a Step,
        run: Range<usize>,
        kv_head: usize,
        q: &Rows,
        state: &'a State,
    ) -> Self {
        let layer = &state.layers[args.layer];
        let group = args.heads / args.kv_heads;
        let count = run.len() * group;
        let mut queries = vec![0.0; count * layer.stride];
        for (index, query) in queries.chunks_exact_mut(layer.stride).enumerate() {
            let at = (kv_head * group + index % group) * args.head_dim;
            let row = q.row(run.start + index / group);
            query[..args.head_dim].copy_from_slice(&row[at..at + args.head_dim]);
        }
        Self {
            isa,
            args,
            step,
            state,
            layer,
            run,
            kv_head,
            group,
            queries,
            scores: vec![0.0; count * BLOCK],
            sums: vec![0.0; count * layer.stride],
            softmax: vec![Softmax { max: f32::NEG_INFINITY, total: 0.0 }; count],
        }
    }

    /// The positions that row `index` of the run sees.
    fn visible(&self, index: usize) -> Range<usize> {
        let position = self.step.positions[self.run.start + index] as usize;
        let first = self.args.window.map_or(0, |window| (position + 1).saturating_sub(window));
        first..position + 1
    }

    /// Takes in all blocks that any row sees.
    fn walk(&mut self) {
        let table = &self.step.tables[self.step.slots[self.run.start] as usize];
        let (first, last) =
            (self.visible(0).start / BLOCK, (self.visible(self.run.len() - 1).end - 1) / BLOCK);
        for (index, &block) in table.iter().enumerate().take(last + 1).skip(first) {
            let (keys, values) = self.state.head(self.layer, self.kv_head, block);
            self.score(index, keys);
            for query in 0..self.softmax.len() {
                self.take_in(query, index, values);
            }
        }
    }

    /// `scores = queries · keysᵀ · scale` for the positions of a block that the last row sees.
    fn score(&mut self, block: usize, keys: &[f32]) {
        let stride = self.layer.stride;
        let end = self.visible(self.run.len() - 1).end.min((block + 1) * BLOCK) - block * BLOCK;
        let count = self.softmax.len();
        let mut query = 0;
        while query < count {
            let tile = if I::TILE_ROWS == 4 && count - query >= 4 { 4 } else { (count - query).min(2) };
            for position in (0..end).step_by(4) {
                match tile {
                    4 => self.score_tile::<4>(query, position, keys, stride),
                    2 => self.score_tile::<2>(query, position, keys, stride),
                    _ => self.score_tile::<1>(query, position, keys, stride),
                }
            }
            query += tile;
        }
    }

    fn score_tile<const R: usize>(&mut self, query: usize, position: usize, keys: &[f32], stride: usize) {
        let queries: [&[f32]; R] = std::array::from_fn(|r| &self.queries[(query + r) * stride..][..stride]);
        let keys: [&[f32]; 4] = std::array::from_fn(|n| &keys[(position + n) * stride..][..stride]);
        for (r, products) in self.isa.dots_f32(queries, keys).iter().enumerate() {
            let scores = &mut self.scores[(query + r) * BLOCK + position..][..4];
            for (score, product) in scores.iter_mut().zip(products) {
                *score = product * self.args.scale;
            }
        }
    }

    /// Adds one block to the running softmax and the running sum of values of one query.
    fn take_in(&mut self, query: usize, block: usize, values: &[f32]) {
        let visible = self.visible(query / self.group);
        let base = block * BLOCK;
        let range = visible.start.max(base)..visible.end.min(base + BLOCK);
        if range.is_empty() {
            return;
        }
        let range = range.start - base..range.end - base;
        let stride = self.layer.stride;
        let scores = &mut self.scores[query * BLOCK..][..BLOCK];
        let sums = &mut self.sums[query * stride..][..stride];
        let softmax = &mut self.softmax[query];
        self.isa.run(|| {
            scores[..range.start].fill(f32::NEG_INFINITY);
            scores[range.end..].fill(f32::NEG_INFINITY);
            let max = scores.iter().fold(softmax.max, |max, &s| if s > max { s } else { max });
            let shrink = exp::<I>(softmax.max - max);
            let mut totals = [0.0; 16];
            for chunk in scores.as_chunks_mut::<16>().0 {
                for (score, total) in chunk.iter_mut().zip(&mut totals) {
                    *score = exp::<I>(*score - max);
                    *total += *score;
                }
            }
            softmax.total = softmax.total * shrink + totals.iter().sum::<f32>();
            softmax.max = max;
            weigh::<I>(sums, shrink, &scores[range.clone()], &values[range.start * stride..]);
        });
    }

    /// Writes the result of row `index` of the run: (group · head_dim,).
    fn finish(&self, index: usize, out: &mut [f32]) {
        for (head, out) in out.chunks_exact_mut(self.args.head_dim).enumerate() {
            let query = index * self.group + head;
            let total = self.softmax[query].total;
            let sums = &self.sums[query * self.layer.stride..][..self.args.head_dim];
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum / total;
            }
        }
    }
}

/// `sums = sums · shrink + Σ weights[p] · values[p]`: `values` (positions, stride), `sums` (stride,).
#[inline(always)]
fn weigh<I: Isa>(sums: &mut [f32], shrink: f32, weights: &[f32], values: &[f32]) {
    let stride = sums.len();
    let (wide, narrow) = sums.as_chunks_mut::<64>();
    for (index, sums) in wide.iter_mut().enumerate() {
        weigh_lanes::<I, 64>(sums, shrink, weights, values, (index * 64, stride));
    }
    let done = wide.len() * 64;
    for (index, sums) in narrow.as_chunks_mut::<HEAD_PAD>().0.iter_mut().enumerate() {
        weigh_lanes::<I, HEAD_PAD>(sums, shrink, weights, values, (done + index * HEAD_PAD, stride));
    }
}

#[inline(always)]
fn weigh_lanes<I: Isa, const N: usize>(
    sums: &mut [f32; N],
    shrink: f32,
    weights: &[f32],
    values: &[f32],
    (first, stride): (usize, usize),
) {
    let mut lanes = sums.map(|sum| sum * shrink);
    for (position, weight) in weights.iter().enumerate() {
        let values = &values[position * stride + first..][..N];
        for (lane, value) in lanes.iter_mut().zip(values) {
            *lane = fused::<I>(*weight, *value, *lane);
        }
    }
    *sums = lanes;
}
