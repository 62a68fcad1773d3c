//! How single tokens become bytes: decided once, when a tokenizer is loaded.
//!
//! Nearly all decoders treat each token for itself, so that its bytes can stand in a table. What they do
//! besides is little: the first token of a text may look different (no leading space), and spaces may be
//! stripped from the start of the whole text.

use tokenizers::{Decoder, DecoderWrapper};

use super::guarded;

/// How ids become text.
pub(super) enum Pieces {
    /// Each token has its bytes, whatever its neighbours.
    PerToken(Table),
    /// A token's text depends on its neighbours: windows of ids go through the `tokenizers` crate.
    Windowed,
}

/// Why a decoder cannot be used.
pub(super) enum Unusable {
    Broken(String),
    Unsupported(String),
}

/// The bytes of each token.
pub(super) struct Table {
    bytes: Vec<u8>,             // all tokens, one after the other
    ends: Vec<usize>,           // (ids): where the bytes of each id end
    known: Vec<bool>,           // (ids): whether the id has a token at all
    first: Vec<DecoderWrapper>, // the steps for a text's first token, if they make it differ
    /// The first character so often, at most, is left out where the whole text begins with it.
    pub(super) strip: Option<(char, usize)>,
}

/// The steps of a decoder that treats each token for itself.
struct Steps<'a> {
    per_token: Vec<&'a DecoderWrapper>,
    byte_fallback: bool,
    strip: Option<(char, usize)>,
}

impl Pieces {
    /// Finds out how the decoder of `tokenizer` works, and fills the table for `ids` ids.
    pub(super) fn new(tokenizer: &tokenizers::Tokenizer, ids: usize) -> Result<Self, Unusable> {
        let tokens: Vec<Option<String>> = (0..ids as u32).map(|id| tokenizer.id_to_token(id)).collect();
        let steps = match tokenizer.get_decoder() {
            Some(DecoderWrapper::ByteLevel(_)) => {
                return Ok(Self::PerToken(Table::byte_level(tokenizer, &tokens)));
            }
            Some(DecoderWrapper::Sequence(sequence)) => match sequence.get_decoders() {
                [DecoderWrapper::ByteLevel(_)] => {
                    return Ok(Self::PerToken(Table::byte_level(tokenizer, &tokens)));
                }
                steps => Steps::read(steps)?,
            },
            Some(one) => Steps::read(std::slice::from_ref(one))?,
            None => None,
        };
        match steps {
            Some(steps) => Table::stepwise(&steps, &tokens).map(Self::PerToken).map_err(Unusable::Broken),
            None => Ok(Self::Windowed),
        }
    }
}

