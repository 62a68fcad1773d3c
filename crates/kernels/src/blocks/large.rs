//! Blocks of 256 numbers, of which each 16 or 32 have a scale of a few bits, and some an offset. These have one f16 scale
//! in common.

use super::{LARGE, half};

/// The bits from number `shift` on, under `mask`, of each byte in turn for every shift: how the codes of a run of bytes
/// stand one behind the other.
fn planes(bytes: &[u8], shifts: &'static [u8], mask: u8) -> impl Iterator<Item = u8> {
    shifts.iter().flat_map(move |shift| bytes.iter().map(move |byte| byte >> shift & mask))
}

/// Bytes: 16 pairs of scale and offset, 64 of codes, the scales of scales and of offsets.
pub(crate) fn q2_k(block: &[u8; 84], out: &mut [f32; LARGE]) {
    let (pairs, codes) = (&block[..16], &block[16..80]);
    let (scale, least) = (half(block, 80), half(block, 82));
    let codes = codes.chunks(32).flat_map(|run| planes(run, &[0, 2, 4, 6], 3));
    for (index, (out, code)) in out.iter_mut().zip(codes).enumerate() {
        let pair = pairs[index / 16];
        let (scale, least) = (scale * f32::from(pair & 15), least * f32::from(pair >> 4));
        *out = scale * f32::from(code) - least;
    }
}

/// Bytes: 32 of high bits, 64 of low codes, 12 of packed scales, their scale.
pub(crate) fn q3_k(block: &[u8; 110], out: &mut [f32; LARGE]) {
    let (high, low, packed, scale) = (&block[..32], &block[32..96], &block[96..108], half(block, 108));
    // Sixteen scales of six bits: nibbles in eight bytes, and the two bits above each in four.
    let nibbles = planes(&packed[..8], &[0, 4], 15);
    let pairs = planes(&packed[8..], &[0, 2, 4, 6], 3);
    let mut scales = [0.0; 16];
    for (out, (nibble, pair)) in scales.iter_mut().zip(nibbles.zip(pairs)) {
        *out = scale * f32::from((nibble | pair << 4) as i8 - 32);
    }
    let high = planes(high, &[0, 1, 2, 3, 4, 5, 6, 7], 1);
    let low = low.chunks(32).flat_map(|run| planes(run, &[0, 2, 4, 6], 3));
    for (index, (out, (low, high))) in out.iter_mut().zip(low.zip(high)).enumerate() {
        // The offset is there where the bit is not.
        let code = low as i8 - ((high ^ 1) << 2) as i8;
        *out = scales[index / 16] * f32::from(code);
    }
}

/// Eight scales and eight offsets of six bits in twelve bytes, multiplied with theirs.
fn scales(packed: &[u8], scale: f32, least: f32) -> [(f32, f32); 8] {
    std::array::from_fn(|index| {
        let (a, b) = match index {
            0..4 => (packed[index] & 63, packed[index + 4] & 63),
            _ => {
                let (low, a, b) = (packed[index + 4], packed[index - 4], packed[index]);
                (low & 15 | a >> 2 & 48, low >> 4 | b >> 2 & 48)
            }
        };
        (scale * f32::from(a), least * f32::from(b))
    })
}

/// Eight scales with the offsets that are taken off, and the codes, of which 32 have one of each. Bytes: the scales of
/// scales and of offsets, 12 of these, 128 of codes.
pub(crate) fn q4_k_groups(block: &[u8; 144]) -> ([(f32, f32); 8], impl Iterator<Item = u8>) {
    let scales = scales(&block[4..16], half(block, 0), half(block, 2));
    (scales, block[16..].chunks(32).flat_map(|run| planes(run, &[0, 4], 15)))
}

pub(crate) fn q4_k(block: &[u8; 144], out: &mut [f32; LARGE]) {
    let (scales, codes) = q4_k_groups(block);
    for (index, (out, code)) in out.iter_mut().zip(codes).enumerate() {
        let (scale, least) = scales[index / 32];
        *out = scale * f32::from(code) - least;
    }
}

/// Bytes: the scales of scales and of offsets, 12 of these, 32 of high bits, 128 of low codes.
pub(crate) fn q5_k(block: &[u8; 176], out: &mut [f32; LARGE]) {
    let scales = scales(&block[4..16], half(block, 0), half(block, 2));
    let high = planes(&block[16..48], &[0, 1, 2, 3, 4, 5, 6, 7], 1);
    let low = block[48..].chunks(32).flat_map(|run| planes(run, &[0, 4], 15));
    for (index, (out, (low, high))) in out.iter_mut().zip(low.zip(high)).enumerate() {
        let (scale, least) = scales[index / 32];
        *out = scale * f32::from(low | high << 4) - least;
    }
}

/// Bytes: 128 of low codes, 64 of high ones, 16 scales, their scale.
pub(crate) fn q6_k(block: &[u8; 210], out: &mut [f32; LARGE]) {
    let (low, high, scales, scale) = (&block[..128], &block[128..192], &block[192..208], half(block, 208));
    let low = low.chunks(64).flat_map(|run| planes(run, &[0, 4], 15));
    let high = high.chunks(32).flat_map(|run| planes(run, &[0, 2, 4, 6], 3));
    for (index, (out, (low, high))) in out.iter_mut().zip(low.zip(high)).enumerate() {
        let scale = scale * f32::from(scales[index / 16] as i8);
        *out = scale * f32::from((low | high << 4) as i8 - 32);
    }
}
