//! Rotary embeddings: what stands under several keys and in tensors becomes one `rope_parameters`.

use serde_json::{Map, Value, json};

use super::Reading;
use crate::Result;

/// The base where no key names it.
const THETA: f64 = 10_000.0;

/// Tensors with divisors of the frequencies, which are read here and are no weights.
const FREQUENCIES: &str = "rope_freqs.weight";
const LONG: &str = "rope_factors_long.weight";
const SHORT: &str = "rope_factors_short.weight";

/// Reads the embedding that all layers have.
pub(super) fn read(reading: &mut Reading<'_>) -> Result<()> {
    let mut rope = scaling(reading)?;
    rope.insert("rope_theta".to_owned(), json!(reading.number("rope.freq_base")?.unwrap_or(THETA)));
    let (turning, head) = (reading.integer("rope.dimension_count")?, reading.config("head_dim"));
    // Said in any case: classes have shares of their own where nothing is.
    let turning = turning.unwrap_or(head);
    if turning > head {
        reading.refuse("rope.dimension_count", &format!("at most the length of a head ({head})"));
    }
    rope.insert("partial_rotary_factor".to_owned(), json!(turning as f64 / head.max(1) as f64));
    reading.put("rope_parameters", Value::Object(rope));
    Ok(())
}

/// The kind of scaling, with its numbers.
fn scaling(reading: &mut Reading<'_>) -> Result<Map<String, Value>> {
    let key = reading.key("rope.scaling.type");
    let kind = reading.metadata().text(&key)?.map(str::to_owned);
    let factor = match reading.number("rope.scaling.factor")? {
        None => reading.number("rope.scale_linear")?,
        factor => factor,
    };
    // Zero and one stand for no scaling in old files.
    let factor = factor.filter(|factor| *factor != 0.0 && *factor != 1.0);
    let [long, short, baked] = [LONG, SHORT, FREQUENCIES].map(|name| reading.divisors(name));
    if let (Some(_), None) | (None, Some(_)) = (&long, &short) {
        reading
            .problems
            .push(format!("of the tensors {LONG} and {SHORT} one is missing; accepted: both or none"));
    }
    if long.is_some() && (factor.is_some() || !matches!(kind.as_deref(), None | Some("none" | "longrope"))) {
        let key = if factor.is_some() { "rope.scaling.factor" } else { "rope.scaling.type" };
        reading.refuse(key, &format!("none beside the tensors {LONG} and {SHORT}"));
    }
    let mut rope = match (kind.as_deref(), long, short) {
        (_, Some(long), Some(short)) => longrope(reading, &long, &short)?,
        (Some("yarn"), ..) => yarn(reading, factor)?,
        (Some("none"), ..) => of("default"),
        (None | Some("linear"), ..) => match factor {
            Some(factor) => with(of("linear"), "factor", json!(factor)),
            None => of("default"),
        },
        (Some(_), ..) => {
            reading
                .refuse("rope.scaling.type", "none, linear, yarn, or longrope with its tensors of factors");
            of("default")
        }
    };
    if let Some(baked) = baked {
        if rope["rope_type"] != "default" {
            reading.refuse("rope.scaling.type", &format!("none beside the tensor {FREQUENCIES}"));
        }
        rope = divided(reading, &baked)?;
    }
    if !matches!(rope["rope_type"].as_str(), Some("yarn" | "longrope")) {
        reading.only("rope.scaling.attn_factor", 1.0)?;
    }
    if rope["rope_type"] != "yarn" {
        // Minus one asks llama.cpp for its own default, which is zero without yarn.
        if reading
            .number("rope.scaling.yarn_ext_factor")?
            .is_some_and(|number| ![0.0, -1.0].contains(&number))
        {
            reading.refuse("rope.scaling.yarn_ext_factor", "0 where rope.scaling.type is not yarn");
        }
        reading.only("rope.scaling.yarn_attn_factor", 1.0)?;
    }
    Ok(rope)
}

fn of(kind: &str) -> Map<String, Value> {
    Map::from_iter([("rope_type".to_owned(), json!(kind))])
}

fn with(mut rope: Map<String, Value>, key: &str, value: Value) -> Map<String, Value> {
    rope.insert(key.to_owned(), value);
    rope
}

/// Frequencies that were divided when the file was written, as those of Llama 3 are: the same divisors at all lengths.
fn divided(reading: &Reading<'_>, divisors: &[f32]) -> Result<Map<String, Value>> {
    let mut rope = of("longrope");
    rope.insert("short_factor".to_owned(), json!(divisors));
    rope.insert("long_factor".to_owned(), json!(divisors));
    rope.insert("factor".to_owned(), json!(1.0));
    let attention = reading.number("rope.scaling.attn_factor")?.unwrap_or(1.0);
    rope.insert("attention_factor".to_owned(), json!(attention));
    let length = reading.config("max_position_embeddings");
    rope.insert("original_max_position_embeddings".to_owned(), json!(length));
    Ok(rope)
}

fn longrope(reading: &Reading<'_>, long: &[f32], short: &[f32]) -> Result<Map<String, Value>> {
    let mut rope = of("longrope");
    rope.insert("short_factor".to_owned(), json!(short));
    rope.insert("long_factor".to_owned(), json!(long));
    if let Some(original) = reading.integer("rope.scaling.original_context_length")? {
        rope.insert("original_max_position_embeddings".to_owned(), json!(original));
    }
    // One where the key is missing, as llama.cpp has it, and not what follows from the lengths.
    let attention = reading.number("rope.scaling.attn_factor")?.unwrap_or(1.0);
    rope.insert("attention_factor".to_owned(), json!(attention));
    Ok(rope)
}

fn yarn(reading: &mut Reading<'_>, factor: Option<f64>) -> Result<Map<String, Value>> {
    let mut rope = with(of("yarn"), "factor", json!(factor.unwrap_or(1.0)));
    let original = reading.integer("rope.scaling.original_context_length")?;
    let original = original.unwrap_or_else(|| reading.config("max_position_embeddings"));
    rope.insert("original_max_position_embeddings".to_owned(), json!(original));
    if let Some(attention) = reading.number("rope.scaling.yarn_attn_factor")? {
        // Converters write the config's `attention_factor` here, or else its `attn_factor`, which multiplies the one that
        // follows from the lengths. The file does not say which; only the second has reason to be below one.
        let name = if attention < 1.0 { "attn_factor" } else { "attention_factor" };
        rope.insert(name.to_owned(), json!(attention));
    }
    for (key, name) in [
        ("rope.scaling.yarn_beta_fast", "beta_fast"),
        ("rope.scaling.yarn_beta_slow", "beta_slow"),
        ("rope.scaling.yarn_log_multiplier", "mscale_all_dim"),
    ] {
        if let Some(number) = reading.number(key)? {
            rope.insert(name.to_owned(), json!(number));
        }
    }
    // Minus one asks llama.cpp for its own default, which is one.
    for (key, accepted) in
        [("rope.scaling.yarn_ext_factor", [1.0, -1.0]), ("rope.scaling.attn_factor", [1.0, 1.0])]
    {
        if reading.number(key)?.is_some_and(|number| !accepted.contains(&number)) {
            reading.refuse(key, "1");
        }
    }
    Ok(rope)
}
