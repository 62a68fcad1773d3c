//! The scales of quantised tensors: which tensor holds them, what each of them is for, and whether they are numbers.
//!
//! Names and arithmetic are those of `integrations/finegrained_fp8.py` in transformers 5.17, except that blocks have the
//! size that `config.json` gives, as its GPU kernels have it: its other path shares the rows out evenly, which is the
//! same only where no block is partial.

use whin_kernels::{Dtype, Tensor};

use super::{Place, Tensors, dtype_of};

/// What stands behind the name of a tensor in the names of its scales: that of fine-grained FP8, and that of all others.
const ENDS: [&str; 2] = ["_scale_inv", "_scale"];

/// The scales of one tensor: each number stands for itself times the scale of its block.
#[derive(Clone, Debug)]
pub(super) struct Scales {
    place: Place,
    dtype: Dtype,
    layout: Layout,
}

/// Which scale is for which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    /// Blocks, one below the other and side by side.
    blocks: (usize, usize),
    /// (rows, cols) of a block.
    block: (usize, usize),
    each: Each,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Each {
    Tensor,
    Row,
    Block,
}

impl Scales {
    /// The scales as they lie in the file: one for each of the blocks of so many (rows, cols).
    pub fn view(&self) -> (Tensor<'_>, (usize, usize)) {
        let (down, across) = self.layout.blocks;
        let tensor = Tensor::new(self.dtype, down, across, self.place.bytes());
        (tensor.expect("the header was checked: the bytes are those of the shape"), self.layout.block)
    }

    pub fn place(&self) -> &Place {
        &self.place
    }

    pub fn same(&self, other: &Self) -> bool {
        self.layout == other.layout && self.place.same(&other.place)
    }

    /// What stands beside the type in a description.
    pub fn describe(&self) -> String {
        match (self.layout.each, self.layout.block) {
            (Each::Tensor, _) => "one scale each".to_owned(),
            (Each::Row, _) => "one scale a row".to_owned(),
            (Each::Block, (rows, cols)) => format!("one scale for {rows}x{cols}"),
        }
    }

    /// The first scale that is infinite or no number in f32. Leaves nothing in memory.
    ///
    /// Negative scales pass, since some ways of quantising give the block's largest number the largest code whatever
    /// its sign, and zeros, which stand for a block of zeros.
    fn first_without_a_number(&self) -> Option<(usize, f32)> {
        let (view, _) = self.view();
        let mut row = vec![0.0; view.cols()];
        let found = (0..view.rows()).find_map(|index| {
            view.row(index, &mut row);
            let at = row.iter().position(|scale| !scale.is_finite())?;
            Some((index * row.len() + at, row[at]))
        });
        self.place.release();
        found
    }
}

impl Tensors {
    /// What might be the scales of the tensor at `place`; counts as claimed from now on. Nothing where its numbers need
    /// none.
    pub(super) fn take_scales(&mut self, place: &Place) -> Vec<Place> {
        let mut found = Vec::new();
        if is_plain(place) {
            return found;
        }
        for end in ENDS {
            let name = format!("{}{end}", place.entry.name);
            if let Some(scales) = self.tensors.get(&name) {
                found.push(scales.clone());
                self.claimed.insert(name);
            }
        }
        found
    }

