//! How texts are cut before pairs are merged, by the names that GGUF files give to it in `tokenizer.ggml.pre`.
//!
//! The names are those that llama.cpp knows. The patterns are those of the models' own `tokenizer.json` where llama.cpp
//! quotes them, since it has to make do with an engine for expressions that knows no classes of characters; else its own.
//! Each cuts what the ones before it have left. It knows nothing of vocabularies.

/// One way to cut texts.
pub(super) struct Splitting {
    names: &'static [&'static str],
    /// What matches is a piece, and so is what lies between; in turn.
    pub patterns: &'static [&'static str],
    /// Whether a piece that is a token as it stands is that token, whatever the merges say.
    pub whole_pieces: bool,
    /// Whether texts are brought into Unicode's composed form. llama.cpp leaves that out; the models were trained with it.
    pub composed: bool,
    /// Whether the vocabulary is spelt in characters, with `▁` for blanks and tokens for single bytes, instead of in the
    /// alphabet of bytes.
    pub in_characters: bool,
}

/// The way of that name.
///
/// # Errors
/// A message with all names.
pub(super) fn find(name: &str) -> Result<&'static Splitting, String> {
    let found = ALL.iter().find(|splitting| splitting.names.contains(&name));
    found.ok_or_else(|| {
        let mut names: Vec<&str> = ALL.iter().flat_map(|splitting| splitting.names).copied().collect();
        names.sort_unstable();
        format!(
            "cuts texts in a way that is called {:?} and not known here (tokenizer.ggml.pre); known are {}",
            crate::error::shortened(name.to_owned(), 100),
            names.join(", ")
        )
    })
}

const PLAIN: Splitting =
    Splitting { names: &[], patterns: &[], whole_pieces: false, composed: false, in_characters: false };

