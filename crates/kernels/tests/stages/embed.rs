//! Rows of a table, as a backend keeps them.

use whin_kernels::{Backend, Step, WeightKind, int4, int8_groups};

use crate::bounds::Bounded;
use crate::cases::{Case, Matrix};

/// Rows of a table.
#[derive(Clone, Debug)]
pub struct Embed {
    pub matrix: Matrix,
    pub tokens: Vec<u32>,
    pub scale: f32,
}

impl Case for Embed {
    fn name(&self) -> String {
        format!(
            "embed {:?} times {} from {} ({}, {})",
            self.tokens,
            self.scale,
            self.matrix.kind.name(),
            self.matrix.outputs,
            self.matrix.inputs
        )
    }

    fn run<B: Backend>(&self, backend: &mut B, _: bool) -> Vec<f32> {
        let table = self.matrix.upload(backend);
        let mut x = backend.rows(self.tokens.len(), self.matrix.inputs).expect("memory");
        let args = whin_kernels::Embed { table: &table, scale: self.scale };
        backend.embed(&args, &Step { tokens: self.tokens.clone(), ..Step::default() }, &mut x);
        backend.read(&x, self.tokens.len()).expect("the device works")
    }

    /// The weight as it is stored: bf16 is off by 2⁻⁹ of it (and exact to the bit here), int8 by half a step. In
    /// int8-groups, half a step of the group is joined by the rounding of the scale to f16, 2⁻¹¹ of the weight. In int4, the
    /// squared error of a group is at most that of the scale that makes its largest weight −8, whose own rounding to f16
    /// moves a number by 2⁻¹¹ of it. With offsets, half a step is joined by the roundings of the offset and of the scale,
    /// which the integer 15 multiplies, to f16.
    fn bounds(&self) -> Bounded {
        let mut all = Bounded::default();
        for &token in &self.tokens {
            let row = &self.matrix.values[token as usize * self.matrix.inputs..][..self.matrix.inputs];
            let max = row.iter().fold(0.0_f32, |max, w| max.max(w.abs()));
            let mut bounded = Bounded::exact(row);
            for (error, value) in bounded.errors.iter_mut().zip(&bounded.values) {
                *error = match self.matrix.kind {
                    WeightKind::F32 => 0.0,
                    WeightKind::Bf16 => value.abs() / 256.0,
                    WeightKind::Int8 => f64::from(max) / 127.0 * (0.5 + 1e-4),
                    WeightKind::Int8Groups | WeightKind::Int4 | WeightKind::Int4Affine => 0.0,
                };
            }
            if self.matrix.kind == WeightKind::Int8Groups {
                let (values, errors) = (&bounded.values, &mut bounded.errors);
                for (w, errors) in
                    values.chunks(int8_groups::GROUP).zip(errors.chunks_mut(int8_groups::GROUP))
                {
                    let max = w.iter().fold(0.0_f64, |max, w| max.max(w.abs()));
                    for (error, w) in errors.iter_mut().zip(w) {
                        *error = max / 127.0 * (0.5 + 1e-4) + w.abs() / 2040.0;
                    }
                }
            }
            if self.matrix.kind == WeightKind::Int4Affine {
                let groups = bounded.values.chunks(int4::GROUP).zip(bounded.errors.chunks_mut(int4::GROUP));
                for (w, errors) in groups {
                    let (least, most) = w.iter().fold((w[0], w[0]), |(a, b), w| (a.min(*w), b.max(*w)));
                    let step = (most - least) / 15.0;
                    errors.fill(step * 0.51 + (least.abs() + most - least) / 1024.0);
                }
            }
            if self.matrix.kind == WeightKind::Int4 {
                let groups = bounded.values.chunks(int4::GROUP).zip(bounded.errors.chunks_mut(int4::GROUP));
                for (w, errors) in groups {
                    let largest = w.iter().fold(0.0_f64, |max, w| if w.abs() > max.abs() { *w } else { max });
                    let scale = largest / -8.0;
                    let error = |w: &f64| {
                        (w - scale * (w / scale).round().clamp(-8.0, 7.0)).abs()
                            + w.abs() / 1024.0
                            + scale.abs() / 256.0
                    };
                    errors.fill(w.iter().map(|w| error(w).powi(2)).sum::<f64>().sqrt());
                }
            }
            all.extend(&bounded.times(self.scale));
        }
        all
    }

    fn exact(&self) -> bool {
        true
    }
}
