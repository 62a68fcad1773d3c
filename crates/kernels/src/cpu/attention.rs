//! Attention over the key-value cache.
//!
//! Scores, softmax and sums run over the cache block by block with a running maximum (Milakov and Gimelshein,
//! arXiv:1805.02867; Dao et al., arXiv:2205.14135). A [`SPAN`] of positions is taken in by itself, and the spans are put
//! together in order, whether one task walked them all or each had its own. What a row computes depends on its own
//! position alone, so its bits do not change with the rows that share its task.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::OnceLock;

use half::bf16;

use super::buffer::Parts;
use super::cache::{Head, Layer, State};
use super::input::{split_positive_row, split_row};
use super::isa::{Ahead, BLOCK_ROWS, FloatPanels, Isa, PANEL, Quantized, Stored, place};
use super::rows::{self, Rows, exp, fused, halved, quantize, tanh};
use super::threads::Threads;
use super::tiles::{Int8, cover};
use crate::cpu::Cpu;
use crate::{Attend, BLOCK, KvKind, Step};

/// Below this many multiplications one thread is done sooner than several.
const WORTH_SHARING: usize = 1 << 17;

/// Queries that share a task, and with it each load of keys and values.
const QUERIES_A_TASK: usize = 32;

/// Blocks that are taken in by themselves: few enough for one sequence to keep all threads busy.
const SPAN: usize = 8;

/// All rows and heads: `y` (rows, heads · head_dim).
pub fn attend<I: Isa>(
    isa: I,
    threads: &mut Threads,
    args: &Attend<'_, Cpu<I>>,
    step: &Step,
    q: &Rows,
    state: &State,
    y: &mut Rows,
) {
    let layer = state.layer(args.layer);
    let width = args.heads * args.head_dim;
    assert_shapes(args, layer, q, y);
    let call = Call { isa, args, step, q, state, layer, group: args.heads / args.kv_heads };
    let runs = runs(step, QUERIES_A_TASK.div_ceil(call.group));
    let parts = Parts::new(y.values_mut());
    // Long contexts stand at the end of a chunk: they go first, so that no thread is left with one alone.
    let run = |task: usize| runs[runs.len() - 1 - task / args.kv_heads].clone();
    let finish = |task: usize, total: &Partial| {
        let (kv_head, len) = (task % args.kv_heads, call.group * args.head_dim);
        for (index, row) in run(task).enumerate() {
            let at = row * width + kv_head * len;
            // SAFETY: these heads of this row belong to this task; `width` holds all heads, as checked above.
            call.write(total, (index, row, kv_head), unsafe { parts.part(at..at + len) });
        }
    };
    let tasks = runs.len() * args.kv_heads;
    let whole = |task: usize| {
        let mut heads = Heads::new(&call, run(task), task % args.kv_heads);
        let mut total = heads.partial.clone();
        for span in heads.spans() {
            heads.take_in(span);
            total.merge(isa, &heads.partial);
        }
        finish(task, &total);
    };
    let seen: usize = step.positions.iter().map(|&position| position as usize + 1).sum();
    if seen * width < WORTH_SHARING {
        (0..tasks).for_each(whole);
    } else if tasks >= 4 * threads.count() {
        threads.run(tasks, &whole);
    } else {
        let pieces: Vec<(usize, usize)> =
            (0..tasks).flat_map(|task| call.spans(&run(task)).map(move |span| (task, span))).collect();
        let partials: Vec<OnceLock<Partial>> = pieces.iter().map(|_| OnceLock::new()).collect();
        threads.run(pieces.len(), &|piece| {
            let (task, span) = pieces[piece];
            let mut heads = Heads::new(&call, run(task), task % args.kv_heads);
            heads.take_in(span);
            partials[piece].get_or_init(|| heads.partial);
        });
        threads.run(tasks, &|task| {
            let mut total = Partial::new(run(task).len() * call.group, layer.stride);
            let own = pieces.iter().zip(&partials).filter(|((of, _), _)| *of == task);
            own.filter_map(|(_, partial)| partial.get()).for_each(|partial| total.merge(isa, partial));
            finish(task, &total);
        });
    }
}

fn assert_shapes<I: Isa>(args: &Attend<'_, Cpu<I>>, layer: &Layer, q: &Rows, y: &Rows) {
    assert!(layer.kv_heads == args.kv_heads && layer.head_dim == args.head_dim, "heads of the cache");
    assert!(args.heads.is_multiple_of(args.kv_heads), "query heads of each key-value head");
    let width = args.heads * args.head_dim;
    let gates = if args.gated { width } else { 0 };
    assert!(q.width() == width + gates && y.width() == width, "width of the queries and of the result");
    assert!(args.sinks.is_none_or(|sinks| sinks.len() == args.heads), "a sink for each head");
}

