//! Makes a tokenizer of the metadata of a GGUF file: of a vocabulary whose pairs are merged by rank, as those of GPT-2 and
//! most models since, or by score, as those of SentencePiece.
//!
//! A file has less than a `tokenizer.json`: how texts are cut it only names ([`splits`]), and what stands for what follows
//! from the kind of vocabulary. All of it is checked where it lies in the file before anything is copied.

mod ends;
mod splits;
mod vocabulary;

use ahash::AHashSet;
use tokenizers::decoders::byte_fallback::ByteFallback;
use tokenizers::decoders::fuse::Fuse;
use tokenizers::decoders::sequence::Sequence as Decoders;
use tokenizers::decoders::strip::Strip;
use tokenizers::models::bpe::{BPE, BpeBuilder};
use tokenizers::normalizers::unicode::NFC;
use tokenizers::normalizers::{Prepend, Replace, Sequence as Normalizers};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence as PreTokenizers;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{AddedToken, NormalizerWrapper, PreTokenizerWrapper, SplitDelimiterBehavior};

use super::Tokenizer;
use super::outline::LONGEST_ADDED;
use super::scored::Scored;
use crate::checkpoint::gguf::Metadata;
use crate::error::shortened;
use crate::{Error, ErrorKind, Result};
pub(crate) use ends::{end_tokens, special_tokens};
use splits::Splitting;
use vocabulary::{Kind, Vocabulary, scores};

const MODEL: &str = "tokenizer.ggml.model";
const CUT: &str = "tokenizer.ggml.pre";
const MERGES: &str = "tokenizer.ggml.merges";
const SPACE_BEFORE: &str = "tokenizer.ggml.add_space_prefix";
const FEWER_SPACES: &str = "tokenizer.ggml.remove_extra_whitespaces";

/// The most merges; the most known are some 500,000.
const MOST_MERGES: usize = 1 << 21;

/// What stands for a blank in vocabularies that are spelt in characters.
const BLANK: &str = "▁";

/// Architectures that were trained with the blanks behind control tokens left out, where their vocabulary has scores. Files
/// do not say so.
const WITHOUT_BLANKS_BEHIND: [&str; 1] = ["phi3"];

/// Control tokens behind which blanks stay even so.
const BLANKS_STAY: [&str; 3] = ["<unk>", "<s>", "<|endoftext|>"];

impl Tokenizer {
    /// Whether there is a tokenizer in the metadata of a GGUF file, sound or not.
    pub fn is_in(file: &Metadata) -> bool {
        file.contains(MODEL) && !matches!(file.text(MODEL), Ok(Some("none" | "no_vocab")))
    }

    /// The tokenizer in the metadata of a GGUF file whose model has embeddings for `rows` tokens.
    ///
    /// # Errors
    /// `invalid_checkpoint` naming the key and the place in it where something is missing, broken or contradicts another
    /// part; `unsupported_architecture` for kinds of vocabularies, and ways to cut texts, that are not known.
    pub fn from_gguf(file: &Metadata, rows: usize) -> Result<Self> {
        let kind = file.text(MODEL)?;
        let kind = kind.ok_or_else(|| broken(file, &format!("has no tokenizer: {MODEL} is missing")))?;
        match kind {
            "gpt2" => {
                let name = file.text(CUT)?;
                let name = name.ok_or_else(|| {
                    broken(file, &format!("does not say how texts are cut into pieces: {CUT} is missing"))
                })?;
                by_rank(file, rows, name)
            }
            "gemma4" => by_rank(file, rows, kind),
            "llama" => by_score(file, rows),
            _ => Err(unsupported(
                file,
                &format!(
                    "has a vocabulary of the kind {:?} ({MODEL}); known are gpt2, llama and gemma4",
                    shortened(kind.to_owned(), 100)
                ),
            )),
        }
    }
}

/// A tokenizer whose pairs have ranks, and whose texts are cut in the way of that name before.
fn by_rank(file: &Metadata, rows: usize, name: &str) -> Result<Tokenizer> {
    let splitting = splits::find(name).map_err(|why| unsupported(file, &why))?;
    let vocabulary = vocabulary(file, rows)?;
    let added = added(file, &vocabulary, false)?;
    let Merges { pairs, named } = Merges::read(file, &vocabulary)?;
    // Some tokens that are called unused are needed on the way to others.
    let unknown = vocabulary.tokens().find(|(.., kind)| *kind == Kind::Unknown).map(|(_, text, _)| text);
    let ids = vocabulary.into_ids(|id| named[id as usize]);
    let largest = ids.values().copied().max();
    let pairs = pairs.into_iter().map(|(first, second)| (first.to_owned(), second.to_owned())).collect();
    let mut model = BPE::builder().vocab_and_merges(ids, pairs).ignore_merges(splitting.whole_pieces);
    if splitting.in_characters {
        model = model.byte_fallback(true).fuse_unk(true);
        if let Some(unknown) = unknown {
            model = model.unk_token(unknown.to_owned());
        }
    }
    let build = || by_rank_from(model, splitting, added);
    finish(file, super::guarded(build), None, largest)
}

