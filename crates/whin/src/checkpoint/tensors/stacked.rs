//! Tensors that hold many matrices or vectors of one shape, those of all experts: claimed at once, taken apart slice by
//! slice.

use whin_kernels::Dtype;

use super::{Fault, Place, TensorRef, Tensors};

/// Numbers that share a power of two in MXFP4.
const GROUP: usize = 32;

impl Tensors {
    /// Takes the tensor `name` of (`count`, `shape`), `shape` being that of a matrix or a vector: its slices. Where it is
    /// `turned`, each holds its columns as rows of the file. Empty, with a problem noted for [`Self::finish`], as
    /// [`Self::claim`] says; numbers that need a scale are not read.
    pub fn claim_slices(
        &mut self,
        name: &str,
        count: usize,
        shape: &[usize],
        turned: bool,
    ) -> Vec<TensorRef> {
        let whole = [&[count], shape].concat();
        let Some((place, _)) = self.claim_place(name, &whole) else { return Vec::new() };
        let slices: Option<Vec<TensorRef>> = slices(&place, count, shape)
            .map(|slice| {
                let tensor = TensorRef::new(&slice).filter(|tensor| !tensor.dtype.needs_scale())?;
                let (rows, cols) = tensor.shape();
                Some(if turned { TensorRef { rows: cols, cols: rows, turned, ..tensor } } else { tensor })
            })
            .collect();
        let unsupported = || {
            Fault::Unsupported(format!(
                "tensor {name:?} in {} is stored as {}, which cannot be read yet for matrices of several experts; \
                 accepted: BF16, F16, F32, F64, and MXFP4 as {name:?}_blocks and {name:?}_scales",
                place.file.name, place.entry.dtype
            ))
        };
        self.unless_faulty(slices.ok_or_else(unsupported)).unwrap_or_default()
    }

    /// Takes `count` matrices of (rows, cols) in MXFP4: the 4-bit numbers are in `name_blocks`, two a byte, the powers of
    /// two by which 32 of them are multiplied in `name_scales`. Empty, with a problem noted for [`Self::finish`], as
    /// [`Self::claim`] says.
    pub fn claim_mxfp4(&mut self, name: &str, count: usize, (rows, cols): (usize, usize)) -> Vec<TensorRef> {
        if !cols.is_multiple_of(GROUP) {
            self.note(format!(
                "tensor \"{name}_blocks\" holds groups of {GROUP} inputs, and config.json asks for {cols}, which are no \
                 whole groups: get both again from the same place"
            ));
            return Vec::new();
        }
        let groups = cols / GROUP;
        let blocks = self.claim_place(&format!("{name}_blocks"), &[count, rows, groups, GROUP / 2]);
        let scales = self.claim_place(&format!("{name}_scales"), &[count, rows, groups]);
        let (Some((blocks, _)), Some((scales, _))) = (blocks, scales) else { return Vec::new() };
        for place in [&blocks, &scales] {
            if place.entry.dtype != "U8" {
                let (name, file, stored) = (&place.entry.name, &place.file.name, place.entry.dtype);
                let problem =
                    format!("tensor {name:?} in {file} is stored as {stored}; accepted for MXFP4: U8");
                self.unsupported.push(problem);
                return Vec::new();
            }
        }
        let (blocks_shape, scales_shape) = ([rows, groups, GROUP / 2], [rows, groups]);
        let exponents = slices(&scales, count, &scales_shape);
        let pairs = slices(&blocks, count, &blocks_shape).zip(exponents);
        let matrix = |(place, exponents)| TensorRef {
            place,
            dtype: Dtype::F4E2m1,
            rows,
            cols,
            scales: None,
            exponents: Some(exponents),
            turned: false,
            order: None,
            columns: None,
        };
        pairs.map(matrix).collect()
    }
}

/// The `count` slices of the tensor at `place`, each of this shape.
fn slices(place: &Place, count: usize, shape: &[usize]) -> impl Iterator<Item = Place> {
    let len = (place.entry.end - place.entry.start) / count.max(1);
    (0..count).map(move |index| {
        let mut slice = place.clone();
        slice.entry.name = format!("{}[{index}]", place.entry.name);
        slice.entry.shape = shape.to_vec();
        slice.entry.start = place.entry.start + index * len;
        slice.entry.end = slice.entry.start + len;
        slice
    })
}
