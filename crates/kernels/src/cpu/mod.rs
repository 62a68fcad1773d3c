//! The backend for processors: the stages, composed of products, attention and row operations.

use crate::{
    Attend, Backend, Best, CacheShape, Delta, Embed, Experts, Gated, Head, HeadNorm, Layout, Norm, Project,
    Qkv, Result, ShortConv, Span, Step, Tensor, WeightKind,
};

mod attention;
mod bandwidth;
mod buffer;
mod cache;
mod experts;
mod groups;
mod input;
mod int4;
mod int8_groups;
pub mod isa;
mod matrix;
mod peak;
mod product;
mod recurrent;
mod rows;
mod states;
mod threads;
mod tiles;

pub use bandwidth::read_bandwidth;
pub use cache::State;
pub use isa::Isa;
pub use matrix::Weight;
pub use rows::Rows;

use buffer::Parts;
use input::Input;
use isa::PANEL;
use product::{Sink, multiply};
use threads::Threads;

/// A processor with the instruction set `I`.
pub struct Cpu<I> {
    isa: I,
    threads: Threads,
    input: Input,
    output: Rows,
    /// What a convolution makes of `output`.
    mixed: Rows,
    experts: experts::Scratch,
    /// For each row the factor of what a gated layer finds.
    gates: Vec<f32>,
    /// A stage that found no memory for its scratch rows leaves the error here, for the next read.
    fault: Option<crate::Error>,
}

impl<I: Isa> Cpu<I> {
    /// The processor, worked by `threads` threads.
    ///
    /// # Errors
    /// [`Unavailable`](crate::Error::Unavailable) when the processor lacks the instruction set,
    /// [`Failed`](crate::Error::Failed) when the system starts no more threads.
    pub fn new(threads: usize) -> Result<Self> {
        let isa = I::detect().ok_or_else(|| {
            crate::Error::Unavailable(format!("this processor lacks the instruction set {}", I::NAME))
        })?;
        let threads = Threads::new(threads)
            .map_err(|error| crate::Error::Failed(format!("cannot start {threads} threads: {error}")))?;
        let [output, mixed] = [Rows::new(0, 0)?, Rows::new(0, 0)?];
        let (input, experts, gates) = (Input::new()?, experts::Scratch::new()?, Vec::new());
        Ok(Self { isa, threads, input, output, mixed, experts, gates, fault: None })
    }

    fn keep(&mut self, result: Result<()>) {
        if let Err(error) = result {
            self.fault.get_or_insert(error);
        }
    }

    /// Rows of `x`, normalised where there is a norm, as the left side of a product with `weight`.
    fn normalize(
        &mut self,
        weight: &Weight,
        norm: Option<&Norm<'_, Self>>,
        x: &Rows,
        (rows, pick): (usize, &(dyn Fn(usize) -> usize + Sync)),
    ) -> Result<()> {
        let (isa, norm) = (self.isa, norm.map(of_rows));
        self.input.prepare(isa, &mut self.threads, weight.kind(), (rows, weight.inputs), &|row, out| {
            normalize_row(isa, norm, x.row(pick(row)), out);
        })
    }