/// Cuts the rows where the sequence changes, and into pieces of at most `most` rows.
fn runs(step: &Step, most: usize) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    for row in 0..step.rows() {
        match runs.last_mut() {
            Some(run) if run.len() < most && step.slots[run.start] == step.slots[row] => run.end += 1,
            _ => runs.push(row..row + 1),
        }
    }
    runs
}

/// What all tasks of one call share.
struct Call<'a, I: Isa> {
    isa: I,
    args: &'a Attend<'a, Cpu<I>>,
    step: &'a Step,
    q: &'a Rows,
    state: &'a State,
    layer: &'a Layer,
    group: usize, // query heads of each key-value head
}

impl<I: Isa> Call<'_, I> {
    /// Whether products with keys take queries as pairs of bf16.
    fn takes_pairs(&self) -> bool {
        self.state.kind() == KvKind::Bf16 && I::takes_pairs::<bf16>(self.layer.stride)
    }

    /// The positions that a row sees.
    fn visible(&self, row: usize) -> Range<usize> {
        let position = self.step.positions[row] as usize;
        let first = self.args.window.map_or(0, |window| (position + 1).saturating_sub(window));
        first..position + 1
    }

    /// The blocks of which any row of a run sees a position.
    fn blocks(&self, run: &Range<usize>) -> Range<usize> {
        self.visible(run.start).start / BLOCK..(self.visible(run.end - 1).end - 1) / BLOCK + 1
    }

    /// The spans of those blocks.
    fn spans(&self, run: &Range<usize>) -> Range<usize> {
        let blocks = self.blocks(run);
        blocks.start / SPAN..blocks.end.div_ceil(SPAN)
    }

    /// The result of row `row`, the run's number `index`, for the heads of one key-value head: (group · head_dim,).
    fn write(&self, total: &Partial, (index, row, kv_head): (usize, usize, usize), out: &mut [f32]) {
        let Attend { heads, head_dim, sinks, gated, .. } = *self.args;
        for (member, out) in out.chunks_exact_mut(head_dim).enumerate() {
            let (query, head) = (index * self.group + member, kv_head * self.group + member);
            let Softmax { max, total: sum } = total.softmax[query];
            let sink = sinks.map_or(0.0, |sinks| (sinks[head] - max).exp());
            // A sink that outweighs everything, and becomes infinite, leaves nothing of the rest.
            let whole = sum + sink;
            let sums = &total.sums[query * self.layer.stride..][..head_dim];
            for (out, sum) in out.iter_mut().zip(sums) {
                *out = sum / whole;
            }
            if gated {
                let at = (heads + head) * head_dim;
                rows::gate_by_sigmoid(self.isa, &self.q.row(row)[at..at + head_dim], out);
            }
        }
    }
}

/// What some queries have taken in so far.
#[derive(Clone, Debug)]
struct Partial {
    softmax: Vec<Softmax>, // (queries,)
    sums: Vec<f32>,        // (queries, stride), of `e^(score − largest) · value`
}

/// Of all scores so far: the largest, and the sum of `e^(score − largest)`.
#[derive(Clone, Copy, Debug)]
struct Softmax {
    max: f32,
    total: f32,
}

impl Partial {
    fn new(queries: usize, stride: usize) -> Self {
        let softmax = vec![Softmax { max: f32::NEG_INFINITY, total: 0.0 }; queries];
        Self { softmax, sums: vec![0.0; queries * stride] }
    }

    fn clear(&mut self) {
        self.softmax.fill(Softmax { max: f32::NEG_INFINITY, total: 0.0 });
        self.sums.fill(0.0);
    }

    /// Takes in what the same queries have seen of a later span.
    fn merge<I: Isa>(&mut self, isa: I, later: &Self) {
        let stride = self.sums.len() / self.softmax.len();
        let sums = self.sums.chunks_exact_mut(stride).zip(later.sums.chunks_exact(stride));
        for ((own, later), (sums, more)) in self.softmax.iter_mut().zip(&later.softmax).zip(sums) {
            // The total of what was seen is at least one, or NaN, or every score was −∞.
            if later.total != 0.0 {
                isa.run(|| merge::<I>((own, sums), (later, more)));
            }
        }
    }
}

