//! Says whether numbers are as close to what is right as they must be.

/// Compares number by number; the error tells the worst. Right is: NaN for NaN, the same infinity for an infinity, else
/// no farther away than the tolerance.
pub fn compare(got: &[f32], want: &[f32], tolerances: &[f64]) -> Result<(), String> {
    if got.len() != want.len() || want.len() != tolerances.len() {
        return Err(format!("{} numbers, {} wanted, {} tolerances", got.len(), want.len(), tolerances.len()));
    }
    let mut wrong = 0;
    let mut worst = (1.0, 0);
    for (index, ((&got, &want), &tolerance)) in got.iter().zip(want).zip(tolerances).enumerate() {
        let excess = excess(got, want, tolerance);
        if excess > 1.0 {
            wrong += 1;
        }
        if excess > worst.0 {
            worst = (excess, index);
        }
    }
    if wrong == 0 {
        return Ok(());
    }
    let (excess, index) = worst;
    Err(format!(
        "{wrong} of {} numbers are wrong; the worst is number {index}: {:e} instead of {:e}, {excess:.3} times the \
         tolerance of {:e}",
        want.len(),
        got[index],
        want[index],
        tolerances[index]
    ))
}

/// The error in tolerances: above 1 is wrong.
fn excess(got: f32, want: f32, tolerance: f64) -> f64 {
    if got.to_bits() == want.to_bits() || got == want || (got.is_nan() && want.is_nan()) {
        return 0.0;
    }
    let error = (f64::from(got) - f64::from(want)).abs();
    // Without a number on both sides, or where no error is allowed, any difference is infinitely wrong.
    if error.is_finite() && tolerance > 0.0 { error / tolerance } else { f64::INFINITY }
}

/// As [`compare`], but to the bit, NaN being NaN whatever its sign.
pub fn same(got: &[f32], want: &[f32]) -> Result<(), String> {
    let differs = |(a, b): (&f32, &f32)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
    if got.len() != want.len() {
        return Err(format!("{} numbers, {} wanted", got.len(), want.len()));
    }
    match got.iter().zip(want).position(differs) {
        None => Ok(()),
        Some(at) => Err(format!("number {at} is {:e}, not {:e}, to the bit", got[at], want[at])),
    }
}
