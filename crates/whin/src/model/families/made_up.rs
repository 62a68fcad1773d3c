//! What a new family takes: this reader, and its row in the table. No checkpoint has it.

use super::dense::{self, DEFAULTS, Defaults, Dense};
use crate::model::config::Fields;
use crate::model::spec::{Norms, Spec};

const MADE_UP: Defaults = Defaults { width: 16, layers: 2, heads: 2, ..DEFAULTS };

/// Reads the config, noting problems in it.
pub(super) fn read(config: &mut Fields<'_>) -> Spec {
    let mut dense = Dense::read(config, &MADE_UP);
    dense.norms = Norms { before: true, after: true };
    dense.parallel = true;
    dense.attention.sinks = true;
    dense.attention.softcap = dense::optional(config, "score_cap", Some(2.0));
    let kinds = dense.all_full();
    Spec { norm_centred: true, ..dense.spec(config, &kinds) }
}

mod tests {
    use std::path::Path;

    use safetensors::Dtype;
    use safetensors::tensor::TensorView;
    use tempfile::TempDir;

    use crate::model::{Plan, config};
    use crate::{CacheMode, Device, Engine, KvKind, Options, Prompt, Weights};

    /// A checkpoint with numbers that matter.
    fn checkpoint(config_json: &str) -> TempDir {
        let spec = config::read(config_json.as_bytes()).unwrap();
        assert_eq!(spec.family, "made-up");
        let mut state = 1u32;
        let mut number = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut tensors = Vec::new();
        for (name, shape) in Plan::new(&spec).tensors() {
            let bytes: Vec<u8> = (0..shape.iter().product()).flat_map(|_| number().to_le_bytes()).collect();
            tensors.push((name, shape, bytes));
        }
        let mut views = Vec::new();
        for (name, shape, bytes) in &tensors {
            views.push((name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap()));
        }
        let folder = TempDir::new().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        write("config.json", config_json.as_bytes());
        write("model.safetensors", &safetensors::serialize(views, None).unwrap());
        folder
    }

    /// The log-probabilities of a few tokens.
    fn scores(folder: &Path, device: Device) -> Vec<f32> {
        let cache = CacheMode::Off;
        let options = Options { device, weights: Weights::F32, kv: KvKind::F32, cache, ..Options::default() };
        let engine = Engine::load(Some(folder), &options).unwrap();
        let score = engine.score(&Prompt::Ids(vec![3, 1, 4, 1, 5, 9, 2, 6])).unwrap();
        score.logprobs.into_iter().flatten().map(|score| score as f32).collect()
    }

    #[test]
    fn a_reader_and_a_row_make_a_family() {
        let small = r#"{"model_type": "made-up", "vocab_size": 10, "intermediate_size": 6"#;
        let folder = checkpoint(&format!("{small}}}"));
        let right = scores(folder.path(), Device::Reference);
        let found = scores(folder.path(), Device::Auto);
        assert_eq!(right.len(), 7);
        for (found, right) in found.iter().zip(&right) {
            assert!((found - right).abs() < 1e-3, "{found} is not {right}");
        }
        let capped = checkpoint(&format!(r#"{small}, "score_cap": 0.1}}"#));
        assert_ne!(scores(capped.path(), Device::Reference), right, "the option matters");
        let error = config::read(format!(r#"{small}, "socre_cap": 0.1}}"#).as_bytes()).unwrap_err();
        assert!(error.to_string().contains("socre_cap is 0.1"), "{error}");
    }
}
