use super::*;

fn view(dtype: Dtype, rows: usize, cols: usize, bytes: &[u8]) -> Tensor<'_> {
    Tensor::new(dtype, rows, cols, bytes).unwrap()
}

#[test]
fn each_block_has_its_scale_and_the_last_may_be_partial() {
    let codes: Vec<u8> = (0..5 * 7).map(|index| index as u8 * 7).collect();
    let scales: Vec<f32> = (0..3 * 3).map(|index| 0.3 + index as f32).collect();
    let bytes: Vec<u8> = scales.iter().flat_map(|scale| scale.to_le_bytes()).collect();
    let grid = view(Dtype::F32, 3, 3, &bytes);
    for dtype in [Dtype::F8E4m3, Dtype::F8E5m2, Dtype::I8] {
        let stored = view(dtype, 5, 7, &codes);
        let found = stored.scaled(&grid, (2, 3)).unwrap().to_vec();
        for (index, (found, stored)) in found.iter().zip(stored.to_vec()).enumerate() {
            let (row, col) = (index / 7, index % 7);
            let right = stored * scales[row / 2 * 3 + col / 3];
            assert!(
                found.to_bits() == right.to_bits() || (found.is_nan() && right.is_nan()),
                "{dtype:?}: row {row}, column {col}: {found}, not {right}"
            );
        }
    }
    assert_eq!(view(Dtype::I8, 1, 3, &[0x80, 0xff, 0x7f]).to_vec(), [-128.0, -1.0, 127.0]);
}

#[test]
fn scales_of_every_float_type_and_of_rows_and_tensors() {
    let stored = view(Dtype::I8, 2, 2, &[1, 2, 3, 4]);
    let pairs: [(Dtype, Vec<u8>); 4] = [
        (Dtype::F64, [0.5f64, 0.25].iter().flat_map(|x| x.to_le_bytes()).collect()),
        (Dtype::F32, [0.5f32, 0.25].iter().flat_map(|x| x.to_le_bytes()).collect()),
        (Dtype::F16, [0.5, 0.25].iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect()),
        (Dtype::Bf16, [0.5, 0.25].iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect()),
    ];
    for (dtype, bytes) in &pairs {
        let of_rows = stored.scaled(&view(*dtype, 2, 1, bytes), (1, 2)).unwrap();
        assert_eq!(of_rows.to_vec(), [0.5, 1.0, 0.75, 1.0], "{dtype:?}");
        let one = view(*dtype, 1, 1, &bytes[..dtype.block().1]);
        assert_eq!(stored.scaled(&one, (2, 2)).unwrap().to_vec(), [0.5, 1.0, 1.5, 2.0], "{dtype:?}");
        // Blocks that reach beyond the matrix, as far as numbers go.
        let huge = stored.scaled(&one, (usize::MAX, usize::MAX)).unwrap();
        assert_eq!(huge.to_vec(), [0.5, 1.0, 1.5, 2.0], "{dtype:?}");
    }
}

#[test]
fn scales_that_do_not_fit_are_none() {
    let (stored, four) = (view(Dtype::I8, 3, 3, &[1; 9]), [0; 16]);
    let grid = view(Dtype::F32, 2, 2, &four);
    assert!(stored.scaled(&grid, (2, 2)).is_some());
    for block in [(0, 2), (2, 0), (1, 2), (2, 1), (3, 3), (4, 4)] {
        assert!(stored.scaled(&grid, block).is_none(), "{block:?}");
    }
    assert!(stored.scaled(&view(Dtype::F8E4m3, 2, 2, &four[..4]), (2, 2)).is_none());
    let scaled = grid.scaled(&grid, (1, 1)).unwrap();
    assert!(stored.scaled(&scaled, (2, 2)).is_none());
}

