//! Weights that GGUF files store in blocks: some numbers of few bits, and the scales that they share. Knows one block at
//! a time.
//!
//! Names, forms and arithmetic are those of `gguf.quants` in the Python package gguf 0.19, to the bit: products and
//! differences are rounded to f32 one after the other.

mod large;
mod small;

use half::f16;

pub(crate) use large::{q2_k, q3_k, q4_k, q4_k_groups, q5_k, q6_k};
pub(crate) use small::{E2M1, IQ4_NL, five_bits, iq4_nl, mxfp4, nibbles, q4_0, q4_1, q5_0, q5_1, q8_0};

/// Numbers in a block of the older types.
pub(crate) const SMALL: usize = 32;
/// Numbers in a block of the types whose scales have scales.
pub(crate) const LARGE: usize = 256;

/// Converts blocks of `N` bytes into `M` numbers each.
pub(crate) fn convert<const N: usize, const M: usize>(
    bytes: &[u8],
    out: &mut [f32],
    block: impl Fn(&[u8; N], &mut [f32; M]),
) {
    for (out, bytes) in out.as_chunks_mut::<M>().0.iter_mut().zip(bytes.as_chunks::<N>().0) {
        block(bytes, out);
    }
}

/// The f16 at `at`.
fn half(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}