    /// The same for all rows of a step, and for each the sigmoid of its product with `gate`, in [`Self::gates`].
    fn normalize_and_gate(
        &mut self,
        weight: &Weight,
        (norm, gate): (Option<&Norm<'_, Self>>, &[f32]),
        step: &Step,
        x: &Rows,
    ) -> Result<()> {
        let (isa, norm, rows) = (self.isa, norm.map(of_rows), step.rows());
        self.gates.resize(rows, 0.0);
        let gates = Parts::new(&mut self.gates);
        self.input.prepare(isa, &mut self.threads, weight.kind(), (rows, weight.inputs), &|row, out| {
            normalize_row(isa, norm, x.row(row), out);
            // SAFETY: each row belongs to one task.
            unsafe { gates.part(row..row + 1)[0] = rows::sigmoid_of_product(isa, out, gate) };
        })
    }

    fn try_qkv(
        &mut self,
        args: &Qkv<'_, Self>,
        step: &Step,
        x: &Rows,
        state: &mut State,
        q: &mut Rows,
    ) -> Result<()> {
        let (queries, kv_width) = (args.heads * args.head_dim, args.kv_heads * args.head_dim);
        let gates = if args.gated { queries } else { 0 };
        assert_eq!(args.weight.outputs, queries + 2 * kv_width + gates, "outputs of the projection");
        assert_eq!(q.width(), queries + gates, "width of the queries");
        assert_bias(args.bias, args.weight);
        self.normalize(args.weight, args.norm.as_ref(), x, (step.rows(), &|row| row))?;
        self.output.reshape(step.rows(), args.weight.outputs)?;
        let sink = Sink::Store(args.bias.map(Vec::as_slice));
        multiply(self.isa, &mut self.threads, args.weight, &self.input, sink, &mut self.output);
        state.fetch_places(args.layer, step);
        let (isa, dim, width) = (self.isa, args.head_dim, args.weight.outputs);
        let turned = queries + kv_width;
        let rotation = args.rotation.map(|rotation| &step.rotations[rotation]);
        let (out, q) = (Parts::new(self.output.values_mut()), Parts::new(q.values_mut()));
        each_row(&mut self.threads, step.rows(), &|row| {
            // SAFETY: each row belongs to one task, and lies within `width` and the width of `q`, as checked above.
            let (out, q) = unsafe {
                (
                    out.part(row * width..(row + 1) * width),
                    q.part(row * (queries + gates)..(row + 1) * (queries + gates)),
                )
            };
            let (first, second) = out[..turned].split_at_mut(queries);
            for (heads, norm) in [(&mut *first, &args.q_norm), (second, &args.k_norm)] {
                normalize_heads(isa, heads, dim, norm.as_ref());
                if let Some(rotation) = rotation {
                    heads.chunks_exact_mut(dim).for_each(|head| rows::rotate(isa, head, rotation, row));
                }
            }
            q[..queries].copy_from_slice(first);
            q[queries..].copy_from_slice(&out[width - gates..]);
        });
        let output = &self.output;
        let keys_and_values = |row| &output.row(row)[queries..queries + 2 * kv_width];
        state.store(isa, &mut self.threads, args.layer, step, &keys_and_values);
        Ok(())
    }

    fn try_gated(&mut self, args: &Gated<'_, Self>, step: &Step, x: &Rows, h: &mut Rows) -> Result<()> {
        assert_bias(args.bias, args.weight);
        assert_eq!(args.weight.outputs, 2 * h.width(), "outputs of gate and up");
        match args.row_gate {
            Some(gate) => self.normalize_and_gate(args.weight, (args.norm.as_ref(), gate), step, x)?,
            None => self.normalize(args.weight, args.norm.as_ref(), x, (step.rows(), &|row| row))?,
        }
        let (isa, inner) = (self.isa, h.width());
        if inner.is_multiple_of(PANEL) && args.bias.is_none() {
            let sink = Sink::Gate(args.activation);
            multiply(isa, &mut self.threads, args.weight, &self.input, sink, h);
        } else {
            // A gate and its partner stand in different lanes, or have a bias: the whole product first.
            self.output.reshape(step.rows(), args.weight.outputs)?;
            let sink = Sink::Store(args.bias.map(Vec::as_slice));
            multiply(isa, &mut self.threads, args.weight, &self.input, sink, &mut self.output);
            let (out, h) = (&self.output, Parts::new(h.values_mut()));
            each_row(&mut self.threads, step.rows(), &|row| {
                let (gate, up) = out.row(row).split_at(inner);
                // SAFETY: each row belongs to one task.
                rows::gate(isa, args.activation, gate, up, unsafe { h.part(row * inner..(row + 1) * inner) });
            });
        }
        if args.row_gate.is_some() {
            let (gates, h) = (&self.gates, Parts::new(h.values_mut()));
            each_row(&mut self.threads, step.rows(), &|row| {
                // SAFETY: each row belongs to one task.
                rows::scale(isa, unsafe { h.part(row * inner..(row + 1) * inner) }, gates[row]);
            });
        }
        Ok(())
    }

    fn try_project_add(
        &mut self,
        args: &Project<'_, Self>,
        step: &Step,
        h: &Rows,
        x: &mut Rows,
    ) -> Result<()> {
        assert_bias(args.bias, args.weight);
        let shape = (step.rows(), args.weight.inputs);
        self.input.prepare(self.isa, &mut self.threads, args.weight.kind(), shape, &|row, out| {
            out.copy_from_slice(h.row(row));
        })?;
        let bias = args.bias.map(Vec::as_slice);
        if args.norm.is_none() && args.scale == 1.0 {
            multiply(self.isa, &mut self.threads, args.weight, &self.input, Sink::Add(bias), x);
            return Ok(());
        }
        assert_eq!(x.width(), args.weight.outputs, "width of the sum");
        self.output.reshape(step.rows(), args.weight.outputs)?;
        multiply(self.isa, &mut self.threads, args.weight, &self.input, Sink::Store(bias), &mut self.output);
        let (isa, width, norm) = (self.isa, args.weight.outputs, args.norm.as_ref().map(of_rows));
        let (out, x) = (Parts::new(self.output.values_mut()), Parts::new(x.values_mut()));
        each_row(&mut self.threads, step.rows(), &|row| {
            let range = row * width..(row + 1) * width;
            // SAFETY: each row belongs to one task.
            let (out, x) = unsafe { (out.part(range.clone()), x.part(range)) };
            if let Some(norm) = norm {
                rows::norm_in_place(isa, out, norm);
            }
            rows::add_scaled(isa, out, args.scale, x);
        });
        Ok(())
    }

    fn try_logits(&mut self, args: &Head<'_, Self>, step: &Step, x: &Rows, logits: &mut Rows) -> Result<()> {
        let pick = |index: usize| step.wanted[index] as usize;
        self.normalize(args.weight, Some(&args.norm), x, (step.wanted.len(), &pick))?;
        multiply(self.isa, &mut self.threads, args.weight, &self.input, Sink::Store(None), logits);
        if args.scale != 1.0 || args.softcap.is_some() {
            let (isa, width) = (self.isa, logits.width());
            let logits = Parts::new(logits.values_mut());
            self.threads.run(step.wanted.len(), &|row| {
                // SAFETY: each row belongs to one task.
                let logits = unsafe { logits.part(row * width..(row + 1) * width) };
                rows::scale_and_cap(isa, logits, args.scale, args.softcap);
            });
        }
        Ok(())
    }
}

fn assert_bias(bias: Option<&Vec<f32>>, weight: &Weight) {
    assert!(bias.is_none_or(|bias| bias.len() == weight.outputs), "length of the bias");
}

/// The row as it is where there is no norm.
fn normalize_row<I: Isa>(isa: I, norm: Option<rows::Norm<'_>>, x: &[f32], out: &mut [f32]) {
    match norm {
        Some(norm) => rows::norm(isa, x, norm, out),
        None => out.copy_from_slice(x),
    }
}

fn of_rows<'a, I: Isa>(norm: &Norm<'a, Cpu<I>>) -> rows::Norm<'a> {
    rows::Norm { weight: norm.weight, eps: norm.eps, centred: norm.centred }
}

