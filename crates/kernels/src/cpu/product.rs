//! The product of rows with a matrix, shared out among threads, and what becomes of the numbers that come out.
//!
//! A task is a run of panels for all rows. With many rows these are the outer loop: a few of them stay in the first-level
//! cache while the task's panels stream past, from memory for the first rows and from the second-level cache for the
//! others. With few rows the panels are the outer loop: while all rows pass over two of them, the next two come from
//! memory, so that neither waits for the other. A product may consist of groups, each of which multiplies rows of its own
//! with outputs of its own of the same matrix.

use std::ops::Range;

use half::bf16;

use super::buffer::Parts;
use super::groups::{Pack, Panels};
use super::input::Input;
use super::isa::groups::{Int8Groups, Nibbles};
use super::isa::{Ahead, FloatPanels, Isa, PANEL, PANEL_AHEAD, Panel, QuantizedBlocks, Signed, Stored};
use super::matrix::{Numbers, Weight};
use super::rows::{self, Rows};
use super::threads::Threads;
use super::tiles::{Int8, Tile, cover, each};
use crate::Activation;

/// What becomes of the numbers of a product.
#[derive(Clone, Copy)]
pub enum Sink<'a> {
    /// `out = x · wᵀ + bias`
    Store(Option<&'a [f32]>),
    /// `out += x · wᵀ + bias`
    Add(Option<&'a [f32]>),
    /// `out = activation(x · gateᵀ) · (x · upᵀ)`, where the gate is the first half of the matrix; each half consists of
    /// whole panels.
    Gate(Activation),
}

/// Below this many multiplications, some ten microseconds, a product is done sooner by one thread than shared out.
const WORTH_SHARING: usize = 1 << 19;

/// Bytes of weights that stay in the second-level cache while many rows pass over them.
const CACHED: usize = 768 << 10;

/// Up to so many rows, a product waits for its weights rather than for its multiplications.
const FEW_ROWS: usize = 16;

/// Up to so many rows, panels are the outer loop. Rows have to stay in the second-level cache.
const ROWS_BY_PANELS: usize = 32;

/// Panels that a task has a multiple of, so that every shape of tile fits: a gate and its partner, at least.
const STEP: usize = 2;

/// Rows that are multiplied with some outputs of a matrix.
#[derive(Clone, Debug)]
pub struct Group {
    /// Rows of the input, from the first of a block on where the input has such.
    pub rows: Range<usize>,
    /// The first of the outputs.
    pub first: usize,
}

impl Group {
    /// The panels in which `outputs` outputs from the first on lie.
    fn panels(&self, outputs: usize) -> Range<usize> {
        self.first / PANEL..(self.first + outputs).div_ceil(PANEL)
    }
}

/// The product of all rows of `input` with `weight`, into `out` (rows, outputs), or half of the outputs for a gate.
pub fn multiply<I: Isa>(
    isa: I,
    threads: &mut Threads,
    weight: &Weight,
    input: &Input,
    sink: Sink<'_>,
    out: &mut Rows,
) {
    let all = Group { rows: 0..input.rows, first: 0 };
    multiply_groups(isa, threads, (weight, weight.outputs), input, (sink, &[all]), out);
}

/// The products of each of `groups` with its `outputs` outputs of `weight`, into the same rows of `out` (rows, outputs),
/// or half of the outputs for a gate. Groups have no rows in common. For a gate they begin with whole panels.
pub fn multiply_groups<I: Isa>(
    isa: I,
    threads: &mut Threads,
    (weight, outputs): (&Weight, usize),
    input: &Input,
    (sink, groups): (Sink<'_>, &[Group]),
    out: &mut Rows,
) {
    assert!(input.stride == weight.stride && input.kind == weight.kind(), "input of the product");
    let is_inside = |group: &Group| group.rows.end <= input.rows && group.first + outputs <= weight.outputs;
    assert!(groups.iter().all(is_inside), "groups of the product");
    let half = if let Sink::Gate(_) = sink { Some(outputs / 2 / PANEL) } else { None };
    let width = if half.is_some() { outputs / 2 } else { outputs };
    let is_whole =
        |group: &Group| half.is_none() || (width.is_multiple_of(PANEL) && group.first.is_multiple_of(PANEL));
    assert!(out.width() == width && groups.iter().all(is_whole), "width of the product");
    let rows = groups.iter().map(|group| group.rows.len()).sum::<usize>();
    let count = groups.iter().map(|group| group.panels(outputs).len()).max().unwrap_or(0);
    let work = rows * outputs * weight.stride;
    let size = panels_of_a_task(threads.count(), weight, (work, count), (rows, groups.len()));
    let (numbers, tasks) = (Parts::new(out.values_mut()), count.div_ceil(size.max(1)));
    let task = |task: usize| {
        let group = &groups[task / tasks];
        let panels = group.panels(outputs);
        let order = Order { first: panels.start, half };
        let begin = task % tasks * size;
        if begin >= panels.len() {
            return;
        }
        let panels = begin..panels.len().min(begin + size);
        let (parts, gates) = (&numbers, Vec::new());
        let out = &mut Output { isa, width, sink, parts, panels, first: group.first, gates };
        multiply_task(weight, input, (order, group.rows.clone()), out);
    };
    if work < WORTH_SHARING {
        (0..tasks * groups.len()).for_each(task);
    } else {
        threads.run(tasks * groups.len(), &task);
    }
}

/// Multiplies rows with the panels of a task.
fn multiply_task<I: Isa>(
    weight: &Weight,
    input: &Input,
    (order, rows): (Order, Range<usize>),
    out: &mut Output<'_, I>,
) {
    match &weight.numbers {
        Numbers::F32(w) => floats(input, w.values(), (order, rows), out),
        Numbers::Bf16(w) => floats::<_, bf16>(input, bytemuck::cast_slice(w.values()), (order, rows), out),
        Numbers::Int8 { values, scales, sums } => {
            let len = PANEL * weight.stride;
            let panel = |at: usize| {
                let panel = order.panel(at);
                Panel {
                    values: &values.values()[panel * len..(panel + 1) * len],
                    scales: &scales.values().as_chunks().0[panel],
                    sums: &sums.values().as_chunks().0[panel],
                }
            };
            match input.blocks(rows.clone()) {
                Some(x) => blocks(&x, rows.start, &panel, out),
                None => {
                    let row = |row| input.quantized(row);
                    tiles(|ahead| Int8 { row, panel, ahead }, rows, (order, len), out);
                }
            }
        }
        Numbers::Int8Groups(weights) => grouped(input, weights, (order, rows), out),
        Numbers::Int4(weights) => grouped(input, weights, (order, rows), out),
        Numbers::Int4Affine(weights) => grouped(input, weights, (order, rows), out),
    }
}

/// Multiplies rows with the panels of a task whose weights are in groups.
fn grouped<I: Isa, F: Multiply<I>>(
    input: &Input,
    weights: &Panels<F>,
    (order, rows): (Order, Range<usize>),
    out: &mut Output<'_, I>,
) {
    let len = weights.panel(0).len();
    tiles(|ahead| Groups { input, weights, order, ahead }, rows, (order, len), out);
}

/// How many of a group's `count` panels a task multiplies: a multiple of [`STEP`]. `work` is that of all groups, which
/// have so many rows together.
fn panels_of_a_task(
    threads: usize,
    weight: &Weight,
    (work, count): (usize, usize),
    (rows, groups): (usize, usize),
) -> usize {
    let tasks = if work < WORTH_SHARING {
        1
    } else if rows <= FEW_ROWS * groups {
        (threads * 16).div_ceil(groups) // small ones end together
    } else {
        (threads * 2).div_ceil(groups) // each reads all rows again
    };
    let size = count.div_ceil(tasks).next_multiple_of(STEP);
    let cached = CACHED / weight.kind().bytes(PANEL, weight.stride) / STEP * STEP;
    if work < WORTH_SHARING { size } else { size.min(cached.clamp(STEP, 16)) }
}

/// In which order a product takes the panels of a matrix from the first on: as they lie, or a gate's in turn with their
/// partners.
#[derive(Clone, Copy)]
struct Order {
    first: usize,
    half: Option<usize>,
}

impl Order {
    /// The panel that comes `at`-th.
    fn panel(self, at: usize) -> usize {
        self.first + self.half.map_or(at, |half| at / 2 + at % 2 * half)
    }

    /// How many panels lie between two that come [`STEP`] after each other.
    fn stride(self) -> usize {
        if self.half.is_some() { 1 } else { STEP }
    }
}

/// Where the products of one task go.
struct Output<'a, I> {
    isa: I,
    width: usize,
    sink: Sink<'a>,
    parts: &'a Parts<'a, f32>, // (rows, width)
    panels: Range<usize>,      // of the group's
    first: usize,              // the output of the matrix that is the group's first
    gates: Vec<f32>,           // (rows, gate | up, outputs), of the rows in hand, for a gate
}

impl<I: Isa> Output<'_, I> {
    /// Takes products of the rows from `row` on, each with the same number of panels, of which the first comes `at`-th.
    /// The panels of some rows come in order, each row's all before the next rows'.
    ///
    /// # Safety
    /// Only one thread at a time may bring products of these panels.
    unsafe fn take<'p>(
        &mut self,
        row: usize,
        at: usize,
        products: impl ExactSizeIterator<Item = &'p [[f32; PANEL]]>,
    ) {
        let (isa, rows) = (self.isa, row..row + products.len());
        let Sink::Gate(activation) = self.sink else {
            return isa.run(|| {
                for (row, products) in rows.zip(products) {
                    for (panel, products) in products.iter().enumerate() {
                        // SAFETY: as the caller vouches.
                        unsafe { self.put(row, at + panel, products) };
                    }
                }
            });
        };
        let width = self.panels.len() / 2 * PANEL;
        self.gates.resize(rows.len() * 2 * width, 0.0);
        let mut end = at;
        for (products, line) in products.zip(self.gates.chunks_exact_mut(2 * width)) {
            end = at + products.len();
            let (gate, up) = line.split_at_mut(width);
            for (pair, products) in products.as_chunks::<2>().0.iter().enumerate() {
                let place = (at - self.panels.start) / 2 * PANEL + pair * PANEL;
                gate[place..place + PANEL].copy_from_slice(&products[0]);
                up[place..place + PANEL].copy_from_slice(&products[1]);
            }
        }
        if end < self.panels.end {
            return;
        }
        for (row, line) in rows.zip(self.gates.chunks_exact(2 * width)) {
            let (gate, up) = line.split_at(width);
            // SAFETY: as the caller vouches.
            unsafe { self.put_gate(activation, row, gate, up) };
        }
    }

    /// Takes all gates of this task for one row, and their partners.
    ///
    /// # Safety
    /// As for [`take`](Self::take).
    unsafe fn put_gate(&self, activation: Activation, row: usize, gate: &[f32], up: &[f32]) {
        let at = row * self.width + self.panels.start / 2 * PANEL;
        // SAFETY: the caller keeps others away from these numbers.
        rows::gate(self.isa, activation, gate, up, unsafe { self.parts.part(at..at + gate.len()) });
    }

    /// # Safety
    /// As for [`take`](Self::take).
    #[inline(always)]
    unsafe fn put(&self, row: usize, panel: usize, products: &[f32; PANEL]) {
        // The first panel may begin with outputs of another group.
        let before = self.first % PANEL;
        let (first, skipped) = if panel == 0 { (0, before) } else { (panel * PANEL - before, 0) };
        let at = row * self.width + first;
        let count = (PANEL - skipped).min(self.width - first);
        // SAFETY: the caller keeps others away from these numbers.
        let out = unsafe { self.parts.part(at..at + count) };
        let bias_of = |bias: &[f32]| {
            let mut lanes = [0.0; PANEL];
            lanes[..count].copy_from_slice(&bias[self.first + first..][..count]);
            lanes
        };
        // Over arrays, so that each loop becomes one vector; over slices of sixteen it would go number by number.
        let mut sums = *products;
        if skipped > 0 {
            sums.copy_within(skipped.., 0);
        }
        match self.sink {
            Sink::Store(None) | Sink::Add(None) => {}
            Sink::Store(Some(bias)) | Sink::Add(Some(bias)) => {
                let bias = bias_of(bias);
                (0..PANEL).for_each(|j| sums[j] += bias[j]);
            }
            Sink::Gate(_) => unreachable!("gates come in pairs"),
        }
        match out.first_chunk_mut::<PANEL>() {
            Some(out) if matches!(self.sink, Sink::Add(_)) => (0..PANEL).for_each(|j| out[j] += sums[j]),
            Some(out) => *out = sums,
            None => {
                for (out, sum) in out.iter_mut().zip(&sums) {
                    *out = if matches!(self.sink, Sink::Add(_)) { *out + sum } else { *sum };
                }
            }
        }
    }
}