#[test]
fn rows_in_another_order_keep_their_scales() {
    let stored = view(Dtype::I8, 3, 2, &[1, 2, 3, 4, 5, 6]);
    let scales: Vec<u8> = [1.0f32, 10.0, 100.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let scaled = stored.scaled(&view(Dtype::F32, 3, 1, &scales), (1, 2)).unwrap();
    let turned = scaled.in_order(&[2, 0]).unwrap();
    assert_eq!((turned.rows(), turned.to_vec()), (2, vec![500.0, 600.0, 1.0, 2.0]));
    assert!(turned.in_order(&[0]).is_none() && scaled.in_order(&[3]).is_none());
    assert!(turned.scaled(&view(Dtype::F32, 2, 1, &scales[..8]), (1, 2)).is_none());
    let grid = view(Dtype::F32, 3, 1, &scales).in_order(&[2, 1, 0]).unwrap();
    assert!(stored.scaled(&grid, (1, 2)).is_none());
    let bytes: Vec<u8> = [1.5, 2.5].iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
    let mut row = [bf16::ZERO];
    view(Dtype::Bf16, 2, 1, &bytes).in_order(&[1, 0]).unwrap().bf16_row(0, &mut row).unwrap();
    assert_eq!(row[0].to_f32(), 2.5);
    let block = |scale: f32, byte: u8, len: usize| {
        [&f16::from_f32(scale).to_le_bytes()[..], &vec![byte; len]].concat()
    };
    let (mut scale, mut wide, mut narrow) = ([f16::ZERO], [0; 32], [0; 32]);
    let bytes = [block(0.5, 1, 32), block(2.0, 3, 32)].concat();
    let turned = view(Dtype::Q8_0, 2, 32, &bytes);
    turned.in_order(&[1, 0]).unwrap().int8_groups_row(0, &mut wide, &mut scale).unwrap();
    assert_eq!((wide, scale[0].to_f32()), ([3; 32], 2.0));
    let bytes = [block(0.5, 0x11, 16), block(2.0, 0x33, 16)].concat();
    let turned = view(Dtype::Q4_0, 2, 32, &bytes);
    turned.in_order(&[1, 0]).unwrap().int4_row(0, &mut narrow, &mut scale).unwrap();
    assert_eq!((narrow, scale[0].to_f32()), ([3; 32], 2.0));
}

#[test]
fn columns_in_another_order_keep_rows_and_scales() {
    let stored = view(Dtype::I8, 2, 6, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]);
    let moved = stored.with_columns(&[2, 0, 1], 2).unwrap();
    assert_eq!(moved.to_vec(), [5.0, 6.0, 1.0, 2.0, 3.0, 4.0, 11.0, 12.0, 7.0, 8.0, 9.0, 10.0]);
    assert_eq!(moved.in_order(&[1]).unwrap().to_vec(), [11.0, 12.0, 7.0, 8.0, 9.0, 10.0]);
    let scales: Vec<u8> = [1.0f32, 10.0, 100.0].iter().flat_map(|x| x.to_le_bytes()).collect();
    let grid = view(Dtype::F32, 1, 3, &scales);
    let scaled = stored.scaled(&grid, (2, 2)).unwrap().with_columns(&[2, 0, 1], 2).unwrap();
    assert_eq!(scaled.to_vec()[..6], [500.0, 600.0, 1.0, 2.0, 30.0, 40.0]);
    assert!(moved.scaled(&grid, (2, 2)).is_none() && moved.transposed().is_none());
    assert!(moved.with_columns(&[0, 1, 2], 2).is_none() && stored.with_columns(&[], 0).is_none());
    assert!(stored.with_columns(&[0, 1, 3], 2).is_none() && stored.with_columns(&[0, 1], 2).is_none());
    let bytes: Vec<u8> = [1.5, 2.5].iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect();
    let moved = view(Dtype::Bf16, 1, 2, &bytes).with_columns(&[1, 0], 1).unwrap();
    assert!(moved.bf16_row(0, &mut [bf16::ZERO; 2]).is_none() && moved.to_vec() == [2.5, 1.5]);
}

#[test]
fn blocks_move_with_rows_and_columns() {
    let bytes: Vec<u8> = (0..2 * 4 * 34).map(|i| if i % 34 == 1 { 0x3c } else { (i * 7) as u8 }).collect();
    let stored = view(Dtype::Q8_0, 2, 128, &bytes);
    let moved = stored.in_order(&[1, 0, 1]).unwrap().with_columns(&[1, 0], 64).unwrap();
    let (mut right, mut values, mut scales) = ([0.0; 128], [0; 128], [f16::ZERO; 4]);
    for index in 0..3 {
        moved.row(index, &mut right);
        moved.int8_groups_row(index, &mut values, &mut scales).unwrap();
        let found: Vec<f32> = (0..128).map(|k| int8_groups::weight(values[k], scales[k / 32])).collect();
        assert_eq!(found, right);
    }
    let all = stored.to_vec();
    assert_eq!(moved.to_vec()[..128], [&all[192..256], &all[128..192]].concat());
    let divided = stored.with_columns(&[1, 0, 2, 3, 4, 5, 6, 7], 16).unwrap();
    assert!(divided.int8_groups_row(0, &mut values, &mut scales).is_none());
}

