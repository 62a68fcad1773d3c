//! Every way that this machine can compute a case.

use whin_kernels::Backend;
use whin_kernels::cpu::isa::scalar::Scalar;
use whin_kernels::cpu::{Cpu, Isa};
use whin_kernels::reference::Reference;

use crate::bounds::{Bounded, PAIR, with_loss};
use crate::cases::Case;
use crate::compare::{compare, same};
use crate::few;

/// The processor with every instruction set that it has, worked by 1, 2 and 3 threads (1 and 3 where few cases run).
pub struct Cpus {
    scalar: Vec<Cpu<Scalar>>,
    #[cfg(target_arch = "x86_64")]
    avx2: Vec<Cpu<whin_kernels::cpu::isa::avx2::Avx2>>,
    #[cfg(target_arch = "x86_64")]
    amx: Vec<Cpu<whin_kernels::cpu::isa::amx::Amx>>,
    #[cfg(target_arch = "x86_64")]
    avxvnni: Vec<Cpu<whin_kernels::cpu::isa::avxvnni::AvxVnni>>,
    #[cfg(target_arch = "x86_64")]
    avx512: Vec<Cpu<whin_kernels::cpu::isa::avx512::Avx512>>,
    #[cfg(target_arch = "aarch64")]
    neon: Vec<Cpu<whin_kernels::cpu::isa::neon::Neon>>,
    #[cfg(target_arch = "aarch64")]
    dotprod: Vec<Cpu<whin_kernels::cpu::isa::dotprod::DotProd>>,
    #[cfg(target_arch = "aarch64")]
    i8mm: Vec<Cpu<whin_kernels::cpu::isa::i8mm::I8mm>>,
}

/// How float products are computed: all instruction sets with the same arithmetic must agree to the bit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Arithmetic {
    /// By multiplication and addition.
    Plain,
    /// By fused multiply-add.
    Fused,
    /// With bf16 in pairs of bf16, else fused.
    Pairs,
}

/// What one backend made of a case.
pub struct Answer {
    pub backend: String,
    pub arithmetic: Arithmetic,
    pub values: Vec<f32>,
}

impl Cpus {
    pub fn new() -> Self {
        Self {
            scalar: pools(),
            #[cfg(target_arch = "x86_64")]
            avx2: pools(),
            #[cfg(target_arch = "x86_64")]
            amx: pools(),
            #[cfg(target_arch = "x86_64")]
            avxvnni: pools(),
            #[cfg(target_arch = "x86_64")]
            avx512: pools(),
            #[cfg(target_arch = "aarch64")]
            neon: pools(),
            #[cfg(target_arch = "aarch64")]
            dotprod: pools(),
            #[cfg(target_arch = "aarch64")]
            i8mm: pools(),
        }
    }

    /// The answers of all backends to one case, asked once.
    pub fn answers(&mut self, case: &impl Case) -> Vec<Answer> {
        let mut answers = ask(&mut self.scalar, case);
        #[cfg(target_arch = "x86_64")]
        {
            answers.extend(ask(&mut self.avx2, case));
            answers.extend(ask(&mut self.amx, case));
            answers.extend(ask(&mut self.avxvnni, case));
            answers.extend(ask(&mut self.avx512, case));
        }
        #[cfg(target_arch = "aarch64")]
        {
            answers.extend(ask(&mut self.neon, case));
            answers.extend(ask(&mut self.dotprod, case));
            answers.extend(ask(&mut self.i8mm, case));
        }
        answers
    }

    /// Demands of every backend: close to the reference, the reference itself close to the exact result, and the same
    /// bits again, with any number of threads, and on every instruction set with the same arithmetic; where the case is
    /// exact, the bits of the reference. Returns the answers for more demands.
    pub fn check(&mut self, case: &impl Case) -> Vec<Answer> {
        let name = case.name();
        let want = case.run(&mut Reference, false);
        let bounds = case.bounds();
        let right: Vec<f32> = bounds.values.iter().map(|v| *v as f32).collect();
        let rounded: Vec<f64> = bounds
            .errors
            .iter()
            .zip(&right)
            .map(|(e, r)| e + f64::from(r.abs()) * crate::bounds::U)
            .collect();
        compare(&want, &right, &rounded).unwrap_or_else(|why| panic!("{name}: reference: {why}"));
        // The reference and the backend may err in opposite directions.
        let twice = |bounds: &Bounded| bounds.errors.iter().map(|e| 2.0 * e).collect::<Vec<f64>>();
        let tolerances = twice(&bounds);
        let answers = self.answers(case);
        let pairs = answers.iter().any(|answer| answer.arithmetic == Arithmetic::Pairs);
        let looser = pairs.then(|| twice(&with_loss(PAIR, || case.bounds())));
        for (answer, again) in answers.iter().zip(self.answers(case)) {
            let Answer { backend, arithmetic, values } = answer;
            same(&again.values, values).unwrap_or_else(|why| panic!("{name}: {backend} again: {why}"));
            if case.exact() {
                same(values, &want).unwrap_or_else(|why| panic!("{name}: {backend}: {why}"));
            } else {
                let paired = *arithmetic == Arithmetic::Pairs;
                let tolerances = looser.as_ref().filter(|_| paired).unwrap_or(&tolerances);
                compare(values, &want, tolerances).unwrap_or_else(|why| panic!("{name}: {backend}: {why}"));
            }
            let first = answers.iter().find(|a| a.arithmetic == *arithmetic).expect("at least this one");
            same(values, &first.values)
                .unwrap_or_else(|why| panic!("{name}: {backend} and {}: {why}", first.backend));
        }
        answers
    }
}

fn pools<I: Isa>() -> Vec<Cpu<I>> {
    if I::detect().is_none() {
        return Vec::new();
    }
    let counts = if few() { &[1, 3][..] } else { &[1, 2, 3] };
    counts.iter().map(|threads| Cpu::new(*threads).expect("threads")).collect()
}

fn ask<I: Isa>(cpus: &mut [Cpu<I>], case: &impl Case) -> Vec<Answer> {
    let arithmetic = match (I::BF16_PAIRS, I::FMA) {
        (true, _) => Arithmetic::Pairs,
        (_, true) => Arithmetic::Fused,
        (_, false) => Arithmetic::Plain,
    };
    let answer = |cpu: &mut Cpu<I>| Answer { values: case.run(cpu, true), backend: cpu.name(), arithmetic };
    cpus.iter_mut().map(answer).collect()
}