/// The heads of a projection, of `dim` numbers each.
fn normalize_heads<I: Isa>(isa: I, heads: &mut [f32], dim: usize, norm: Option<&HeadNorm<'_, Cpu<I>>>) {
    let Some(HeadNorm { norm, span }) = norm else { return };
    let together = if *span == Span::Head { dim } else { heads.len() };
    heads.chunks_exact_mut(together).for_each(|part| rows::norm_in_place(isa, part, of_rows(norm)));
}

/// Rows that one task of a cheap row operation takes.
const ROWS_A_TASK: usize = 4;

fn each_row(threads: &mut Threads, rows: usize, task: &(dyn Fn(usize) + Sync)) {
    threads.run(rows.div_ceil(ROWS_A_TASK), &|chunk| {
        (chunk * ROWS_A_TASK..rows.min((chunk + 1) * ROWS_A_TASK)).for_each(task);
    });
}

impl<I: Isa> Backend for Cpu<I> {
    type Weight = Weight;
    type Vector = Vec<f32>;
    type Rows = Rows;
    type State = State;

    fn name(&self) -> String {
        let count = self.threads.count();
        format!("cpu ({}, {count} {})", I::NAME, if count == 1 { "thread" } else { "threads" })
    }

    fn weight(&mut self, kind: WeightKind, outputs: usize, inputs: usize) -> Result<Weight> {
        Weight::new(kind, outputs, inputs)
    }

    fn write(&mut self, weight: &mut Weight, first: usize, source: &Tensor<'_>) -> Result<()> {
        weight.write(self.isa, &mut self.threads, first, source)
    }

    fn layout(&self) -> Option<Layout> {
        // All instruction sets have the same. Its numbers are little-endian.
        cfg!(target_endian = "little").then_some(Layout { name: "panels16", version: 1 })
    }