#[inline(always)]
fn merge<I: Isa>((own, sums): (&mut Softmax, &mut [f32]), (later, more): (&Softmax, &[f32])) {
    let max = if later.max > own.max { later.max } else { own.max };
    let (a, b) = (exp::<I>(own.max - max), exp::<I>(later.max - max));
    *own = Softmax { max, total: fused::<I>(later.total, b, own.total * a) };
    for (sum, more) in sums.iter_mut().zip(more) {
        *sum = fused::<I>(*more, b, *sum * a);
    }
}

/// The query heads that share one key-value head, for a run of rows of one sequence.
struct Heads<'a, I: Isa> {
    call: &'a Call<'a, I>,
    run: Range<usize>,
    kv_head: usize,
    queries: Vec<f32>, // (rows · group, stride)
    pairs: Vec<u16>,   // the same as pairs of bf16, in whole blocks, where the instruction set takes them
    scores: Vec<f32>,  // (rows · group, BLOCK)
    partial: Partial,  // of one span
}

impl<'a, I: Isa> Heads<'a, I> {
    fn new(call: &'a Call<'a, I>, run: Range<usize>, kv_head: usize) -> Self {
        let (stride, dim) = (call.layer.stride, call.args.head_dim);
        let count = run.len() * call.group;
        let mut queries = vec![0.0; count * stride];
        for (index, query) in queries.chunks_exact_mut(stride).enumerate() {
            let at = (kv_head * call.group + index % call.group) * dim;
            query[..dim].copy_from_slice(&call.q.row(run.start + index / call.group)[at..at + dim]);
        }
        let mut pairs = Vec::new();
        if call.takes_pairs() {
            let len = BLOCK_ROWS * 2 * stride;
            pairs = vec![0; count.div_ceil(BLOCK_ROWS) * len];
            for (index, query) in queries.chunks_exact(stride).enumerate() {
                let block = &mut pairs[index / BLOCK_ROWS * len..(index / BLOCK_ROWS + 1) * len];
                call.isa.split(query, index % BLOCK_ROWS, block);
            }
        }
        let scores = vec![0.0; count * BLOCK];
        Self { call, run, kv_head, queries, pairs, scores, partial: Partial::new(count, stride) }
    }

    fn spans(&self) -> Range<usize> {
        self.call.spans(&self.run)
    }

    /// Takes in the blocks of one span, and nothing else, into `partial`.
    fn take_in(&mut self, span: usize) {
        match self.call.state.kind() {
            KvKind::F32 => self.walk::<f32>(span),
            KvKind::Bf16 => self.walk::<bf16>(span),
            KvKind::Int8 => self.walk_quantized(span),
        }
    }

    fn walk<W: Stored>(&mut self, span: usize) {
        let Call { isa, step, state, layer, group, .. } = *self.call;
        let stride = layer.stride;
        let table = &step.tables[step.slots[self.run.start] as usize];
        let all = self.call.blocks(&self.run);
        let blocks = all.start.max(span * SPAN)..all.end.min((span + 1) * SPAN);
        self.partial.clear();
        for block in blocks.clone() {
            let rows = self.rows_that_see(block);
            let queries = rows.start * group..rows.end * group;
            let head = state.head::<W>(layer, self.kv_head, table[block]);
            let next = if block + 1 < blocks.end { table[block + 1] } else { table[block] };
            let next = state.head::<W>(layer, self.kv_head, next);
            let keys =
                FloatPanels { values: head.keys, inputs: stride, ahead: distance(head.keys, head.values) };
            self.multiply_keys(queries.clone(), keys);
            self.soften(block, queries.clone());
            if head.faulty {
                self.add_visible(block, rows, head);
                continue;
            }
            let values =
                FloatPanels { values: head.values, inputs: BLOCK, ahead: distance(head.values, next.keys) };
            let sums = &mut self.partial.sums[queries.start * stride..queries.end * stride];
            isa.floats(&self.scores[queries.start * BLOCK..queries.end * BLOCK], values, true, sums);
        }
    }

    /// Writes the products of some queries with the keys of a block into `scores`.
    fn multiply_keys<W: Stored>(&mut self, queries: Range<usize>, keys: FloatPanels<'_, W>) {
        let (isa, stride) = (self.call.isa, keys.inputs);
        if self.pairs.is_empty() {
            let x = &self.queries[queries.start * stride..queries.end * stride];
            let scores = &mut self.scores[queries.start * BLOCK..queries.end * BLOCK];
            return isa.floats(x, keys, false, scores);
        }
        // From the first of a block of rows on: what comes of those that see nothing here, nobody reads.
        let first = queries.start / BLOCK_ROWS * BLOCK_ROWS;
        let len = (queries.end - first).next_multiple_of(BLOCK_ROWS) * 2 * stride;
        let x = &self.pairs[first * 2 * stride..first * 2 * stride + len];
        isa.pairs(x, queries.end - first, keys, false, &mut self.scores[first * BLOCK..queries.end * BLOCK]);
    }

