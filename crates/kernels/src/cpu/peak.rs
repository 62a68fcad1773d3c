//! How fast products are where memory plays no part: the limit that prefill is measured against.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::buffer::Parts;
use super::input::Input;
use super::matrix::Weight;
use super::product::{Sink, multiply};
use super::rows::Rows;
use super::threads::Threads;
use super::{Cpu, Isa};
use crate::{Dtype, Result, Tensor, WeightKind};

/// Rows, inputs and outputs of a product whose numbers stay in the first two caches of a core.
const SHAPE: (usize, usize, usize) = (64, 2048, 32);
/// How long one measurement takes, and how many there are.
const TIME: (Duration, usize) = (Duration::from_millis(20), 5);

impl<I: Isa> Cpu<I> {
    /// Floating-point operations a second, two a multiplication, of products with weights of this kind whose numbers all
    /// stay in the caches next to each thread: the best of several measurements. What these kernels can reach at most on
    /// this machine, not what its instructions could.
    ///
    /// # Errors
    /// When there is no memory or no thread to be had.
    pub fn peak_flops(&mut self, kind: WeightKind) -> Result<f64> {
        let count = self.threads.count();
        let mut cores = (0..count).map(|_| Core::new(self.isa, kind)).collect::<Result<Vec<_>>>()?;
        let mut best = 0.0_f64;
        for _ in 0..TIME.1 {
            let cores = Parts::new(&mut cores);
            let (products, start) = (AtomicUsize::new(0), Instant::now());
            self.threads.run(count, &|index| {
                // SAFETY: each core belongs to one task.
                let core = unsafe { &mut cores.part(index..index + 1)[0] };
                // All until the same moment: a task that begins later, since its thread was put aside, counts little.
                while start.elapsed() < TIME.0 {
                    core.multiply();
                    products.fetch_add(1, Relaxed);
                }
            });
            let (rows, inputs, outputs) = SHAPE;
            let flops = products.into_inner() * 2 * rows * inputs * outputs;
            best = best.max(flops as f64 / start.elapsed().as_secs_f64());
        }
        Ok(best)
    }
}

/// The product of one thread.
struct Core<I> {
    isa: I,
    alone: Threads,
    weight: Weight,
    input: Input,
    out: Rows,
}

impl<I: Isa> Core<I> {
    fn new(isa: I, kind: WeightKind) -> Result<Self> {
        let (rows, inputs, outputs) = SHAPE;
        let mut alone = Threads::new(1).map_err(|error| crate::Error::Failed(error.to_string()))?;
        let number = |index: usize| (index * 7919 % 1013) as f32 / 1013.0 - 0.5;
        let numbers: Vec<u8> = (0..outputs * inputs).flat_map(|i| number(i).to_le_bytes()).collect();
        let source = Tensor::new(Dtype::F32, outputs, inputs, &numbers)
            .ok_or_else(|| crate::Error::Failed("a matrix has as many numbers as it needs".to_owned()))?;
        let mut weight = Weight::new(kind, outputs, inputs)?;
        weight.write(isa, &mut alone, 0, &source)?;
        let mut input = Input::new()?;
        input.prepare(isa, &mut alone, kind, (rows, inputs), &|row, out| {
            out.iter_mut().enumerate().for_each(|(k, x)| *x = number(row * inputs + k));
        })?;
        Ok(Self { isa, alone, weight, input, out: Rows::new(rows, outputs)? })
    }

    fn multiply(&mut self) {
        multiply(self.isa, &mut self.alone, &self.weight, &self.input, Sink::Store(None), &mut self.out);
    }
}
