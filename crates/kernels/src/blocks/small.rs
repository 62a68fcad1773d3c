//! Blocks of 32 numbers with one scale, and some with one offset.

use super::{SMALL, half};

/// The lower four bits of all bytes, then the upper ones: the order in which nibbles of a block stand.
pub(crate) fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes.iter().map(|byte| byte & 15).chain(bytes.iter().map(|byte| byte >> 4))
}

/// As [`nibbles`], with the bits of the word at `high` above them.
pub(crate) fn five_bits(block: &[u8], high: usize, low: usize) -> impl Iterator<Item = u8> {
    let bits = u32::from_le_bytes([block[high], block[high + 1], block[high + 2], block[high + 3]]);
    nibbles(&block[low..]).zip(0..).map(move |(nibble, index)| nibble | ((bits >> index) as u8 & 1) << 4)
}

pub(crate) fn q4_0(block: &[u8; 18], out: &mut [f32; SMALL]) {
    let scale = half(block, 0);
    for (out, code) in out.iter_mut().zip(nibbles(&block[2..])) {
        *out = scale * f32::from(code as i8 - 8);
    }
}

pub(crate) fn q4_1(block: &[u8; 20], out: &mut [f32; SMALL]) {
    let (scale, least) = (half(block, 0), half(block, 2));
    for (out, code) in out.iter_mut().zip(nibbles(&block[4..])) {
        *out = scale * f32::from(code) + least;
    }
}

pub(crate) fn q5_0(block: &[u8; 22], out: &mut [f32; SMALL]) {
    let scale = half(block, 0);
    for (out, code) in out.iter_mut().zip(five_bits(block, 2, 6)) {
        *out = scale * f32::from(code as i8 - 16);
    }
}

pub(crate) fn q5_1(block: &[u8; 24], out: &mut [f32; SMALL]) {
    let (scale, least) = (half(block, 0), half(block, 2));
    for (out, code) in out.iter_mut().zip(five_bits(block, 4, 8)) {
        *out = scale * f32::from(code) + least;
    }
}

pub(crate) fn q8_0(block: &[u8; 34], out: &mut [f32; SMALL]) {
    let scale = half(block, 0);
    for (out, code) in out.iter_mut().zip(&block[2..]) {
        *out = scale * f32::from(*code as i8);
    }
}

/// What the codes of IQ4_NL stand for: denser around zero, as weights are.
pub(crate) const IQ4_NL: [i8; 16] =
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

pub(crate) fn iq4_nl(block: &[u8; 18], out: &mut [f32; SMALL]) {
    let scale = half(block, 0);
    for (out, code) in out.iter_mut().zip(nibbles(&block[2..])) {
        *out = scale * f32::from(IQ4_NL[usize::from(code)]);
    }
}

/// What the codes of MXFP4 stand for, doubled: a sign, two bits of exponent, one of mantissa.
pub(crate) const E2M1: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

pub(crate) fn mxfp4(block: &[u8; 17], out: &mut [f32; SMALL]) {
    // Half of two to the power of the exponent less 127, so that it makes up for the doubled codes.
    let bits = match u32::from(block[0]) {
        exponent @ 0..2 => 0x0020_0000 << exponent,
        exponent => (exponent - 1) << 23,
    };
    let scale = f32::from_bits(bits);
    for (out, code) in out.iter_mut().zip(nibbles(&block[1..])) {
        *out = scale * f32::from(E2M1[usize::from(code)]);
    }
}