fn by_rank_from(
    model: BpeBuilder,
    splitting: &Splitting,
    added: Vec<AddedToken>,
) -> tokenizers::Result<tokenizers::Tokenizer> {
    let mut tokenizer = tokenizers::Tokenizer::new(model.build()?);
    let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
    for pattern in splitting.patterns {
        let pattern = SplitPattern::Regex((*pattern).to_owned());
        steps.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false)?.into());
    }
    if splitting.in_characters {
        tokenizer.with_normalizer(Some(Replace::new(" ", BLANK)?))?;
        tokenizer.with_decoder(Some(from_characters(false)?));
    } else {
        steps.push(ByteLevel::new(false, false, false).into());
        tokenizer.with_decoder(Some(ByteLevel::new(false, false, false)));
    }
    if splitting.composed {
        tokenizer.with_normalizer(Some(NFC))?;
    }
    tokenizer.with_pre_tokenizer(Some(PreTokenizers::new(steps)));
    tokenizer.add_tokens(added)?;
    Ok(tokenizer)
}

/// A tokenizer whose pairs have the scores of what they become.
fn by_score(file: &Metadata, rows: usize) -> Result<Tokenizer> {
    if file.flag(FEWER_SPACES)? == Some(true) {
        return Err(unsupported(file, &format!("leaves blanks out of texts ({FEWER_SPACES} is true)")));
    }
    let space_before = file.flag(SPACE_BEFORE)?.unwrap_or(true);
    let vocabulary = vocabulary(file, rows)?;
    let scores = scores(file, vocabulary.texts.len())?;
    let architecture = file.text("general.architecture")?.unwrap_or_default();
    let added = added(file, &vocabulary, WITHOUT_BLANKS_BEHIND.contains(&architecture))?;
    let scored = scored(&vocabulary, &scores);
    if scored.unknown.is_none()
        && let Some(byte) = scored.bytes.iter().position(Option::is_none)
    {
        let message =
            format!("cannot spell all texts: it has neither a token <0x{byte:02X}> nor an unknown one");
        return Err(broken(file, &message));
    }
    let ids = vocabulary.into_ids(|_| false);
    let largest = ids.values().copied().max();
    let build = || {
        // The crate's model only has the ids.
        let model = BPE::builder().vocab_and_merges(ids, Vec::new()).cache_capacity(0);
        let mut tokenizer = tokenizers::Tokenizer::new(model.build()?);
        let mut steps: Vec<NormalizerWrapper> = Vec::new();
        if space_before {
            steps.push(Prepend::new(BLANK.to_owned()).into());
        }
        steps.push(Replace::new(" ", BLANK)?.into());
        tokenizer.with_normalizer(Some(Normalizers::new(steps)))?;
        tokenizer.with_decoder(Some(from_characters(space_before)?));
        tokenizer.add_tokens(added)?;
        Ok(tokenizer)
    };
    finish(file, super::guarded(build), Some(scored), largest)
}

fn vocabulary(file: &Metadata, rows: usize) -> Result<Vocabulary<'_>> {
    let mut vocabulary = Vocabulary::read(file, rows)?;
    for id in ends::controls(file)? {
        vocabulary.kinds[id as usize] = Kind::Control;
    }
    Ok(vocabulary)
}

/// The steps from tokens that are spelt in characters back to text.
fn from_characters(space_before: bool) -> tokenizers::Result<Decoders> {
    let mut steps = vec![Replace::new(BLANK, " ")?.into(), ByteFallback::new().into(), Fuse::new().into()];
    if space_before {
        steps.push(Strip::new(' ', 1, 0).into());
    }
    Ok(Decoders::new(steps))
}

fn finish(
    file: &Metadata,
    built: Result<tokenizers::Tokenizer, String>,
    scored: Option<Scored>,
    largest: Option<u32>,
) -> Result<Tokenizer> {
    let built = built.map_err(|why| broken(file, &format!("has a tokenizer that cannot be built: {why}")))?;
    Tokenizer::new(built, scored, largest, file.file())
}