#[test]
fn a_transposed_matrix_gives_columns_in_any_order() {
    for (dtype, size) in [(Dtype::F32, 4), (Dtype::Bf16, 2), (Dtype::F64, 8), (Dtype::I8, 1)] {
        let bytes: Vec<u8> = (0..150 * 5)
            .flat_map(|number: i32| match dtype {
                Dtype::F32 => (number as f32).to_le_bytes().to_vec(),
                Dtype::F64 => f64::from(number).to_le_bytes().to_vec(),
                Dtype::Bf16 => bf16::from_f32(number as f32).to_le_bytes().to_vec(),
                _ => vec![number as u8],
            })
            .collect();
        let file = view(dtype, 150, 5, &bytes);
        assert_eq!(bytes.len(), 150 * 5 * size);
        let all = file.to_vec();
        let turned = file.transposed().unwrap();
        assert_eq!((turned.rows(), turned.cols()), (5, 150));
        let right: Vec<f32> = (0..750).map(|index| all[index % 150 * 5 + index / 150]).collect();
        assert_eq!(turned.to_vec(), right, "{dtype:?}");
        let some = turned.in_order(&[4, 0]).unwrap().to_vec();
        assert_eq!(some, [&right[600..], &right[..150]].concat(), "{dtype:?}");
        assert!(turned.bf16_row(0, &mut [bf16::ZERO; 150]).is_none());
        assert!(turned.in_order(&[5]).is_none() && file.in_order(&[0]).unwrap().transposed().is_none());
    }
}

#[test]
fn mxfp4_takes_whole_groups_alone() {
    let (codes, exponents) = ([0x21; 32], [127, 128]);
    let tensor = Tensor::mxfp4(2, 32, &codes, &exponents).unwrap();
    assert_eq!(tensor.to_vec(), [[0.5, 1.0].repeat(16), [1.0, 2.0].repeat(16)].concat());
    assert_eq!(tensor.in_order(&[1]).unwrap().to_vec(), [1.0, 2.0].repeat(16));
    for (rows, cols) in [(1, 32), (2, 31), (4, 16), (1, 64), (usize::MAX, 64)] {
        let found = Tensor::mxfp4(rows, cols, &codes, &exponents);
        assert_eq!(found.is_some(), (rows, cols) == (1, 64), "({rows}, {cols})");
    }
    assert!(Tensor::mxfp4(2, 32, &codes, &exponents[..1]).is_none());
    assert!(tensor.transposed().is_none() && tensor.scaled(&tensor, (1, 1)).is_none());
    assert!(Tensor::new(Dtype::F4E2m1, 2, 32, &[0; 64]).is_none());
}

#[test]
fn a_row_of_bf16_is_exact_only_without_scales() {
    let bytes = bf16::from_f32(1.5).to_le_bytes();
    let (plain, mut row) = (view(Dtype::Bf16, 1, 1, &bytes), [bf16::ZERO]);
    assert!(plain.bf16_row(0, &mut row).is_some() && row[0].to_f32() == 1.5);
    assert!(plain.scaled(&plain, (1, 1)).unwrap().bf16_row(0, &mut row).is_none());
    assert!(view(Dtype::F8E4m3, 1, 1, &[0]).bf16_row(0, &mut row).is_none());
}

