//! Products of rows with panels, a few rows by a few panels at a time, so that all sums of a tile stay in registers.

use std::array;
use std::ops::Range;

use super::isa::{Ahead, Isa, PANEL, Panel, Quantized};

/// What `get` finds for each index from `first` on. In a loop: of an iterator over the array the compiler makes copies
/// that wait for each other, a twentieth of the time of a product.
#[inline(always)]
pub fn each<T: Copy, const N: usize>(first: usize, get: impl Fn(usize) -> T) -> [T; N] {
    let mut found = [get(first); N];
    for (index, found) in found.iter_mut().enumerate().skip(1) {
        *found = get(first + index);
    }
    found
}

/// What the tiles of one product are made of.
pub trait Tile<I: Isa> {
    /// Rows, and panels for them: for one row, and for many.
    const SHAPES: [(usize, usize); 2];

    /// Of the rows from `row` on with these panels: (rows, panels, outputs).
    fn products<const R: usize, const T: usize>(
        &self,
        isa: I,
        row: usize,
        panels: [usize; T],
    ) -> [[[f32; PANEL]; T]; R];
}

/// Products of 8-bit rows with 8-bit panels.
pub struct Int8<X, P> {
    pub row: X,
    pub panel: P,
    pub ahead: Ahead,
}

impl<'x, 'p, I: Isa, X: Fn(usize) -> Quantized<'x>, P: Fn(usize) -> Panel<'p>> Tile<I> for Int8<X, P> {
    const SHAPES: [(usize, usize); 2] = I::PANELS;

    fn products<const R: usize, const T: usize>(
        &self,
        isa: I,
        row: usize,
        panels: [usize; T],
    ) -> [[[f32; PANEL]; T]; R] {
        isa.panels(each(row, &self.row), each(0, |t| (self.panel)(panels[t])), self.ahead)
    }
}

/// Hears products: the first of some rows, the first of some panels, and for each of the rows its products with each of
/// the panels, (panels, outputs).
pub type Take<'a> = dyn FnMut(usize, usize, &[&[[f32; PANEL]]]) + 'a;

/// Multiplies `rows` with `panels`. `take` hears all panels of some rows in order before the next rows', two at once
/// unless the last is left over.
pub fn cover<I: Isa, K: Tile<I>>(
    isa: I,
    tile: &K,
    rows: Range<usize>,
    panels: Range<usize>,
    take: &mut Take<'_>,
) {
    let mut row = rows.start;
    while row < rows.end {
        let left = rows.end - row;
        let (most, across) = K::SHAPES[usize::from(left > 1)];
        let at = (row, panels.clone());
        row += match (left.min(most), across) {
            (6, _) => stripe::<I, K, 6, 1>(isa, tile, at, take),
            (5, _) => stripe::<I, K, 5, 1>(isa, tile, at, take),
            (4, 1) => stripe::<I, K, 4, 1>(isa, tile, at, take),
            (4, _) => stripe::<I, K, 4, 2>(isa, tile, at, take),
            (3, 1) => stripe::<I, K, 3, 1>(isa, tile, at, take),
            (3, _) => stripe::<I, K, 3, 2>(isa, tile, at, take),
            (2, 1) => stripe::<I, K, 2, 1>(isa, tile, at, take),
            (2, _) => stripe::<I, K, 2, 2>(isa, tile, at, take),
            _ => stripe::<I, K, 1, 1>(isa, tile, at, take),
        };
    }
}

/// `R` rows by all panels, `T` at a time. Returns `R`.
fn stripe<I: Isa, K: Tile<I>, const R: usize, const T: usize>(
    isa: I,
    tile: &K,
    (row, panels): (usize, Range<usize>),
    take: &mut Take<'_>,
) -> usize {
    let mut at = panels.start;
    while at < panels.end {
        let left = panels.end - at;
        if left >= T && T > 1 {
            let products = tile.products::<R, T>(isa, row, array::from_fn(|t| at + t));
            take(row, at, &products.each_ref().map(<[_; T]>::as_slice));
            at += T;
        } else if left > 1 {
            let [first, second] = [at, at + 1].map(|panel| tile.products::<R, 1>(isa, row, [panel]));
            let products: [[[f32; PANEL]; 2]; R] = array::from_fn(|r| [first[r][0], second[r][0]]);
            take(row, at, &products.each_ref().map(<[_; 2]>::as_slice));
            at += 2;
        } else {
            let products = tile.products::<R, 1>(isa, row, [at]);
            take(row, at, &products.each_ref().map(<[_; 1]>::as_slice));
            at += 1;
        }
    }
    R
}
