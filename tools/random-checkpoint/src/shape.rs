//! What a model looks like: the published sizes, the tensors they imply, and `config.json`. Knows nothing of files.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::values::{Dtype, Fill};

/// The sizes of a dense Qwen3 model, as its published `config.json` gives them.
#[derive(Clone, Debug)]
pub struct Shape {
    pub width: usize,
    pub inner: usize,
    pub layers: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub head_dim: usize,
    pub vocabulary: usize,
    pub tied: bool,
}

/// A tensor to write: its name in the checkpoint, its sizes (outermost first), and what fills it.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: String,
    pub sizes: Vec<usize>,
    pub fill: Fill,
}

impl Tensor {
    /// A matrix (outputs, inputs), scaled so that a product keeps the variance of its input.
    fn matrix(name: impl Into<String>, outputs: usize, inputs: usize) -> Self {
        let fill = Fill { mean: 0.0, deviation: 1.0 / (inputs as f32).sqrt() };
        Self { name: name.into(), sizes: vec![outputs, inputs], fill }
    }

    /// The weights of a normalisation: around one, and no two alike.
    fn norm(name: impl Into<String>, width: usize) -> Self {
        Self { name: name.into(), sizes: vec![width], fill: Fill { mean: 1.0, deviation: 0.1 } }
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.sizes.iter().product()
    }
}

/// Name, width, inner width, layers, heads, key-value heads, tied head. All have heads of 128.
type Row = (&'static str, usize, usize, usize, usize, usize, bool);

/// From the `config.json` of each model's repository.
const PUBLISHED: [Row; 6] = [
    ("Qwen3-0.6B", 1024, 3072, 28, 16, 8, true),
    ("Qwen3-1.7B", 2048, 6144, 28, 16, 8, true),
    ("Qwen3-4B", 2560, 9728, 36, 32, 8, true),
    ("Qwen3-8B", 4096, 12288, 36, 32, 8, false),
    ("Qwen3-14B", 5120, 17408, 40, 40, 8, false),
    ("Qwen3-32B", 5120, 25600, 64, 64, 8, false),
];

/// The shape of a published model.
///
/// # Errors
/// Names the shapes there are when `name` is none of them.
pub fn named(name: &str) -> Result<Shape> {
    for (known, width, inner, layers, heads, kv_heads, tied) in PUBLISHED {
        if known.eq_ignore_ascii_case(name) {
            let (head_dim, vocabulary) = (128, 151_936);
            return Ok(Shape { width, inner, layers, heads, kv_heads, head_dim, vocabulary, tied });
        }
    }
    let known: Vec<_> = PUBLISHED.iter().map(|row| row.0).collect();
    bail!("unknown shape \"{name}\"; known are {}", known.join(", "))
}

impl Shape {
    /// Every tensor of the checkpoint, in the order of the forward pass.
    pub fn tensors(&self) -> Vec<Tensor> {
        let mut tensors = vec![Tensor::matrix("model.embed_tokens.weight", self.vocabulary, self.width)];
        for layer in 0..self.layers {
            tensors.extend(self.layer(layer));
        }
        tensors.push(Tensor::norm("model.norm.weight", self.width));
        if !self.tied {
            tensors.push(Tensor::matrix("lm_head.weight", self.vocabulary, self.width));
        }
        tensors
    }

    fn layer(&self, layer: usize) -> Vec<Tensor> {
        let name = |rest: &str| format!("model.layers.{layer}.{rest}.weight");
        let (queries, keys) = (self.heads * self.head_dim, self.kv_heads * self.head_dim);
        vec![
            Tensor::norm(name("input_layernorm"), self.width),
            Tensor::matrix(name("self_attn.q_proj"), queries, self.width),
            Tensor::matrix(name("self_attn.k_proj"), keys, self.width),
            Tensor::matrix(name("self_attn.v_proj"), keys, self.width),
            Tensor::norm(name("self_attn.q_norm"), self.head_dim),
            Tensor::norm(name("self_attn.k_norm"), self.head_dim),
            Tensor::matrix(name("self_attn.o_proj"), self.width, queries),
            Tensor::norm(name("post_attention_layernorm"), self.width),
            Tensor::matrix(name("mlp.gate_proj"), self.inner, self.width),
            Tensor::matrix(name("mlp.up_proj"), self.inner, self.width),
            Tensor::matrix(name("mlp.down_proj"), self.width, self.inner),
        ]
    }

    /// `config.json` with the keys of the published ones.
    pub fn config(&self, dtype: Dtype) -> Value {
        json!({
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": false,
            "attention_dropout": 0.0,
            "bos_token_id": 151_643,
            "eos_token_id": 151_645,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.width,
            "initializer_range": 0.02,
            "intermediate_size": self.inner,
            "max_position_embeddings": 40_960,
            "max_window_layers": self.layers,
            "model_type": "qwen3",
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": 1e-6,
            "rope_scaling": null,
            "rope_theta": 1_000_000,
            "sliding_window": null,
            "tie_word_embeddings": self.tied,
            "torch_dtype": dtype.torch_name(),
            "transformers_version": "4.51.0",
            "use_cache": true,
            "use_sliding_window": false,
            "vocab_size": self.vocabulary,
        })
    }

    /// `generation_config.json`: the end-of-text ids and the sampling values that Qwen publishes.
    pub fn generation_config() -> Value {
        json!({
            "bos_token_id": 151_643,
            "do_sample": true,
            "eos_token_id": [151_645, 151_643],
            "pad_token_id": 151_643,
            "temperature": 0.6,
            "top_k": 20,
            "top_p": 0.95,
            "transformers_version": "4.51.0",
        })
    }
}