/// How an instruction set multiplies weights in groups.
trait Multiply<I: Isa>: Pack {
    const SHAPES: [(usize, usize); 2];

    fn multiply<const R: usize, const T: usize>(
        isa: I,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; PANEL]; T]; R];
}

impl<I: Isa, const AFFINE: bool> Multiply<I> for Nibbles<AFFINE>
where
    Self: Pack,
{
    const SHAPES: [(usize, usize); 2] = I::INT4;

    fn multiply<const R: usize, const T: usize>(
        isa: I,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; PANEL]; T]; R] {
        isa.int4::<AFFINE, R, T>(x, w, ahead)
    }
}

impl<I: Isa> Multiply<I> for Int8Groups {
    const SHAPES: [(usize, usize); 2] = I::INT8_GROUPS;

    fn multiply<const R: usize, const T: usize>(
        isa: I,
        x: [Signed<'_>; R],
        w: [&[u8]; T],
        ahead: Ahead,
    ) -> [[[f32; PANEL]; T]; R] {
        isa.int8_groups(x, w, ahead)
    }
}

/// Products of rows with weights in groups.
struct Groups<'a, F> {
    input: &'a Input,
    weights: &'a Panels<F>,
    order: Order,
    ahead: Ahead,
}

impl<I: Isa, F: Multiply<I>> Tile<I> for Groups<'_, F> {
    const SHAPES: [(usize, usize); 2] = F::SHAPES;

    fn products<const R: usize, const T: usize>(
        &self,
        isa: I,
        row: usize,
        panels: [usize; T],
    ) -> [[[f32; PANEL]; T]; R] {
        F::multiply(
            isa,
            each(row, |row| self.input.signed(row)),
            each(0, |t| self.weights.panel(self.order.panel(panels[t]))),
            self.ahead,
        )
    }
}