impl<'a> Steps<'a> {
    /// Sorts the steps of a decoder, or gives none if a token's text depends on its neighbours.
    fn read(decoders: &'a [DecoderWrapper]) -> Result<Option<Self>, Unusable> {
        let mut steps = Self { per_token: Vec::new(), byte_fallback: false, strip: None };
        let mut fused = false;
        for decoder in decoders {
            match decoder {
                DecoderWrapper::Strip(strip) if fused && strip.stop > 0 => {
                    return Err(Unusable::Unsupported(format!(
                        "its decoder strips {:?} from the end of the text, which cannot be streamed",
                        strip.content
                    )));
                }
                DecoderWrapper::Strip(strip) if fused && steps.strip.is_none() => {
                    steps.strip = Some((strip.content, strip.start));
                }
                DecoderWrapper::Fuse(_) => fused = true,
                DecoderWrapper::ByteFallback(_) if !fused && !steps.byte_fallback => {
                    steps.byte_fallback = true
                }
                DecoderWrapper::Replace(_)
                | DecoderWrapper::Strip(_)
                | DecoderWrapper::Metaspace(_)
                | DecoderWrapper::WordPiece(_)
                    if !fused && !steps.byte_fallback =>
                {
                    steps.per_token.push(decoder);
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(steps))
    }

    /// Whether these steps treat the first token of a text differently.
    fn know_the_first(&self) -> bool {
        let differs = |step: &&DecoderWrapper| {
            matches!(step, DecoderWrapper::Metaspace(_) | DecoderWrapper::WordPiece(_))
        };
        self.per_token.iter().any(differs)
    }

    fn append(&self, text: &str, bytes: &mut Vec<u8>) {
        match byte_token(text) {
            Some(byte) if self.byte_fallback => bytes.push(byte),
            _ => bytes.extend_from_slice(text.as_bytes()),
        }
    }
}

impl Table {
    fn with_capacity(tokens: &[Option<String>]) -> Self {
        let known = tokens.iter().map(Option::is_some).collect();
        let bytes = Vec::with_capacity(tokens.iter().flatten().map(String::len).sum());
        Self { bytes, ends: Vec::with_capacity(tokens.len()), known, first: Vec::new(), strip: None }
    }

    /// A vocabulary that is spelt in GPT-2's byte alphabet. Added tokens are spelt as they are: also those
    /// whose characters happen to stand in that alphabet, where the reference makes U+FFFD of an `é`.
    fn byte_level(tokenizer: &tokenizers::Tokenizer, tokens: &[Option<String>]) -> Self {
        let added = tokenizer.get_added_tokens_decoder();
        let mut table = Self::with_capacity(tokens);
        for (id, token) in tokens.iter().enumerate() {
            if let Some(added) = added.get(&(id as u32)) {
                table.bytes.extend_from_slice(added.content.as_bytes());
            } else if let Some(token) = token {
                let start = table.bytes.len();
                for char in token.chars() {
                    let Some(byte) = alphabet_byte(char) else {
                        // Not spelt in the alphabet, so meant as it is.
                        table.bytes.truncate(start);
                        table.bytes.extend_from_slice(token.as_bytes());
                        break;
                    };
                    table.bytes.push(byte);
                }
            }
            table.ends.push(table.bytes.len());
        }
        table
    }

    fn stepwise(steps: &Steps, tokens: &[Option<String>]) -> Result<Self, String> {
        let mut table = Self::with_capacity(tokens);
        table.strip = steps.strip;
        let spelt: Vec<String> = tokens.iter().map(|token| token.clone().unwrap_or_default()).collect();
        if steps.know_the_first() {
            table.first = steps.per_token.iter().copied().cloned().collect();
        }
        // The first place is taken by a copy, so that all tokens are seen inside a text.
        let opening = spelt.first().cloned();
        let inside = apply(steps.per_token.iter().copied(), opening.into_iter().chain(spelt).collect())?;
        for (text, &known) in inside.iter().skip(1).zip(&table.known) {
            if known {
                steps.append(text, &mut table.bytes);
            }
            table.ends.push(table.bytes.len());
        }
        Ok(table)
    }

    /// The bytes of `id` inside a text; empty for ids without a token.
    pub(super) fn bytes(&self, id: u32) -> &[u8] {
        let id = id as usize;
        let start = if id == 0 { 0 } else { self.ends.get(id - 1).copied().unwrap_or(self.bytes.len()) };
        let end = self.ends.get(id).copied().unwrap_or(self.bytes.len());
        &self.bytes[start..end]
    }

    /// The bytes of `id`, spelt `token`, where it opens a text; none if they are those inside a text.
    pub(super) fn first_bytes(&self, token: &str) -> Option<Vec<u8>> {
        // Byte tokens are the same everywhere, and stand in the other table as bytes.
        if self.first.is_empty() || byte_token(token).is_some() {
            return None;
        }
        // The same steps went through the whole vocabulary before, so they do not fail on one token of it.
        let text = apply(self.first.iter(), vec![token.to_owned()]).ok()?;
        Some(text.concat().into_bytes())
    }

    /// Whether some tokens may have other bytes where they open a text.
    pub(super) fn opens_differently(&self) -> bool {
        !self.first.is_empty() || self.strip.is_some_and(|(_, most)| most > 0)
    }

    /// Whether `id` has a token.
    pub(super) fn knows(&self, id: u32) -> bool {
        self.known.get(id as usize).copied().unwrap_or(false)
    }
}

/// The texts of `tokens`, which stand one after the other at the start of a text.
fn apply<'a>(
    steps: impl Iterator<Item = &'a DecoderWrapper>,
    mut tokens: Vec<String>,
) -> Result<Vec<String>, String> {
    for step in steps {
        tokens = guarded(|| step.decode_chain(tokens)).map_err(|why| format!("its decoder fails: {why}"))?;
    }
    Ok(tokens)
}

/// The byte that SentencePiece spells `<0xNN>`.
fn byte_token(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hexadecimal.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// The byte that GPT-2's alphabet writes as `char`: printable Latin-1 stands for itself, the other 68
/// bytes, in their order, for U+0100 and on. Source: `bytes_to_unicode` in
/// <https://github.com/openai/gpt-2/blob/master/src/encoder.py>.
fn alphabet_byte(char: char) -> Option<u8> {
    match u32::from(char) {
        code @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(code as u8),
        code @ 0x100..=0x120 => Some((code - 0x100) as u8), // 0x00..=0x20
        code @ 0x121..=0x142 => Some((code - 0x121 + 0x7f) as u8), // 0x7f..=0xa0
        0x143 => Some(0xad),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alphabet_names_each_byte_once() {
        let mut found: Vec<u8> = (0..0x200).filter_map(char::from_u32).filter_map(alphabet_byte).collect();
        found.sort_unstable();
        assert_eq!(found, (0..=255).collect::<Vec<u8>>());
        assert_eq!(alphabet_byte('Ġ'), Some(b' '));
        assert_eq!(alphabet_byte('Ċ'), Some(b'\n'));
    }

    #[test]
    fn byte_tokens_have_exactly_two_hexadecimal_digits() {
        assert_eq!(byte_token("<0x0A>"), Some(10));
        assert_eq!(byte_token("<0xff>"), Some(255));
        for other in ["<0x+1>", "<0x1>", "<0x123>", "<0xé>", "0x12", ""] {
            assert_eq!(byte_token(other), None, "{other}");
        }
    }
}
