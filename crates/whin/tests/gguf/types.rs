//! Numbers in every type are those that the Python package gguf makes of them (`tools/goldens/blocks.py`).

use std::path::Path;

use whin::checkpoint::{Source, Tensors};

#[test]
fn numbers_of_every_type_are_the_same_to_the_bit() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/gguf-types.gguf");
    let mut tensors = Tensors::open(&Source::open(Some(&path)).unwrap()).unwrap();
    let names = [
        "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "MXFP4",
        "experts", "BF16", "F16", "F64",
    ];
    for name in names {
        let shape: &[usize] = match name {
            "experts" => &[2, 3, 256],
            "F64" => &[2, 33],
            "BF16" | "F16" => &[2, 256],
            "Q8_0" | "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1" | "MXFP4" => &[8, 256],
            _ => &[6, 256],
        };
        let (found, expected) = (tensors.claim(name, shape).unwrap(), format!("{name}.expected"));
        let expected = tensors.claim(&expected, shape).unwrap();
        assert_eq!(found.storage(), if name == "experts" { "Q4_K" } else { name });
        assert_eq!(found.shape(), (shape[..shape.len() - 1].iter().product(), shape[shape.len() - 1]));
        let (found, expected) = (found.view().to_vec(), expected.view().to_vec());
        assert!(
            expected.iter().all(|number| !number.is_nan()) && expected.iter().any(|number| *number < 0.0)
        );
        for (index, (found, expected)) in found.iter().zip(&expected).enumerate() {
            assert_eq!(
                found.to_bits(),
                expected.to_bits(),
                "{name}, number {index}: {found}, not {expected}"
            );
        }
    }
    tensors.finish(|_| false).unwrap();
}