/// Multiplies all rows with the panels of a task, tile by tile. A panel has `len` bytes.
fn tiles<I: Isa, K: Tile<I>>(
    tile: impl Fn(Ahead) -> K,
    rows: Range<usize>,
    (order, len): (Order, usize),
    out: &mut Output<'_, I>,
) {
    let (isa, task) = (out.isa, out.panels.clone());
    let mut multiply = |rows, panels: Range<usize>, ahead| {
        out.panels = panels.clone();
        cover(isa, &tile(ahead), rows, panels, &mut |row, at, lines| {
            // SAFETY: these panels belong to this task.
            unsafe { out.take(row, at, lines.iter().copied()) };
        });
    };
    let most = K::SHAPES[1].0;
    if rows.len() <= most || rows.len() > ROWS_BY_PANELS || most == 1 {
        return multiply(rows, task, Ahead::STREAM);
    }
    let shares = rows.len().div_ceil(most);
    let most = rows.len().div_ceil(shares); // none is left alone
    for first in task.clone().step_by(STEP) {
        for share in 0..shares {
            let ahead = Ahead::share(order.stride() * len, len, (share, shares));
            let first_row = rows.start + share * most;
            let rows = first_row..rows.end.min(first_row + most);
            multiply(rows, first..task.end.min(first + STEP), ahead);
        }
    }
}

