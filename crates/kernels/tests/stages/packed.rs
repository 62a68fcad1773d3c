//! Matrices that are used where they lie in a file.

#![allow(clippy::unwrap_used)] // clippy does not see that helpers of tests are tests

use std::io::Write;
use std::sync::Arc;

use whin_kernels::bytes::{Bytes, Section};
use whin_kernels::cpu::Cpu;
use whin_kernels::cpu::isa::scalar::Scalar;
use whin_kernels::reference::Reference;
use whin_kernels::{Backend, SECTION_ALIGNMENT, WeightKind};

use crate::KINDS;
use crate::cases::Matrix;

const SHAPES: [(usize, usize); 6] = [(1, 1), (16, 64), (17, 33), (37, 100), (48, 320), (5, 1024)];

/// A file with `bytes`, of which all but the first 64 are given.
fn file(bytes: &[u8]) -> Section {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&[7; SECTION_ALIGNMENT]).unwrap();
    file.write_all(bytes).unwrap();
    let map = Arc::new(Bytes::map(file.path()).unwrap());
    let end = map.len();
    Section::new(map, SECTION_ALIGNMENT..end).unwrap()
}

fn packed<B: Backend>(weight: &B::Weight) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in B::packed(weight) {
        bytes.extend_from_slice(part);
        bytes.resize(bytes.len().next_multiple_of(SECTION_ALIGNMENT), 0);
    }
    bytes
}

#[test]
fn a_matrix_in_a_file_is_the_matrix_that_was_packed() {
    let mut backend = Cpu::<Scalar>::new(2).unwrap();
    assert!(backend.layout().is_some());
    for kind in KINDS {
        for (seed, (outputs, inputs)) in SHAPES.into_iter().enumerate() {
            let matrix = Matrix::new(kind, outputs, inputs, seed as u64);
            let weight = matrix.upload(&mut backend);
            let bytes = packed::<Cpu<Scalar>>(&weight);
            let adopted = backend.adopt(kind, outputs, inputs, file(&bytes)).unwrap();
            assert_eq!(packed::<Cpu<Scalar>>(&adopted), bytes);
            let rows = |backend: &mut Cpu<Scalar>, table| {
                let mut x = backend.rows(outputs, inputs).unwrap();
                let tokens = (0..outputs as u32).collect();
                let step = whin_kernels::Step { tokens, ..Default::default() };
                backend.embed(&whin_kernels::Embed { table, scale: 1.0 }, &step, &mut x);
                backend.read(&x, outputs).unwrap()
            };
            assert_eq!(
                rows(&mut backend, &weight),
                rows(&mut backend, &adopted),
                "{kind:?} {outputs} {inputs}"
            );
        }
    }
}

#[test]
fn a_part_of_a_file_that_does_not_fit_is_not_taken() {
    let mut backend = Cpu::<Scalar>::new(1).unwrap();
    for kind in KINDS {
        let bytes = {
            let weight = Matrix::new(kind, 17, 100, 1).upload(&mut backend);
            packed::<Cpu<Scalar>>(&weight)
        };
        let mut longer = bytes.clone();
        longer.extend_from_slice(&[0; SECTION_ALIGNMENT]);
        let mut adopt =
            |outputs, inputs, bytes: &[u8]| backend.adopt(kind, outputs, inputs, file(bytes)).is_some();
        assert!(adopt(17, 100, &bytes));
        assert!(!adopt(17, 100, &longer), "{kind:?}");
        assert!(!adopt(17, 100, &bytes[..bytes.len() - SECTION_ALIGNMENT]), "{kind:?}");
        assert!(!adopt(17, 100, &[]), "{kind:?}");
        assert!(!adopt(33, 100, &bytes), "{kind:?}");
        assert!(!adopt(17, 200, &bytes), "{kind:?}");
        assert!(!adopt(usize::MAX, 100, &bytes), "{kind:?}");
        assert!(!adopt(17, usize::MAX, &bytes), "{kind:?}");
        assert!(!adopt(usize::MAX / 64, usize::MAX / 64, &bytes), "{kind:?}");
    }
}

#[test]
fn numbers_between_the_bounds_of_a_file_are_not_taken() {
    let mut backend = Cpu::<Scalar>::new(1).unwrap();
    let weight = Matrix::new(WeightKind::F32, 16, 64, 1).upload(&mut backend);
    let bytes = packed::<Cpu<Scalar>>(&weight);
    let mut shifted = vec![0; 1];
    shifted.extend_from_slice(&bytes);
    let mut section = file(&shifted);
    section.take(1).unwrap();
    assert!(backend.adopt(WeightKind::F32, 16, 64, section).is_none());
}

#[test]
fn sections_end_where_their_bytes_do() {
    let bytes = Arc::new(Bytes::from(vec![1, 2, 3, 4]));
    assert!(Section::new(bytes.clone(), 3..5).is_none());
    assert!(Section::new(bytes.clone(), 5..5).is_none());
    let mut section = Section::new(bytes, 1..4).unwrap();
    assert!(section.take(4).is_none() && section.take(usize::MAX).is_none());
    assert_eq!(*section.take(2).unwrap(), [2, 3]);
    assert_eq!(*section, [4]);
}

#[test]
fn the_reference_keeps_nothing_in_files() {
    let mut backend = Reference;
    let weight = Matrix::new(WeightKind::Int8, 3, 5, 1).upload(&mut backend);
    assert!(backend.layout().is_none() && Reference::packed(&weight).is_empty());
    assert!(backend.adopt(WeightKind::Int8, 3, 5, file(&[])).is_none());
}