#[test]
fn integers_of_blocks_stand_for_the_numbers() {
    let (rows, cols) = (3, 64);
    for (dtype, size) in [(Dtype::Q8_0, 34), (Dtype::Q4_0, 18)] {
        // Every byte as an integer somewhere, -128 among them; scales positive, negative, subnormal and zero.
        let mut bytes: Vec<u8> = (0..rows * cols / 32 * size).map(|i| (i * 37) as u8).collect();
        for (block, scale) in
            bytes.chunks_exact_mut(size).zip([0x3c00, 0xbc00, 0x0001, 0x8001, 0, 0x8000_u16])
        {
            block[..2].copy_from_slice(&scale.to_le_bytes());
            block[2] = 0x80;
        }
        let tensor = view(dtype, rows, cols, &bytes);
        let (mut right, mut scales) = ([0.0; 64], [f16::ZERO; 2]);
        for index in 0..rows {
            tensor.row(index, &mut right);
            let found: Vec<f32> = if dtype == Dtype::Q8_0 {
                let mut q = [0; 64];
                tensor.int8_groups_row(index, &mut q, &mut scales).unwrap();
                assert!(tensor.int4_row(index, &mut [0; 64], &mut scales).is_none());
                (0..64).map(|k| int8_groups::weight(q[k], scales[k / 32])).collect()
            } else {
                let mut q = [0; 64];
                tensor.int4_row(index, &mut q, &mut scales).unwrap();
                (0..64).map(|k| int4::weight(q[k], scales[k / 32])).collect()
            };
            for (found, right) in found.iter().zip(&right) {
                assert_eq!(found.to_bits(), right.to_bits());
            }
        }
        let one = 1.0_f32.to_le_bytes();
        let scaled = tensor.scaled(&view(Dtype::F32, 1, 1, &one), (rows, cols)).unwrap();
        assert!(scaled.int8_groups_row(0, &mut [0; 64], &mut scales).is_none());
        assert!(scaled.int4_row(0, &mut [0; 64], &mut scales).is_none());
    }
}

/// Rows of other blocks as the groups of a form: the weights that the file's own type stands for, or nothing.
#[test]
fn groups_of_other_blocks_are_the_same_weights() {
    let (rows, cols) = (3, 512);
    for dtype in [Dtype::Q5_0, Dtype::Iq4Nl, Dtype::Mxfp4, Dtype::Q4_0, Dtype::Q4_1, Dtype::Q4K] {
        let (numbers, size) = dtype.block();
        let mut bytes: Vec<u8> = (0..rows * cols / numbers * size).map(|i| (i * 37 % 251) as u8).collect();
        for (index, block) in bytes.chunks_exact_mut(size).enumerate() {
            let half = |scale: f32| f16::from_f32(scale * (index + 1) as f32).to_le_bytes();
            block[..2].copy_from_slice(&half(if index % 2 == 0 { 0.013 } else { -0.2 }));
            match dtype {
                Dtype::Q4_1 | Dtype::Q4K => block[2..4].copy_from_slice(&half(-0.07)),
                Dtype::Mxfp4 => block[0] = 104 + (index % 40) as u8,
                _ => {}
            }
        }
        let tensor = view(dtype, rows, cols, &bytes);
        let (mut right, mut q) = (vec![0.0; cols], vec![0; cols]);
        let [mut scales, mut leasts] = [(); 2].map(|()| vec![f16::ZERO; cols / 32]);
        for index in 0..rows {
            tensor.row(index, &mut right);
            let affine = tensor.int4_affine_row(index, &mut q, &mut scales, &mut leasts);
            let found: Vec<f32> = if affine.is_some() {
                (0..cols).map(|k| int4_affine::weight(q[k], scales[k / 32], leasts[k / 32])).collect()
            } else {
                let mut q = vec![0; cols];
                tensor.int8_groups_row(index, &mut q, &mut scales).unwrap();
                (0..cols).map(|k| int8_groups::weight(q[k], scales[k / 32])).collect()
            };
            for (k, (found, right)) in found.iter().zip(&right).enumerate() {
                // Products of a scale of 11 bits and one of 6 are rounded to 11.
                let parts = 15.0 * scales[k / 32].to_f32().abs() + leasts[k / 32].to_f32().abs();
                let off = if dtype == Dtype::Q4K { parts / 2048.0 } else { 0.0 };
                assert!((found - right).abs() <= off, "{dtype:?}: {found} for {right}");
            }
        }
    }
}

