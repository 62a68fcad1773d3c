//! MXFP4: 4-bit floating-point numbers (E2M1), 32 of which are multiplied by one power of two (E8M0). OCP Microscaling
//! Formats (MX) Specification 1.0.

/// Numbers that share a power of two.
pub const GROUP: usize = 32;

/// What the codes stand for.
const NUMBERS: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// The numbers of a row, two codes a byte with the first in the low bits, and one exponent for each group.
pub fn row(codes: &[u8], exponents: &[u8], out: &mut [f32]) {
    let groups = out.chunks_exact_mut(GROUP).zip(codes.chunks_exact(GROUP / 2)).zip(exponents);
    for ((out, codes), exponent) in groups {
        let power = power(*exponent);
        for (pair, code) in out.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
            *pair = [code & 15, code >> 4].map(|code| NUMBERS[usize::from(code)] * power);
        }
    }
}

/// `2 ^ (exponent − 127)`, and NaN for the last.
fn power(exponent: u8) -> f32 {
    match exponent {
        0 => f32::MIN_POSITIVE / 2.0,
        255 => f32::NAN,
        _ => f32::from_bits(u32::from(exponent) << 23),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_reach_from_end_to_end() {
        for exponent in 0..255_u8 {
            let right = 2.0_f64.powi(i32::from(exponent) - 127);
            assert_eq!(f64::from(power(exponent)), right, "{exponent}");
        }
        assert!(power(255).is_nan());
    }

    #[test]
    fn low_bits_come_first_and_groups_have_their_own_power() {
        let codes: Vec<u8> = (0..32).map(|byte| byte % 8 * 0x22 + 0x10).collect();
        let mut out = [0.0; 64];
        row(&codes, &[127, 130], &mut out);
        assert_eq!(out[..6], [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]);
        assert_eq!(out[14..18], [-4.0, -6.0, 0.0, 0.5]);
        assert_eq!(out[32..36], [0.0, 4.0, 8.0, 12.0]);
    }
}