/// All ways, the common ones first.
static ALL: &[Splitting] = &[
    Splitting {
        names: &[
            "gpt-2",
            "phi-2",
            "jina-es",
            "jina-de",
            "gigachat",
            "jina-v2-es",
            "jina-v2-de",
            "a.x-4.0",
            "mellum",
            "modern-bert",
            "jina-v1-en",
            "jina-v2-code",
            "roberta-bpe",
            "jais",
            "trillion",
            "granite-docling",
            "exaone4",
        ],
        patterns: &[GPT2],
        ..PLAIN
    },
    Splitting { names: &["mpt", "olmo"], patterns: &[GPT2], composed: true, ..PLAIN },
    Splitting {
        names: &["starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"],
        patterns: &[DIGIT, GPT2],
        ..PLAIN
    },
    Splitting { names: &["command-r"], patterns: &[DIGIT, GPT2], composed: true, ..PLAIN },
    Splitting {
        names: &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "pixtral",
            "midm-2.0",
            "lfm2",
            "jina-v5-nano",
            "glm4",
            "glm5",
        ],
        patterns: &[WORDS_AND_3_DIGITS],
        whole_pieces: true,
        ..PLAIN
    },
    Splitting { names: &["dbrx", "smaug-bpe", "chatglm-bpe"], patterns: &[WORDS_AND_3_DIGITS], ..PLAIN },
    Splitting {
        names: &["qwen2", "deepseek-r1-qwen"],
        patterns: &[WORDS_AND_DIGITS],
        composed: true,
        ..PLAIN
    },
    Splitting {
        names: &["kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"],
        patterns: &[WORDS_AND_DIGITS],
        ..PLAIN
    },
    Splitting { names: &["qwen35"], patterns: &[QWEN35], composed: true, ..PLAIN },
    Splitting {
        names: &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"],
        patterns: &[GPT4O],
        ..PLAIN
    },
    Splitting { names: &["granite-embed-multi-97m"], patterns: &[GPT4O], whole_pieces: true, ..PLAIN },
    Splitting { names: &["tekken"], patterns: &[TEKKEN], whole_pieces: true, ..PLAIN },
    Splitting {
        names: &["tiny_aya", "cohere2moe"],
        patterns: &[WHOLE_NUMBERS, DIGITS_FROM_THE_RIGHT, GPT4O],
        ..PLAIN
    },
    Splitting { names: &["deepseek-llm"], patterns: &DEEPSEEK_LLM, ..PLAIN },
    Splitting { names: &["deepseek-coder"], patterns: &DEEPSEEK_CODER, ..PLAIN },
    Splitting {
        names: &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"],
        patterns: &[DIGITS_3, CJK, DEEPSEEK3],
        ..PLAIN
    },
    Splitting { names: &["spark2_5"], patterns: &[DIGITS_3, CJK, SPARK, DIGIT], ..PLAIN },
    Splitting { names: &["kimi-k2"], patterns: &[KIMI], ..PLAIN },
    Splitting {
        names: &["gemma4", "granite-embed-multi-311m", "sarvam-moe"],
        patterns: &[LINES],
        in_characters: true,
        ..PLAIN
    },
    Splitting { names: &["falcon"], patterns: &[FALCON, GPT2, "[0-9][0-9][0-9]"], ..PLAIN },
    Splitting { names: &["default"], patterns: &[SIGNS, GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], ..PLAIN },
    Splitting { names: &["bailingmoe", "bailingmoe2", "llada-moe"], patterns: &[BAILING], ..PLAIN },
    Splitting { names: &["seed-coder"], patterns: &[SEED], ..PLAIN },
    Splitting { names: &["exaone-moe"], patterns: &[EXAONE_MOE], ..PLAIN },
    Splitting { names: &["jais-2"], patterns: &[JAIS2], ..PLAIN },
    Splitting { names: &["youtu"], patterns: &[YOUTU_SCRIPTS, YOUTU], whole_pieces: true, ..PLAIN },
    Splitting {
        names: &["superbpe"],
        patterns: &[r"\p{N}+", DIGITS_FROM_THE_RIGHT, BETWEEN_DIGITS],
        ..PLAIN
    },
    Splitting { names: &["afmoe"], patterns: &[AFMOE_DIGITS, AFMOE_SCRIPTS, DEEPSEEK3], ..PLAIN },
    Splitting { names: &["laguna"], patterns: &[LINES, WORDS_AND_DIGITS], ..PLAIN },
    Splitting { names: &["minicpm5"], patterns: &[DIGITS_3, MINICPM5], whole_pieces: true, ..PLAIN },
    Splitting { names: &["ufakzeka"], patterns: &[UFAKZEKA], ..PLAIN },
    Splitting { names: &["poro-chat", "bloom", "gpt3-finnish"], patterns: &[BLOOM], ..PLAIN },
    Splitting { names: &["viking"], patterns: &[BLOOM, DIGIT], ..PLAIN },
    Splitting { names: &["chameleon"], patterns: &CHAMELEON, ..PLAIN },
];

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const DIGIT: &str = r"\p{N}";
const DIGITS_3: &str = r"\p{N}{1,3}";
/// `\d{1,3}(?=(?:\d{3})*\b)` in two steps, which together take a time that grows with the text and not with its square:
/// numbers that end a word, and then those in threes from the right.
const WHOLE_NUMBERS: &str = r"(?<!\d)\d++\b";
const DIGITS_FROM_THE_RIGHT: &str = r"\A\d{1,3}(?=(?:\d{3})*\z)|(?!\A)\G\d{3}";
/// Where threes from the right begin beside numbers of another kind. It looks ahead so far only because more would take the
/// square of a text's length.
const BETWEEN_DIGITS: &str = r"(?=(?:\d{3}){1,100}(?!\d))";
const LINES: &str = r"[^\n]+|\n+";
const SIGNS: &str = r"[\p{P}$+<=>^~|]+";
const FALCON: &str = r"[\p{P}$+<=>^~|`]+";

