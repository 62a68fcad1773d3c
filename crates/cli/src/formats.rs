//! The form that an answer must have.

use std::path::{Path, PathBuf};

use anyhow::Result;
use serde_json::Value;
use whin::constrain::{Format, Strictness};

use crate::messages::{parse, read};
use crate::model::invalid;

/// What an answer must look like, which is enforced while tokens are chosen.
#[derive(clap::Args)]
#[command(next_help_heading = "Form of the answer")]
pub struct FormatArgs {
    #[command(flatten)]
    kind: Kind,
    /// Leave out of the schema what cannot be enforced, rather than refuse it
    #[arg(long, requires = "json_schema", hide_short_help = true)]
    lenient_schema: bool,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct Kind {
    /// The answer is JSON that this JSON Schema accepts: the schema itself, the name of its file, or - for stdin
    #[arg(long, value_name = "JSON|FILE")]
    json_schema: Option<String>,
    /// The whole answer matches this regular expression
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    regex: Option<String>,
    /// The answer is a text of the context-free grammar in this file, in llguidance's dialect of Lark
    #[arg(long, value_name = "FILE")]
    lark: Option<PathBuf>,
    /// The answer is this text; may be given several times, and the model chooses
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    choice: Vec<String>,
}

impl FormatArgs {
    /// What was asked for.
    pub fn format(&self) -> Result<Option<Format>> {
        let Kind { json_schema, regex, lark, choice } = &self.kind;
        if let Some(schema) = json_schema {
            let strictness = if self.lenient_schema { Strictness::Lenient } else { Strictness::Enforced };
            return Ok(Some(Format::JsonSchema { schema: read_schema(schema)?, strictness }));
        }
        if let Some(path) = lark {
            return Ok(Some(Format::Lark(read(path)?)));
        }
        if let Some(regex) = regex {
            return Ok(Some(Format::Regex(regex.clone())));
        }
        Ok((!choice.is_empty()).then(|| Format::Choice(choice.clone())))
    }
}

/// A schema, which is an object or a boolean, or stands in a file.
fn read_schema(schema: &str) -> Result<Value> {
    let text = schema.trim();
    if text.starts_with('{') || text == "true" || text == "false" {
        return parse(text, "--json-schema");
    }
    if text.starts_with(['[', '"']) {
        return Err(invalid("--json-schema is neither an object nor the name of a file").into());
    }
    parse(&read(Path::new(schema))?, if schema == "-" { "stdin" } else { schema })
}
