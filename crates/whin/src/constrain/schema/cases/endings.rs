//! Whether a schema has finite values, and leads nowhere else. Recursion that must go on would have an answer run to the
//! end of the window.

use super::{Shape, Spot, place};

/// What is wrong where nothing finite fits the first of `spots`, or where a value that is begun cannot be ended.
pub(super) fn endless(spots: &[Spot<'_>]) -> Option<String> {
    let can_end = |shape: &Shape, ends: &[bool]| shape.needs.iter().all(|&need| ends[need]);
    let ends = spread(spots, |spot, ends| spot.shapes.iter().any(|shape| can_end(shape, ends)));
    if !ends.first().copied().unwrap_or(false) {
        return Some("no finite value fits it: what it requires contains itself, or nothing fits".into());
    }
    // The compiler leaves out what nothing fits.
    let is_dead = |shape: &Shape, dead: &[bool]| shape.needs.iter().any(|&need| dead[need]);
    let dead = spread(spots, |spot, dead| spot.shapes.iter().all(|shape| is_dead(shape, dead)));
    let mut reached = vec![false; spots.len()];
    let mut next = vec![0];
    while let Some(index) = next.pop() {
        if std::mem::replace(&mut reached[index], true) {
            continue;
        }
        for shape in spots[index].shapes.iter().filter(|shape| !is_dead(shape, &dead)) {
            if !can_end(shape, &ends) {
                let place = place(spots, index);
                return Some(format!(
                    "{place}: no finite value fits one of its forms: what that requires contains itself"
                ));
            }
            next.extend(shape.needs.iter().chain(&shape.may_have));
        }
    }
    None
}

/// The spots for which `holds`, which may build on those that are known already, until there are no more.
fn spread(spots: &[Spot<'_>], holds: impl Fn(&Spot<'_>, &[bool]) -> bool) -> Vec<bool> {
    let mut parents = vec![Vec::new(); spots.len()];
    for (index, spot) in spots.iter().enumerate() {
        for &need in spot.shapes.iter().flat_map(|shape| &shape.needs) {
            parents[need].push(index);
        }
    }
    let mut known = vec![false; spots.len()];
    let mut next: Vec<usize> = (0..spots.len()).collect();
    while let Some(index) = next.pop() {
        if !known[index] && holds(&spots[index], &known) {
            known[index] = true;
            next.extend(&parents[index]);
        }
    }
    known
}
