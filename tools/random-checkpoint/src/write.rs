//! The files of a checkpoint, streamed: memory holds a few blocks of values, whatever the size of the model.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use crate::shape::{Shape, Tensor};
use crate::values::{BLOCK, Dtype, fill_block};

/// What to write.
pub struct Job<'a> {
    pub shape: &'a Shape,
    pub dtype: Dtype,
    pub seed: u64,
    pub shards: usize,
    /// Folder that has the tokenizer's files.
    pub tokenizer: Option<&'a Path>,
}

/// Files that go with a tokenizer; only the first must exist.
const TOKENIZER_FILES: [&str; 6] = [
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
];

const INDEX: &str = "model.safetensors.index.json";

/// Writes a whole checkpoint into `folder` and returns the bytes of its weights.
///
/// The configuration comes last: a folder left by an interrupted run is not a checkpoint.
///
/// # Errors
/// When the folder already holds a checkpoint, the number of files does not suit, a file of the tokenizer is
/// missing, or the disk refuses; the message names the path.
pub fn checkpoint(job: &Job<'_>, folder: &Path) -> Result<u64> {
    let tensors = job.shape.tensors();
    ensure!(
        (1..=tensors.len()).contains(&job.shards),
        "--shards must be between 1 and the number of tensors, {}, not {}",
        tensors.len(),
        job.shards
    );
    let config = folder.join("config.json");
    ensure!(!config.exists(), "{} already holds a checkpoint (it has a config.json)", folder.display());
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    if let Some(from) = job.tokenizer {
        copy_tokenizer(from, folder)?;
    }
    let total = write_weights(job, &tensors, folder)?;
    write_json(&folder.join("generation_config.json"), &Shape::generation_config())?;
    write_json(&config, &job.shape.config(job.dtype))?;
    Ok(total)
}

fn copy_tokenizer(from: &Path, folder: &Path) -> Result<()> {
    for (i, name) in TOKENIZER_FILES.iter().enumerate() {
        let source = from.join(name);
        if source.exists() {
            fs::copy(&source, folder.join(name))
                .with_context(|| format!("cannot copy {}", source.display()))?;
        } else if i == 0 {
            bail!("--tokenizer {}: the folder has no {name}", from.display());
        }
    }
    Ok(())
}

fn write_weights(job: &Job<'_>, tensors: &[Tensor], folder: &Path) -> Result<u64> {
    let bytes = |tensor: &Tensor| (tensor.len() * job.dtype.size()) as u64;
    let total = tensors.iter().map(bytes).sum();
    let mut weight_map = Map::new();
    for (i, shard) in split(tensors, job.shards, bytes).into_iter().enumerate() {
        let name = match job.shards {
            1 => "model.safetensors".to_owned(),
            many => format!("model-{:05}-of-{many:05}.safetensors", i + 1),
        };
        let path = folder.join(&name);
        write_shard(job, shard, &path).with_context(|| format!("cannot write {}", path.display()))?;
        weight_map.extend(shard.iter().map(|tensor| (tensor.name.clone(), json!(name))));
    }
    if job.shards > 1 {
        let index = json!({ "metadata": { "total_size": total }, "weight_map": weight_map });
        write_json(&folder.join(INDEX), &index)?;
    }
    Ok(total)
}

/// Cuts the tensors into `shards` runs of about the same number of bytes, none of them empty.
fn split(mut tensors: &[Tensor], shards: usize, bytes: impl Fn(&Tensor) -> u64) -> Vec<&[Tensor]> {
    let mut left: u64 = tensors.iter().map(&bytes).sum();
    let mut runs = Vec::with_capacity(shards);
    for after in (0..shards).rev() {
        let goal = left / (after as u64 + 1);
        let most = tensors.len() - after;
        let (mut count, mut size) = (0, 0);
        while count < most && (count == 0 || after == 0 || size + bytes(&tensors[count]) / 2 <= goal) {
            size += bytes(&tensors[count]);
            count += 1;
        }
        let (run, rest) = tensors.split_at(count);
        runs.push(run);
        tensors = rest;
        left -= size;
    }
    runs
}

/// One safetensors file: header length (u64, little-endian), JSON header, values without gaps.
/// Format: <https://github.com/huggingface/safetensors#format>.
fn write_shard(job: &Job<'_>, tensors: &[Tensor], path: &Path) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(&header(tensors, job.dtype))?;
    for tensor in tensors {
        write_values(job, tensor, &mut file)?;
    }
    Ok(())
}

fn header(tensors: &[Tensor], dtype: Dtype) -> Vec<u8> {
    let mut entries = Map::from_iter([("__metadata__".to_owned(), json!({ "format": "pt" }))]);
    let mut start = 0;
    for tensor in tensors {
        let end = start + tensor.len() * dtype.size();
        let entry = json!({
            "dtype": dtype.safetensors_name(),
            "shape": tensor.sizes,
            "data_offsets": [start, end],
        });
        entries.insert(tensor.name.clone(), entry);
        start = end;
    }
    let mut text = Value::Object(entries).to_string().into_bytes();
    // Spaces at the end, so that the values start at a multiple of eight.
    text.resize(text.len().next_multiple_of(8), b' ');
    let mut bytes = (text.len() as u64).to_le_bytes().to_vec();
    bytes.append(&mut text);
    bytes
}