const WORDS_AND_3_DIGITS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const WORDS_AND_DIGITS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const MINICPM5: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const UFAKZEKA: &str = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN35: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const GPT4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const KIMI: &str = concat!(
    r"[\p{Han}]+|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const DEEPSEEK_LLM: [&str; 6] =
    [r"[\r\n]", DEEPSEEK_LETTERS, DEEPSEEK_SIGNS, r"\s+$", CJK_AND_HANGUL, r"\p{N}+"];
const DEEPSEEK_CODER: [&str; 5] = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK_AND_HANGUL, DIGIT];
const DEEPSEEK_LETTERS: &str = concat!(
    r"\s?[A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293}",
    r"\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-\x{38a}\x{38c}",
    r"\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-\x{556}\x{10a0}-\x{10c5}",
    r"\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba}\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}",
    r"\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}",
    r"\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57}\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}",
    r"\x{1fb6}-\x{1fbc}\x{1fbe}\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}",
    r"\x{1fe0}-\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115}",
    r"\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139}",
    r"\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b}\x{2c7e}-\x{2ce4}",
    r"\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-\x{a69b}\x{a722}-\x{a76f}",
    r"\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf}\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}",
    r"\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}",
    r"\x{10c80}-\x{10cb2}\x{10cc0}-\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943}]+",
);
const DEEPSEEK_SIGNS: &str =
    r"\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+";
const CJK_AND_HANGUL: &str = r"[\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+";
const CJK: &str = r"[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+";
const DEEPSEEK3: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
    r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
const SPARK: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"##,
    r" ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+"
);
const BAILING: &str = concat!(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|",
    r"\s*[\r\n]|\s+(?!\S)|\s+"
);
const SEED: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|",
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
);
const EXAONE_MOE: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
);
const JAIS2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|",
    // Behind a blank there is no line's end any more: looking for it again would take the square of a run's length.
    r"(?<![^\S\r\n])\s*[\r\n]+|",
    r"\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|",
    r"\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"
);
const YOUTU_SCRIPTS: &str = concat!(
    r"[\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018}\x{2019}\x{2014}",
    r"\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[\x{3105}-\x{312f}]+|[",
    r"\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+",
);
const YOUTU: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|",
    r"\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);
/// Digits in threes counted from the right of each run, of which the beginning alone is looked ahead from.
const AFMOE_DIGITS: &str = r"(?<!\p{N})\p{N}{1,2}(?=(?:\p{N}{3})+(?!\p{N}))|\p{N}{1,3}";
const AFMOE_SCRIPTS: &str = concat!(
    r"[\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-\x{30ff}",
    r"\x{ff65}-\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-\x{17ff}",
    r"\x{1000}-\x{109f}\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af}\x{1100}-\x{11ff}]+",
);
const BLOOM: &str = r" ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+";
const CHAMELEON: [&str; 6] = [
    "<sentinel:[0-9]+>",
    "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z",
    r"([\t\n]|    |  )",
    DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    GPT2,
];

#[cfg(test)]
mod tests {
    use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
    use tokenizers::{
        OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, SplitDelimiterBehavior,
    };

    use super::*;

    #[test]
    fn names_are_known_once_and_unknown_ones_are_refused_with_all_of_them() {
        let names: Vec<&str> = ALL.iter().flat_map(|splitting| splitting.names).copied().collect();
        for name in &names {
            assert!(find(name).is_ok_and(|found| found.names.contains(name) && !found.patterns.is_empty()));
            assert_eq!(names.iter().filter(|other| *other == name).count(), 1, "{name}");
        }
        for name in ["", "llama", "GPT-2", "gpt-2 "] {
            let why = find(name).err().unwrap();
            assert!(
                names.iter().all(|known| why.contains(known)) && why.contains(&format!("{name:?}")),
                "{why}"
            );
        }
        assert!(find(&"x".repeat(1 << 20)).err().unwrap().len() < 2000);
    }

    /// The pieces of a text that only has ASCII, before they are spelt in another alphabet.
    fn pieces(name: &str, text: &str) -> Vec<String> {
        cut_by(find(name).unwrap().patterns, text)
    }

    fn cut_by(patterns: &[&str], text: &str) -> Vec<String> {
        let mut pieces = vec![text.to_owned()];
        for pattern in patterns {
            let split = Split::new(
                SplitPattern::Regex((*pattern).to_owned()),
                SplitDelimiterBehavior::Isolated,
                false,
            );
            let split = split.unwrap();
            pieces = pieces.iter().flat_map(|piece| cut(&split, piece)).collect();
        }
        pieces
    }

