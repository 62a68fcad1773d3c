//! Random values of one tensor, as stored bytes. A tensor's values follow from the seed and its name alone, so the
//! number of files, the other tensors and the number of threads change nothing.

use half::{bf16, f16};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// How a value is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Dtype {
    Bf16,
    F16,
    F32,
}

impl Dtype {
    /// Bytes of one value.
    pub fn size(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    /// The name in a safetensors header.
    pub fn safetensors_name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
        }
    }

    /// The name in `config.json`.
    pub fn torch_name(self) -> &'static str {
        match self {
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
            Self::F32 => "float32",
        }
    }
}

/// A nearly normal distribution.
#[derive(Clone, Copy, Debug)]
pub struct Fill {
    pub mean: f32,
    pub deviation: f32,
}

/// Values of one block. Each block has a stream of its own, so that blocks can be made side by side.
pub const BLOCK: usize = 1 << 18;

/// Writes block `block` of the tensor called `name` over `bytes`, little-endian, which fixes the number of values.
pub fn fill_block(bytes: &mut [u8], name: &str, block: usize, seed: u64, fill: Fill, dtype: Dtype) {
    let mut random = ChaCha8Rng::seed_from_u64(seed ^ fnv1a(name));
    random.set_stream(block as u64);
    match dtype {
        Dtype::Bf16 => store(bytes, || bf16::from_f32(value(&mut random, fill)).to_le_bytes()),
        Dtype::F16 => store(bytes, || f16::from_f32(value(&mut random, fill)).to_le_bytes()),
        Dtype::F32 => store(bytes, || value(&mut random, fill).to_le_bytes()),
    }
}

fn store<const N: usize>(bytes: &mut [u8], mut next: impl FnMut() -> [u8; N]) {
    for place in bytes.as_chunks_mut::<N>().0 {
        *place = next();
    }
}

/// The sum of four uniform 16-bit numbers: close enough to normal for weights, and several times faster than exact.
fn value(random: &mut ChaCha8Rng, fill: Fill) -> f32 {
    // The sum has mean 4 · (2^16 − 1) / 2 and variance 4 · (2^32 − 1) / 12.
    const MEAN: f32 = 131_070.0;
    const DEVIATION: f32 = 37_837.227;
    let bits = random.next_u64();
    let sum: u32 = [0, 16, 32, 48].iter().map(|shift| (bits >> shift) as u32 & 0xffff).sum();
    fill.mean + fill.deviation * (sum as f32 - MEAN) / DEVIATION
}

/// The 64-bit FNV-1a hash (<http://www.isthe.com/chongo/tech/comp/fnv/>): the same on every platform and release.
fn fnv1a(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(name: &str, block: usize, seed: u64) -> Vec<f32> {
        let mut bytes = vec![0; 4 * 20_000];
        fill_block(&mut bytes, name, block, seed, Fill { mean: 1.0, deviation: 0.5 }, Dtype::F32);
        bytes.as_chunks::<4>().0.iter().map(|x| f32::from_le_bytes(*x)).collect()
    }

    #[test]
    fn values_have_the_mean_and_deviation_asked_for() {
        let values = floats("a", 0, 1);
        let mean = values.iter().sum::<f32>() / values.len() as f32;
        let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f32>() / values.len() as f32;
        assert!((mean - 1.0).abs() < 0.02, "mean {mean}");
        assert!((variance.sqrt() - 0.5).abs() < 0.02, "deviation {}", variance.sqrt());
    }

    #[test]
    fn seed_name_and_block_each_change_the_values() {
        let first = floats("a", 0, 1);
        assert_eq!(first, floats("a", 0, 1));
        assert_ne!(first, floats("a", 0, 2));
        assert_ne!(first, floats("b", 0, 1));
        assert_ne!(first, floats("a", 1, 1));
    }
}