    /// The scales of the tensor at `place`, of (`rows`, `cols`), out of those that might be; an error says what is wrong
    /// with them.
    pub(super) fn scales(
        &self,
        place: &Place,
        (rows, cols): (usize, usize),
        found: &[Place],
    ) -> Result<Scales, String> {
        let (name, file) = (&place.entry.name, &place.file.name);
        let stored = place.entry.dtype;
        let scales = match found {
            [] => {
                return Err(format!(
                    "tensor {name:?} in {file} is stored as {stored} without a scale: neither \"{name}_scale_inv\" \
                     nor \"{name}_scale\" is there; get the file that holds it, or the original checkpoint"
                ));
            }
            [one] => one,
            _ => {
                return Err(format!(
                    "tensor {name:?} in {file} has scales twice, \"{name}_scale_inv\" and \"{name}_scale\": which of \
                     them counts cannot be known; get the original checkpoint"
                ));
            }
        };
        let shown = format!("tensor {:?} in {}", scales.entry.name, scales.file.name);
        let Some(dtype) = dtype_of(scales.entry.dtype).filter(|dtype| !dtype.needs_scale()) else {
            let dtype = scales.entry.dtype;
            return Err(format!("{shown}: scales stored as {dtype}; accepted: BF16, F16, F32, F64"));
        };
        let layout = self.layout(&scales.entry.shape, rows, cols).ok_or_else(|| {
            let found = &scales.entry.shape;
            format!("{shown}: expected {}, found {found:?}", self.accepted(rows, cols))
        })?;
        let scales = Scales { place: scales.clone(), dtype, layout };
        match scales.first_without_a_number() {
            Some((index, scale)) => Err(format!(
                "{shown}: scale {index} is {scale}, and no weight can be had from it; the file is damaged: get it again"
            )),
            None => Ok(scales),
        }
    }

    /// Blocks of a tensor of (`rows`, `cols`) with scales of this shape: how many, how large, and what each is for.
    fn layout(&self, shape: &[usize], rows: usize, cols: usize) -> Option<Layout> {
        let (blocks, block, each) = match shape {
            _ if rows == 0 || cols == 0 => return None,
            [] | [1] | [1, 1] => ((1, 1), (rows, cols), Each::Tensor),
            [n] | [n, 1] if *n == rows => ((rows, 1), (1, cols), Each::Row),
            [down, across] => ((*down, *across), self.storage.block()?, Each::Block),
            _ => return None,
        };
        let fits = blocks == (rows.div_ceil(block.0), cols.div_ceil(block.1));
        fits.then_some(Layout { blocks, block, each })
    }

    /// The shapes that [`Self::layout`] knows, for people.
    fn accepted(&self, rows: usize, cols: usize) -> String {
        let others = format!("[{rows}, 1] or [{rows}] for one a row, or [1] for one in all");
        match self.storage.block() {
            Some((down, across)) => {
                let blocks = [rows.div_ceil(down), cols.div_ceil(across)];
                format!("{blocks:?} for one for each {down}x{across} numbers, {others}")
            }
            None => format!("{others}, since config.json has no quantization_config.weight_block_size"),
        }
    }

    /// Whether `name` is a scale by which a taken FP8 tensor's activations would be rounded to 8 bits, if the
    /// checkpoint says that there may be such.
    ///
    /// Activations keep more than 8 bits here, so nothing needs them.
    pub(super) fn is_activation_scale(&self, name: &str) -> bool {
        let stem = [".input_scale", ".activation_scale"].iter().find_map(|end| name.strip_suffix(end));
        let weight = stem.map(|stem| format!("{stem}.weight"));
        self.storage.has_static_activations()
            && weight.is_some_and(|weight| {
                let is_fp8 =
                    self.tensors.get(&weight).is_some_and(|place| place.entry.dtype.starts_with("F8_"));
                is_fp8 && self.claimed.contains(&weight)
            })
    }

    /// What is wrong with a tensor that nobody claimed.
    pub(super) fn left_over(&self, name: &str, place: &Place) -> String {
        let file = &place.file.name;
        let of = ENDS.iter().find_map(|end| self.tensors.get_key_value(name.strip_suffix(end)?));
        match of {
            Some((weight, stored)) if self.claimed.contains(weight) && is_plain(stored) => format!(
                "tensor {name:?} in {file} scales {weight:?}, which is stored as {} and needs no scale: the two are \
                 not of one checkpoint; get both again from the same place",
                stored.entry.dtype
            ),
            _ => format!(
                "tensor {:?} in {file} is no part of the model that {} describes",
                place.entry.name,
                self.format.config()
            ),
        }
    }
}

/// Whether the numbers at `place` need no scale.
fn is_plain(place: &Place) -> bool {
    dtype_of(place.entry.dtype).is_some_and(|dtype| !dtype.needs_scale())
}