    fn cut(split: &Split, piece: &str) -> Vec<String> {
        let mut cut = PreTokenizedString::from(piece);
        split.pre_tokenize(&mut cut).unwrap();
        let splits = cut.get_splits(OffsetReferential::Normalized, OffsetType::Byte);
        splits.into_iter().map(|(piece, ..)| piece.to_owned()).filter(|piece| !piece.is_empty()).collect()
    }

    #[test]
    fn every_way_keeps_the_whole_text() {
        let text =
            "It's 1234567 x\n\n  don'T  «Ünï» 你好ですか\t한국어 <a>\r\n ٣٤ e\u{301} ✨ \u{3000}$x^2 İ Ⅷ ";
        for name in ALL.iter().flat_map(|splitting| splitting.names) {
            assert_eq!(pieces(name, text).concat(), text, "{name}");
        }
    }

    #[test]
    fn digits_are_cut_as_each_way_has_it() {
        for (name, right) in [
            ("gpt-2", vec!["x", " 12345678"]),
            ("smollm", vec!["x", " ", "1", "2", "3", "4", "5", "6", "7", "8"]),
            ("llama-bpe", vec!["x", " ", "123", "456", "78"]),
            ("qwen2", vec!["x", " ", "1", "2", "3", "4", "5", "6", "7", "8"]),
            ("tiny_aya", vec!["x", " ", "12", "345", "678"]),
            ("afmoe", vec!["x", " ", "12", "345", "678"]),
            ("superbpe", vec!["x ", "12", "345", "678"]),
            ("gemma4", vec!["x 12345678"]),
        ] {
            assert_eq!(pieces(name, "x 12345678"), right, "{name}");
        }
        for text in [
            "1",
            "12",
            "123",
            "1234",
            "a1234",
            "1234a",
            "1234²",
            "²1234",
            "12.345678",
            "x12345 6789012_",
            "²",
        ] {
            let [old, new] = [&[r"\d{1,3}(?=(?:\d{3})*\b)"][..], &[WHOLE_NUMBERS, DIGITS_FROM_THE_RIGHT]];
            assert_eq!(cut_by(new, text), cut_by(old, text), "{text:?}");
            let [old, new] = [
                &[r"\p{N}+", r"(?=(\d{3})+(?!\d))"][..],
                &[r"\p{N}+", DIGITS_FROM_THE_RIGHT, BETWEEN_DIGITS],
            ];
            assert_eq!(cut_by(new, text), cut_by(old, text), "{text:?}");
        }
        for text in ["a    b", "a \n  \n   b", "!\n   \n x", "  \r\n\t  ", "\n\n  \n   x    "] {
            assert_eq!(
                cut_by(&[JAIS2], text),
                cut_by(&[&JAIS2.replace(r"(?<![^\S\r\n])", "")], text),
                "{text:?}"
            );
        }
        assert_eq!(pieces("afmoe", "1234 56 789 0"), ["1", "234", " ", "56", " ", "789", " ", "0"]);
    }

    #[test]
    fn long_runs_take_no_time() {
        let started = std::time::Instant::now();
        for name in ALL.iter().flat_map(|splitting| splitting.names) {
            for char in ["a", "A", "'", "=", "\n", "字", "\u{301}"] {
                let text = char.repeat(20_000);
                assert_eq!(pieces(name, &text).concat(), text, "{name}");
            }
        }
        for name in ALL.iter().flat_map(|splitting| splitting.names) {
            for (char, end) in
                [("1", ""), ("1", "a"), ("1", "²"), (" ", ""), (" ", "x"), (" ", "\n"), ("\n ", "")]
            {
                let text = char.repeat(20_000) + end;
                assert_eq!(pieces(name, &text).concat(), text, "{name}");
            }
        }
        assert!(started.elapsed().as_secs() < 30, "{:?}", started.elapsed());
    }
}