/// The tokens that are looked for in texts before all else.
fn added(
    file: &Metadata,
    vocabulary: &Vocabulary<'_>,
    without_blanks_behind: bool,
) -> Result<Vec<AddedToken>> {
    let mut sum = 0;
    let mut added = Vec::new();
    for (_, text, kind) in vocabulary.tokens() {
        let special = match kind {
            Kind::Control | Kind::Unknown => true,
            Kind::UserDefined => false,
            Kind::Normal | Kind::Unused | Kind::Byte => continue,
        };
        sum += text.len();
        if sum > LONGEST_ADDED {
            let message = format!(
                "has control and user-defined tokens of more than the {LONGEST_ADDED} bytes that are read"
            );
            return Err(broken(file, &message));
        }
        let strips = without_blanks_behind && special && !BLANKS_STAY.contains(&text);
        added.push(AddedToken::from(text, special).normalized(false).rstrip(strips));
    }
    Ok(added)
}

/// The pairs that become one.
struct Merges<'a> {
    /// The first ones first.
    pairs: Vec<(&'a str, &'a str)>,
    /// (ids): the tokens that are part of one, or made of one.
    named: Vec<bool>,
}

impl<'a> Merges<'a> {
    fn read(file: &'a Metadata, vocabulary: &Vocabulary<'_>) -> Result<Self> {
        let lines = file.texts(MERGES)?;
        let lines = lines
            .ok_or_else(|| broken(file, &format!("has no merges of its tokens: {MERGES} is missing")))?;
        if lines.len() > MOST_MERGES {
            return Err(broken(file, &format!("has {} merges; at most {MOST_MERGES} are read", lines.len())));
        }
        let mut pairs = Vec::with_capacity(lines.len());
        let mut named = vec![false; vocabulary.texts.len()];
        let mut seen = AHashSet::with_capacity(lines.len());
        let (mut joined, mut last) = (String::new(), 0);
        for (rank, line) in lines.enumerate() {
            let wrong = |what: &str| {
                let shown = String::from_utf8_lossy(&line[..line.len().min(400)]).into_owned();
                broken(
                    file,
                    &format!("has a merge that {what}: {MERGES}[{rank}] is {:?}", shortened(shown, 100)),
                )
            };
            let (first, second) = pair(line).map_err(wrong)?;
            joined.clear();
            joined.extend([first, second]);
            // Most vocabularies list what merges make in the order of the merges.
            let made = vocabulary.id_near(&joined, last);
            let (Some(left), Some(right), Some(made)) = (vocabulary.id(first), vocabulary.id(second), made)
            else {
                return Err(wrong("names or makes no token of the vocabulary"));
            };
            if !seen.insert((left, right)) {
                return Err(wrong("stands there twice"));
            }
            [left, right, made].into_iter().for_each(|id| named[id as usize] = true);
            last = made;
            pairs.push((first, second));
        }
        Ok(Self { pairs, named })
    }
}

/// The two tokens in a line, or what is wrong with it.
fn pair(line: &[u8]) -> Result<(&str, &str), &'static str> {
    let text = std::str::from_utf8(line).map_err(|_| "is not in UTF-8")?;
    // A blank at the very beginning belongs to the token.
    let first = text.chars().next().map_or(0, char::len_utf8);
    let at = text[first..].find(' ').ok_or("is no pair of tokens with a blank between")?;
    Ok((&text[..first + at], &text[first + at + 1..]))
}

fn scored(vocabulary: &Vocabulary<'_>, scores: &[f32]) -> Scored {
    let mut scored =
        Scored { scores: vec![None; scores.len()], bytes: vec![None; 256], unknown: None, longest: 0 };
    for (id, text, kind) in vocabulary.tokens() {
        match kind {
            Kind::Normal | Kind::UserDefined => {
                scored.scores[id as usize] = Some(scores[id as usize]);
                scored.longest = scored.longest.max(text.len());
            }
            Kind::Unknown => scored.unknown = scored.unknown.or(Some(id)),
            _ => {}
        }
    }
    for (byte, token) in scored.bytes.iter_mut().enumerate() {
        *token = vocabulary.id(&format!("<0x{byte:02X}>"));
    }
    scored
}

/// The error for a file that contradicts itself, or lacks something.
fn broken(file: &Metadata, what: &str) -> Error {
    let message =
        format!("{} {what}; get the file again, or convert the original checkpoint anew", file.file());
    Error::new(ErrorKind::InvalidCheckpoint, message)
}

/// The error for a sound file that asks for something that there is not.
fn unsupported(file: &Metadata, what: &str) -> Error {
    let message = format!("{} {what}; use the original checkpoint, with its tokenizer.json", file.file());
    Error::new(ErrorKind::UnsupportedArchitecture, message)
}
