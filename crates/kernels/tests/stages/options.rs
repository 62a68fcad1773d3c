//! What the argument structs of the stages add to the plain computation, chosen by number.

use whin_kernels::{Backend, Norm};

use crate::bounds::{self, Bounded};
use crate::cases::uniform;

/// Of a product.
#[derive(Clone, Debug)]
pub struct RowOptions {
    /// Whether rows go into the product as they are, where the stage has a norm that can be left out.
    pub bare: bool,
    /// Whether norms take the mean off.
    pub centred: bool,
    /// Weights of a norm of what `project_add` adds. (outputs,)
    pub post_norm: Option<Vec<f32>>,
    /// Factor of what `project_add` adds, or of logits.
    pub scale: f32,
    /// Of logits.
    pub softcap: Option<f32>,
}

impl RowOptions {
    pub const PLAIN: Self = Self { bare: false, centred: false, post_norm: None, scale: 1.0, softcap: None };

    /// Number `number` of the twelve ways to put them together.
    pub fn of(number: usize, outputs: usize) -> Self {
        let post_norm = (number / 2 % 2 == 1).then(|| near_one(number as u64, outputs));
        Self {
            bare: post_norm.is_some(),
            centred: number % 2 == 1,
            post_norm,
            scale: [1.0, 0.37, -3.0][number / 4 % 3],
            softcap: (number / 4 % 3 == 2).then_some([30.0, 0.3, 4.0][number / 12 % 3]),
        }
    }

    /// The norm before a product, with weights of the right length.
    pub fn norm<'a, B: Backend>(&self, weight: &'a B::Vector, eps: f32) -> Option<Norm<'a, B>> {
        (!self.bare).then_some(Norm { weight, eps, centred: self.centred })
    }

    /// What that norm makes of exact numbers.
    pub fn normed(&self, x: &Bounded, weight: &[f32], eps: f32) -> Bounded {
        if self.bare { x.clone() } else { norm(self.centred, x, weight, eps) }
    }
}

/// Of attention.
#[derive(Clone, Copy, Debug)]
pub struct AttentionOptions {
    /// Whether rows go into the projection as they are.
    pub bare: bool,
    /// Whether norms take the mean off.
    pub centred: bool,
    /// Whether the norms of queries and keys take all heads together.
    pub together: bool,
    /// Whether queries and keys stay where they are.
    pub unrotated: bool,
    /// Whether the result has gates.
    pub gated: bool,
    pub softcap: Option<f32>,
    /// About where the sinks lie.
    pub sinks: Option<f32>,
}

impl AttentionOptions {
    pub const PLAIN: Self = Self {
        bare: false,
        centred: false,
        together: false,
        unrotated: false,
        gated: false,
        softcap: None,
        sinks: None,
    };

    /// All that go together.
    pub const ALL: Self = Self {
        bare: false,
        centred: true,
        together: true,
        unrotated: false,
        gated: true,
        softcap: Some(5.0),
        sinks: Some(1.0),
    };

    /// None of them for every fourth number, else each with one chance in two.
    pub fn of(number: usize) -> Self {
        if number.is_multiple_of(4) {
            return Self::PLAIN;
        }
        let chance: Vec<bool> = uniform(7000 + number as u64, 7).iter().map(|x| *x > 0.0).collect();
        Self {
            bare: chance[0],
            centred: chance[1],
            together: chance[2],
            unrotated: chance[3],
            gated: chance[4],
            softcap: chance[5].then_some([0.7, 5.0, 50.0][number % 3]),
            sinks: chance[6].then_some([-3.0, 0.0, 4.0][number / 3 % 3]),
        }
    }

    /// The names of those that are set.
    pub fn names(&self) -> Vec<&'static str> {
        let all = [
            ("bare", self.bare),
            ("centred", self.centred),
            ("together", self.together),
            ("unrotated", self.unrotated),
            ("gated", self.gated),
            ("softcap", self.softcap.is_some()),
            ("sinks", self.sinks.is_some()),
        ];
        all.into_iter().filter(|(_, set)| *set).map(|(name, _)| name).collect()
    }
}

/// Weights of a norm: between a half and one and a half.
pub fn near_one(seed: u64, count: usize) -> Vec<f32> {
    uniform(seed, count).iter().map(|w| 1.0 + 0.5 * w).collect()
}

/// A norm of either kind.
pub fn norm(centred: bool, x: &Bounded, weight: &[f32], eps: f32) -> Bounded {
    if centred { bounds::norm(&bounds::centred(x), weight, eps) } else { bounds::norm(x, weight, eps) }
}