    /// [`Self::walk`] over a quantised cache: both products are of integers, as [`crate::int8`] says.
    fn walk_quantized(&mut self, span: usize) {
        let Call { isa, step, state, layer, group, .. } = *self.call;
        let stride = layer.stride;
        let table = &step.tables[step.slots[self.run.start] as usize];
        let all = self.call.blocks(&self.run);
        self.partial.clear();
        let mut queries = QuantizedRows::<I>::new(self.partial.softmax.len(), stride);
        for (index, query) in self.queries.chunks_exact(stride).enumerate() {
            queries.set(isa, index, query, split_row);
        }
        let mut weights = QuantizedRows::<I>::new(self.partial.softmax.len(), BLOCK);
        let blocks = all.start.max(span * SPAN)..all.end.min((span + 1) * SPAN);
        for (block, number) in blocks.clone().zip(&table[blocks]) {
            let rows = self.rows_that_see(block);
            let seeing = rows.start * group..rows.end * group;
            let head = state.quantized_head(layer, self.kv_head, *number);
            let scores = &mut self.scores;
            let panel = |panel| head.keys(panel);
            let tile = Int8 { row: |row| queries.row(row), panel, ahead: Ahead::STREAM };
            cover(isa, &tile, seeing.clone(), 0..BLOCK / PANEL, &mut |row, panel, lines| {
                for (row, found) in (row..).zip(lines) {
                    let found = found.as_flattened();
                    scores[row * BLOCK + panel * PANEL..][..found.len()].copy_from_slice(found);
                }
            });
            self.soften(block, seeing.clone());
            for query in seeing.clone() {
                let scores = &mut self.scores[query * BLOCK..(query + 1) * BLOCK];
                for (score, scale) in scores.iter_mut().zip(head.value_scales) {
                    // What is not seen may have any scale, even NaN.
                    *score = if *score == 0.0 { 0.0 } else { *score * scale };
                }
                weights.set(isa, query, scores, split_positive_row);
            }
            let sums = &mut self.partial.sums;
            let panel = |panel| head.values(panel);
            let tile = Int8 { row: |row| weights.row(row), panel, ahead: Ahead::STREAM };
            cover(isa, &tile, seeing, 0..stride / PANEL, &mut |row, panel, lines| {
                for (row, found) in (row..).zip(lines) {
                    let sums = sums[row * stride + panel * PANEL..].iter_mut();
                    sums.zip(found.as_flattened()).for_each(|(sum, more)| *sum += more);
                }
            });
        }
    }

    /// The rows of the run, by index, that see any position of a block.
    fn rows_that_see(&self, block: usize) -> Range<usize> {
        let sees = |row: usize| {
            let visible = self.call.visible(row);
            visible.start < (block + 1) * BLOCK && visible.end > block * BLOCK
        };
        let first = self.run.clone().position(sees).unwrap_or(0);
        let last = self.run.clone().rev().position(sees).map_or(first, |behind| self.run.len() - behind);
        first..last
    }

    /// The positions of a block, from its first, that a row sees.
    fn visible_in(&self, block: usize, row: usize) -> Range<usize> {
        let (visible, base) = (self.call.visible(self.run.start + row), block * BLOCK);
        visible.start.max(base) - base..visible.end.min(base + BLOCK) - base
    }

    /// Turns the products with the keys of a block into weights, zero where a position is not seen, and scales the sums
    /// so far down to the new maximum.
    fn soften(&mut self, block: usize, queries: Range<usize>) {
        let stride = self.call.layer.stride;
        for query in queries {
            let range = self.visible_in(block, query / self.call.group);
            let scores = &mut self.scores.as_chunks_mut::<BLOCK>().0[query];
            let Attend { scale, softcap, .. } = *self.call.args;
            let softmax = &mut self.partial.softmax[query];
            let sums = &mut self.partial.sums[query * stride..(query + 1) * stride];
            self.call.isa.run(|| soften::<I>(scores, (scale, softcap), range, softmax, sums));
        }
    }