#[test]
fn groups_that_f16_cannot_hold_are_left_to_be_quantised() {
    let (mut q, mut scales, mut leasts) = ([0; 32], [f16::ZERO], [f16::ZERO]);
    for exponent in [0, 1, 103, 104, 143, 144, 254, 255] {
        let mut block = [0x21; 17];
        block[0] = exponent;
        let tensor = view(Dtype::Mxfp4, 1, 32, &block);
        let found = tensor.int8_groups_row(0, &mut q, &mut scales);
        assert_eq!(found.is_some(), exponent < 144, "{exponent}");
        // As blocks of zeros are written.
        assert_eq!(scales[0] == f16::ZERO, exponent < 104, "{exponent}");
        scales[0] = f16::ONE;
    }
    // Eight times the scale is the offset.
    for (scale, fits) in [(8_000.0, true), (9_000.0, false), (f32::INFINITY, false)] {
        let mut block = [0x21; 18];
        block[..2].copy_from_slice(&f16::from_f32(scale).to_le_bytes());
        let tensor = view(Dtype::Q4_0, 1, 32, &block);
        let found = tensor.int4_affine_row(0, &mut [0; 32], &mut scales, &mut leasts);
        assert_eq!(found.is_some(), fits, "{scale}");
    }
    let mut block = [0xff; 144];
    block[..4].copy_from_slice(bytemuck::bytes_of(&[f16::MAX, f16::ONE]));
    let tensor = view(Dtype::Q4K, 1, 256, &block);
    assert!(tensor.int4_affine_row(0, &mut [0; 256], &mut [f16::ZERO; 8], &mut [f16::ZERO; 8]).is_none());
}

/// MXFP4 with its powers of two apart, as groups of 8-bit integers.
#[test]
fn four_bit_floats_are_groups_too() {
    let codes: Vec<u8> = (0..64).map(|i| (i * 7 + 3) as u8).collect();
    let exponents = [120, 104, 143, 127];
    let tensor = Tensor::mxfp4(2, 64, &codes, &exponents).unwrap();
    let (mut right, mut q, mut scales) = ([0.0; 64], [0; 64], [f16::ZERO; 2]);
    for index in 0..2 {
        tensor.row(index, &mut right);
        tensor.int8_groups_row(index, &mut q, &mut scales).unwrap();
        for (k, right) in right.iter().enumerate() {
            assert_eq!(int8_groups::weight(q[k], scales[k / 32]), *right);
        }
    }
}

/// Columns that move in runs of groups take their groups with them, also out of larger blocks.
#[test]
fn groups_move_with_their_columns() {
    let (cols, order) = (512, [2, 0, 3, 1]);
    for dtype in [Dtype::Q8_0, Dtype::Q4_0, Dtype::Q4_1, Dtype::Q4K] {
        let (numbers, size) = dtype.block();
        let mut bytes: Vec<u8> = (0..cols / numbers * size).map(|i| (i * 37 % 251) as u8).collect();
        for (index, block) in bytes.chunks_exact_mut(size).enumerate() {
            block[..2].copy_from_slice(&f16::from_f32(0.01 * (index + 1) as f32).to_le_bytes());
            if size > 18 && dtype != Dtype::Q8_0 {
                block[2..4].copy_from_slice(&f16::from_f32(-0.3).to_le_bytes());
            }
        }
        let plain = view(dtype, 1, cols, &bytes);
        let moved = plain.with_columns(&order, 128).unwrap();
        let mut right = vec![0.0; cols];
        moved.row(0, &mut right);
        let [mut scales, mut leasts] = [(); 2].map(|()| vec![f16::ZERO; cols / 32]);
        let mut q = vec![0; cols];
        let found: Vec<f32> = if moved.int4_affine_row(0, &mut q, &mut scales, &mut leasts).is_some() {
            (0..cols).map(|k| int4_affine::weight(q[k], scales[k / 32], leasts[k / 32])).collect()
        } else {
            let mut q = vec![0; cols];
            moved.int8_groups_row(0, &mut q, &mut scales).unwrap();
            (0..cols).map(|k| int8_groups::weight(q[k], scales[k / 32])).collect()
        };
        for (k, (found, right)) in found.iter().zip(&right).enumerate() {
            assert!(
                (found - right).abs() <= right.abs() / 1000.0 + 1e-3,
                "{dtype:?} {k}: {found} for {right}"
            );
        }
        let divided = plain.with_columns(&[0; 32], 16).unwrap();
        assert!(divided.int4_affine_row(0, &mut q, &mut scales, &mut leasts).is_none());
        assert!(divided.int4_row(0, &mut q, &mut scales).is_none());
        assert!(divided.int8_groups_row(0, &mut vec![0; cols], &mut scales).is_none());
    }
}