/// Makes the blocks of a tensor side by side, one a thread, and writes them in order.
fn write_values(job: &Job<'_>, tensor: &Tensor, file: &mut File) -> io::Result<()> {
    let threads = thread::available_parallelism().map_or(1, |n| n.get());
    let size = job.dtype.size();
    let mut bytes = vec![0; tensor.len().min(threads * BLOCK) * size];
    for start in (0..tensor.len()).step_by(threads * BLOCK) {
        let part = &mut bytes[..(tensor.len() - start).min(threads * BLOCK) * size];
        thread::scope(|scope| {
            for (i, chunk) in part.chunks_mut(BLOCK * size).enumerate() {
                let block = start / BLOCK + i;
                scope.spawn(move || fill_block(chunk, &tensor.name, block, job.seed, tensor.fill, job.dtype));
            }
        });
        file.write_all(part)?;
    }
    Ok(())
}

fn write_json(path: &Path, value: &Value) -> Result<()> {
    fs::write(path, format!("{value:#}\n")).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use safetensors::SafeTensors;

    use super::*;
    use crate::shape::named;

    /// Larger than a block in the embedding, odd elsewhere.
    fn tiny(tied: bool) -> Shape {
        Shape {
            width: 35,
            inner: 51,
            layers: 2,
            heads: 6,
            kv_heads: 3,
            head_dim: 10,
            vocabulary: BLOCK / 35 + 3,
            tied,
        }
    }

    fn job(shape: &Shape, shards: usize) -> Job<'_> {
        Job { shape, dtype: Dtype::Bf16, seed: 7, shards, tokenizer: None }
    }

    /// Name → (sizes, bytes) of every tensor in a folder's weight files.
    fn read(folder: &Path) -> BTreeMap<String, (Vec<usize>, Vec<u8>)> {
        let mut tensors = BTreeMap::new();
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_some_and(|extension| extension == "safetensors") {
                let bytes = fs::read(&path).unwrap();
                let (length, _) = SafeTensors::read_metadata(&bytes).unwrap();
                assert_eq!(length % 8, 0, "{} is not aligned", path.display());
                for (name, view) in SafeTensors::deserialize(&bytes).unwrap().tensors() {
                    let old = tensors.insert(name, (view.shape().to_vec(), view.data().to_vec()));
                    assert!(old.is_none());
                }
            }
        }
        tensors
    }

    #[test]
    fn a_checkpoint_reads_back_with_the_shapes_of_its_config() {
        for tied in [true, false] {
            let (shape, folder) = (tiny(tied), tempfile::tempdir().unwrap());
            let total = checkpoint(&job(&shape, 1), folder.path()).unwrap();
            let found = read(folder.path());
            let wanted = shape.tensors();
            assert_eq!(found.len(), wanted.len());
            assert!(wanted.iter().all(|tensor| found[&tensor.name].0 == tensor.sizes));
            assert_eq!(found.contains_key("lm_head.weight"), !tied);
            assert_eq!(total, found.values().map(|(_, bytes)| bytes.len() as u64).sum::<u64>());
            assert!(!folder.path().join(INDEX).exists());
        }
    }

    #[test]
    fn the_number_of_files_does_not_change_the_values() {
        let shape = tiny(false);
        let (one, three) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        checkpoint(&job(&shape, 1), one.path()).unwrap();
        checkpoint(&job(&shape, 3), three.path()).unwrap();
        assert_eq!(read(one.path()), read(three.path()));

        let index = fs::read(three.path().join(INDEX)).unwrap();
        let index: Value = serde_json::from_slice(&index).unwrap();
        for tensor in shape.tensors() {
            let file = index["weight_map"][&tensor.name].as_str().unwrap();
            let bytes = fs::read(three.path().join(file)).unwrap();
            assert!(SafeTensors::deserialize(&bytes).unwrap().tensor(&tensor.name).is_ok());
        }
    }

    #[test]
    fn every_number_of_files_splits_the_tensors_without_loss() {
        let tensors = tiny(true).tensors();
        for shards in 1..=tensors.len() {
            let runs = split(&tensors, shards, |tensor| tensor.len() as u64);
            assert_eq!(runs.len(), shards);
            assert!(runs.iter().all(|run| !run.is_empty()));
            assert_eq!(runs.concat().len(), tensors.len());
        }
    }

    #[test]
    fn refusals_name_their_reason() {
        let (shape, folder) = (tiny(true), tempfile::tempdir().unwrap());
        let error = |job: &Job<'_>| checkpoint(job, folder.path()).unwrap_err().to_string();
        assert!(error(&job(&shape, 0)).contains("--shards"));
        assert!(error(&job(&shape, 1000)).contains("--shards"));
        let without = Job { tokenizer: Some(folder.path()), ..job(&shape, 1) };
        assert!(error(&without).contains("tokenizer.json"));
        checkpoint(&job(&shape, 1), folder.path()).unwrap();
        assert!(error(&job(&shape, 1)).contains("already holds a checkpoint"));
        assert!(named("Qwen3-7B").unwrap_err().to_string().contains("Qwen3-0.6B"));
    }

    #[test]
    fn published_shapes_have_their_published_sizes() {
        let billions =
            |name| named(name).unwrap().tensors().iter().map(Tensor::len).sum::<usize>() as f64 / 1e9;
        for (name, size) in [
            ("Qwen3-0.6B", 0.596),
            ("Qwen3-1.7B", 1.721),
            ("Qwen3-4B", 4.022),
            ("Qwen3-8B", 8.191),
            ("Qwen3-14B", 14.768),
            ("qwen3-32b", 32.762),
        ] {
            assert!((billions(name) - size).abs() < 0.001, "{name}: {}", billions(name));
        }
    }
}