    /// `sums += weights · values` where some numbers of the block are infinite or NaN: row by row, with zeros for what
    /// a row does not see. That gives the bits of the short way to all rows that see none of those numbers.
    fn add_visible<W: Stored>(&mut self, block: usize, rows: Range<usize>, head: Head<'_, W>) {
        let (stride, group) = (self.call.layer.stride, self.call.group);
        for row in rows {
            let seen = self.visible_in(block, row);
            let mut values = head.values.to_vec();
            for panel in values.chunks_exact_mut(PANEL * BLOCK) {
                for position in (0..BLOCK).filter(|position| !seen.contains(position)) {
                    (0..PANEL).for_each(|lane| panel[place::<W>(lane, position)] = W::zeroed());
                }
            }
            let queries = row * group..(row + 1) * group;
            let weights = &self.scores[queries.start * BLOCK..queries.end * BLOCK];
            let values = FloatPanels { values: &values, inputs: BLOCK, ahead: 0 };
            let sums = &mut self.partial.sums[queries.start * stride..queries.end * stride];
            self.call.isa.floats(weights, values, true, sums);
        }
    }
}

#[inline(always)]
fn soften<I: Isa>(
    scores: &mut [f32; BLOCK],
    (scale, softcap): (f32, Option<f32>),
    seen: Range<usize>,
    softmax: &mut Softmax,
    sums: &mut [f32],
) {
    scores.iter_mut().for_each(|score| *score *= scale);
    if let Some(cap) = softcap {
        scores.iter_mut().for_each(|score| *score = cap * tanh::<I>(*score / cap));
    }
    scores[..seen.start].fill(f32::NEG_INFINITY);
    scores[seen.end..].fill(f32::NEG_INFINITY);
    let mut lanes = [softmax.max; 16];
    for chunk in scores.as_chunks::<16>().0 {
        for (lane, score) in lanes.iter_mut().zip(chunk) {
            *lane = if *score > *lane { *score } else { *lane };
        }
    }
    let max = halved(lanes, |a, b| if b > a { b } else { a });
    // Where no score so far is above −∞, none has a weight, rather than NaN.
    let base = if max == f32::NEG_INFINITY { 0.0 } else { max };
    let shrink = exp::<I>(softmax.max - base);
    let mut totals = [0.0; 16];
    for chunk in scores.as_chunks_mut::<16>().0 {
        for (score, total) in chunk.iter_mut().zip(&mut totals) {
            *score = exp::<I>(*score - base);
            *total += *score;
        }
    }
    *softmax = Softmax { max, total: softmax.total * shrink + halved(totals, |a, b| a + b) };
    if shrink != 1.0 {
        sums.iter_mut().for_each(|sum| *sum *= shrink);
    }
}

/// How many bytes `to` lies behind `from`.
fn distance<W>(from: &[W], to: &[W]) -> isize {
    (to.as_ptr() as isize).wrapping_sub(from.as_ptr() as isize)
}

/// Rows of a task, quantised.
struct QuantizedRows<I> {
    stride: usize,
    shorts: Vec<i16>, // (rows, stride)
    planes: Vec<u8>,  // (rows, high | low, stride), where the instruction set takes planes
    scales: Vec<f32>, // (rows,)
    isa: PhantomData<I>,
}

impl<I: Isa> QuantizedRows<I> {
    fn new(rows: usize, stride: usize) -> Self {
        let planes = if I::PLANES { 2 * rows * stride } else { 0 };
        let (shorts, planes) = (vec![0; rows * stride], vec![0; planes]);
        Self { stride, shorts, planes, scales: vec![0.0; rows], isa: PhantomData }
    }

    /// Quantises one row; `split` makes its planes.
    fn set(&mut self, isa: I, row: usize, x: &[f32], split: fn(I, &[i16], &mut [u8])) {
        let stride = self.stride;
        let shorts = &mut self.shorts[row * stride..(row + 1) * stride];
        self.scales[row] = quantize(isa, x, shorts);
        if I::PLANES {
            split(isa, shorts, &mut self.planes[2 * row * stride..2 * (row + 1) * stride]);
        }
    }

    fn row(&self, row: usize) -> Quantized<'_> {
        let stride = self.stride;
        let planes = if I::PLANES { &self.planes[2 * row * stride..2 * (row + 1) * stride] } else { &[] };
        let (high, low) = planes.split_at(planes.len() / 2);
        Quantized {
            shorts: &self.shorts[row * stride..(row + 1) * stride],
            high,
            low,
            scale: self.scales[row],
        }
    }
}