    fn packed(weight: &Weight) -> Vec<&[u8]> {
        weight.packed()
    }

    fn adopt(
        &mut self,
        kind: WeightKind,
        outputs: usize,
        inputs: usize,
        file: crate::bytes::Section,
    ) -> Option<Weight> {
        Weight::of_file(kind, outputs, inputs, file)
    }

    fn vector(&mut self, values: &[f32]) -> Result<Vec<f32>> {
        Ok(values.to_vec())
    }

    fn rows(&mut self, rows: usize, width: usize) -> Result<Rows> {
        Rows::new(rows, width)
    }

    fn state(&mut self, shape: &CacheShape) -> Result<State> {
        Ok(State::new(shape))
    }

    fn grow(&mut self, state: &mut State, blocks: usize) -> Result<()> {
        state.grow(blocks)
    }

    fn shrink(&mut self, state: &mut State, blocks: usize) {
        state.shrink(blocks);
    }

    fn grow_states(&mut self, state: &mut State, states: usize) -> Result<()> {
        state.states.grow(states)
    }

    fn shrink_states(&mut self, state: &mut State, states: usize) {
        state.states.shrink(states);
    }

    fn fill(&mut self, rows: &mut Rows, values: &[f32]) -> Result<()> {
        rows.values_mut()[..values.len()].copy_from_slice(values);
        Ok(())
    }

    fn read(&mut self, rows: &Rows, count: usize) -> Result<Vec<f32>> {
        self.fault.take().map_or(Ok(()), Err)?;
        Ok(rows.values()[..count * rows.width()].to_vec())
    }

    fn embed(&mut self, args: &Embed<'_, Self>, step: &Step, x: &mut Rows) {
        let width = x.width();
        for (out, &token) in x.values_mut().chunks_exact_mut(width).zip(&step.tokens) {
            args.table.row(token as usize, out);
            if args.scale != 1.0 {
                out.iter_mut().for_each(|x| *x *= args.scale);
            }
        }
    }

    fn qkv(&mut self, args: &Qkv<'_, Self>, step: &Step, x: &Rows, state: &mut State, q: &mut Rows) {
        let result = self.try_qkv(args, step, x, state, q);
        self.keep(result);
    }

    fn attend(&mut self, args: &Attend<'_, Self>, step: &Step, q: &Rows, state: &State, y: &mut Rows) {
        attention::attend(self.isa, &mut self.threads, args, step, q, state, y);
    }

    fn short_conv(
        &mut self,
        args: &ShortConv<'_, Self>,
        step: &Step,
        x: &Rows,
        state: &mut State,
        y: &mut Rows,
    ) {
        let result = self.try_short_conv(args, step, x, state, y);
        self.keep(result);
    }

    fn delta(&mut self, args: &Delta<'_, Self>, step: &Step, x: &Rows, state: &mut State, y: &mut Rows) {
        let result = self.try_delta(args, step, x, state, y);
        self.keep(result);
    }

    fn gated(&mut self, args: &Gated<'_, Self>, step: &Step, x: &Rows, h: &mut Rows) {
        let result = self.try_gated(args, step, x, h);
        self.keep(result);
    }

    fn experts_add(&mut self, args: &Experts<'_, Self>, step: &Step, x: &mut Rows) {
        let result = self.try_experts_add(args, step, x);
        self.keep(result);
    }

    fn project_add(&mut self, args: &Project<'_, Self>, step: &Step, h: &Rows, x: &mut Rows) {
        let result = self.try_project_add(args, step, h, x);
        self.keep(result);
    }

    fn logits(&mut self, args: &Head<'_, Self>, step: &Step, x: &Rows, logits: &mut Rows) {
        let result = self.try_logits(args, step, x, logits);
        self.keep(result);
    }

    fn argmax(&mut self, logits: &Rows, count: usize) -> Result<Vec<Best>> {
        self.fault.take().map_or(Ok(()), Err)?;
        let isa = self.isa;
        let mut best = vec![Best { id: 0, logit: f32::NEG_INFINITY }; count];
        let parts = Parts::new(&mut best);
        self.threads.run(count, &|row| {
            // SAFETY: each row belongs to one task.
            unsafe { parts.part(row..row + 1)[0] = rows::best(isa, logits.row(row)) }
        });
        Ok(best)
    }
}
