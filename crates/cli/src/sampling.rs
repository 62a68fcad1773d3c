//! Options of sampling.

use whin::Sampling;

/// How tokens are chosen.
#[derive(clap::Args)]
#[command(next_help_heading = "Sampling", allow_negative_numbers = true)]
pub struct SamplingArgs {
    /// Divide the logits by this before drawing; 0 takes the likeliest token
    #[arg(long, default_value_t = 0.0, value_name = "T")]
    temperature: f32,
    /// Draw from the K likeliest tokens only; 0 is off
    #[arg(long, default_value_t = 0, value_name = "K")]
    top_k: i64,
    /// Draw from the smallest set of tokens that reaches this probability
    #[arg(long, default_value_t = 1.0, value_name = "P")]
    top_p: f32,
    /// Draw from tokens at least this many times as likely as the likeliest
    #[arg(long, default_value_t = 0.0, value_name = "P")]
    min_p: f32,
    /// Divide the logits of tokens in prompt or answer by this
    #[arg(long, default_value_t = 1.0, value_name = "X")]
    repeat_penalty: f32,
    /// Take this off the logits of tokens in the answer
    #[arg(long, default_value_t = 0.0, value_name = "X")]
    presence_penalty: f32,
    /// Take this off the logits of tokens in the answer, once for each time they stand there
    #[arg(long, default_value_t = 0.0, value_name = "X")]
    frequency_penalty: f32,
    /// Add X to the logit of token ID; may be given several times
    #[arg(long, value_name = "ID=X", value_parser = parse_bias, allow_hyphen_values = true)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the draws [default: a random one, which is reported]
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let parse = || {
        let (id, bias) = text.split_once('=')?;
        Some((id.trim().parse().ok()?, bias.trim().parse().ok()?))
    };
    parse().ok_or_else(|| "expected ID=X, as in 42=-1.5".to_owned())
}

impl SamplingArgs {
    /// What the options say.
    pub fn sampling(&self) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            logit_bias: self.logit_bias.clone(),
            seed: self.seed,
        }
    }
}
