//! 8-bit floating-point numbers, as files store them: the value of each of the 256 codes. Computes nothing else.
//!
//! Micikevicius et al., FP8 Formats for Deep Learning, arXiv:2209.05433. Every value is exact as f32.

/// E4M3 without infinities (`float8_e4m3fn`): 4 bits of exponent, 3 of mantissa, the largest value 448. The only codes
/// without a number are those with all seven bits set.
pub(crate) static E4M3: [f32; 256] = table(3);

/// E5M2 (`float8_e5m2`): 5 bits of exponent, 2 of mantissa, with infinities and NaN as IEEE 754 has them.
pub(crate) static E5M2: [f32; 256] = table(2);

const fn table(mantissa_bits: u32) -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut code = 0;
    while code < 256 {
        values[code] = value(code as u32, mantissa_bits);
        code += 1;
    }
    values
}

const fn value(code: u32, mantissa_bits: u32) -> f32 {
    let exponent_bits = 7 - mantissa_bits;
    let sign = if code >> 7 == 1 { -1.0 } else { 1.0 };
    let exponent = code >> mantissa_bits & ((1 << exponent_bits) - 1);
    let mantissa = code & ((1 << mantissa_bits) - 1);
    let bias = (1 << (exponent_bits - 1)) - 1;
    let is_top = exponent == (1 << exponent_bits) - 1;
    if is_top && mantissa_bits == 2 {
        return if mantissa == 0 { sign * f32::INFINITY } else { f32::NAN };
    }
    if is_top && mantissa == (1 << mantissa_bits) - 1 {
        return f32::NAN;
    }
    // Without a leading one below the least exponent.
    let (leading, exponent) = if exponent == 0 { (0, 1) } else { (1 << mantissa_bits, exponent) };
    let unit = f32::from_bits((127 + exponent - bias - mantissa_bits) << 23);
    sign * (leading + mantissa) as f32 * unit
}

#[cfg(test)]
mod tests {
    use half::f16;

    use super::*;

    #[test]
    fn hand_known_codes() {
        for (code, value) in [
            (0x00, 0.0),
            (0x01, 2f32.powi(-9)),
            (0x07, 7.0 * 2f32.powi(-9)),
            (0x08, 2f32.powi(-6)),
            (0x38, 1.0),
            (0x39, 1.125),
            (0x40, 2.0),
            (0x77, 240.0),
            (0x78, 256.0),
            (0x7e, 448.0),
            (0xb8, -1.0),
            (0xfe, -448.0),
        ] {
            assert_eq!(E4M3[code], value, "E4M3 {code:#04x}");
        }
        for (code, value) in [
            (0x00, 0.0),
            (0x01, 2f32.powi(-16)),
            (0x03, 3.0 * 2f32.powi(-16)),
            (0x04, 2f32.powi(-14)),
            (0x3c, 1.0),
            (0x3d, 1.25),
            (0x7b, 57_344.0),
            (0x7c, f32::INFINITY),
            (0xbc, -1.0),
            (0xfc, f32::NEG_INFINITY),
        ] {
            assert_eq!(E5M2[code], value, "E5M2 {code:#04x}");
        }
        assert!(E4M3[0x7f].is_nan() && E4M3[0xff].is_nan());
        assert!(E4M3[0x80] == 0.0 && E4M3[0x80].is_sign_negative() && E5M2[0x80].is_sign_negative());
    }

    /// E5M2 is the upper byte of a half. E4M3 has the mantissa of a half cut short, and a bias that is 8 less.
    #[test]
    fn all_codes_are_those_of_halves() {
        let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        for code in 0..=255u8 {
            let half = f16::from_bits(u16::from(code) << 8).to_f32();
            assert!(same(E5M2[usize::from(code)], half), "E5M2 {code:#04x}");
            let bits = u16::from(code & 0x80) << 8 | u16::from(code & 0x7f) << 7;
            let half = if code & 0x7f == 0x7f { f32::NAN } else { f16::from_bits(bits).to_f32() * 256.0 };
            assert!(same(E4M3[usize::from(code)], half), "E4M3 {code:#04x}");
        }
    }
}