/// Multiplies the rows from `row` on with the panels of a task on the matrix unit.
fn blocks<'a, I: Isa>(
    x: &QuantizedBlocks<'_>,
    row: usize,
    panel: &dyn Fn(usize) -> Panel<'a>,
    out: &mut Output<'_, I>,
) {
    let (panels, end) = (out.panels.clone(), out.panels.end);
    out.isa.blocks(x, panels, panel, &mut |rows, first, products| {
        let count = (end - first).min(2);
        // SAFETY: these panels belong to this task.
        unsafe {
            out.take(row + rows.start, first, products[..rows.len()].iter().map(|pair| &pair[..count]))
        };
    });
}

/// Rows whose products with a task's float panels are computed before they are stored: whole blocks.
const ROWS_AT_ONCE: usize = 32;

/// Multiplies rows with the float panels of a task.
fn floats<I: Isa, W: Stored>(
    input: &Input,
    w: &[W],
    (order, all): (Order, Range<usize>),
    out: &mut Output<'_, I>,
) {
    let (isa, panels) = (out.isa, out.panels.clone());
    let len = PANEL * input.stride;
    let multiply = |rows: Range<usize>, panels: Range<usize>, products: &mut [[f32; PANEL]]| {
        // The first rows bring the panels into the cache.
        let ahead = if rows.start == all.start { PANEL_AHEAD } else { 0 };
        let values = &w[(order.first + panels.start) * len..(order.first + panels.end) * len];
        let (w, products) =
            (FloatPanels { values, inputs: input.stride, ahead }, products.as_flattened_mut());
        match input.pairs(rows.clone()) {
            Some(x) => isa.pairs(x, rows.len(), w, false, products),
            None => isa.floats(input.floats(rows), w, false, products),
        }
    };
    let mut products = vec![[0.0; PANEL]; panels.len() * all.len().min(ROWS_AT_ONCE)];
    for first in all.clone().step_by(ROWS_AT_ONCE) {
        let rows = first..all.end.min(first + ROWS_AT_ONCE);
        let Some(half) = order.half else {
            let products = &mut products[..panels.len() * rows.len()];
            multiply(rows, panels.clone(), products);
            // SAFETY: these panels belong to this task.
            unsafe { out.take(first, panels.start, products.chunks_exact(panels.len())) };
            continue;
        };
        // Gates and their partners lie apart: each are multiplied for themselves.
        let gates = panels.start / 2..panels.end / 2;
        let (gate, up) = products[..panels.len() * rows.len()].split_at_mut(gates.len() * rows.len());
        multiply(rows.clone(), gates.clone(), gate);
        multiply(rows.clone(), half + gates.start..half + gates.end, up);
        let Sink::Gate(activation) = out.sink else { unreachable!("only a gate has halves") };
        let lines = gate.chunks_exact(gates.len()).zip(up.chunks_exact(gates.len()));
        for (row, (gate, up)) in rows.zip(lines) {
            // SAFETY: these panels belong to this task.
            unsafe { out.put_gate(activation, row, gate.as_flattened(), up.as_flattened()) };
        }
    }
}
