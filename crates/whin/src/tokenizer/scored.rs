//! Pieces of a text merged by score, as SentencePiece does: of all neighbours that are a token together, the pair of the
//! highest score becomes one, the leftmost of equal ones first. What no token spells becomes bytes.
//!
//! The `tokenizers` crate has ranks for pairs instead. They are not the same: two pairs that become the same token have one
//! score, but two ranks. It knows nothing of files.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use tokenizers::models::ModelWrapper;
use tokenizers::{Model, Token};

/// What merging needs to know of tokens beside their ids.
pub(super) struct Scored {
    /// (ids); none for tokens that no text becomes, such as control tokens.
    pub scores: Vec<Option<f32>>,
    /// (256): the tokens that stand for single bytes.
    pub bytes: Vec<Option<u32>>,
    /// Stands for what has no bytes either.
    pub unknown: Option<u32>,
    /// Bytes of the longest token.
    pub longest: usize,
}

/// A part of the text: at first a character. Those that were merged into the one before them are empty.
struct Symbol {
    start: usize,
    bytes: usize,
    before: Option<usize>,
    after: Option<usize>,
}

/// Two neighbours that are a token together.
struct Join {
    score: f32,
    left: usize,
    right: usize,
    bytes: usize,
}

impl Ord for Join {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then_with(|| other.left.cmp(&self.left))
    }
}

impl PartialOrd for Join {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Join {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Join {}

impl Scored {
    /// The tokens of `text`, of which `model` has the ids.
    ///
    /// # Errors
    /// Where the vocabulary has no way to spell a part of it.
    pub fn tokenize(&self, model: &ModelWrapper, text: &str) -> tokenizers::Result<Vec<Token>> {
        let mut symbols = characters(text);
        let mut joins = BinaryHeap::new();
        for left in 1..symbols.len() {
            joins.extend(self.join(model, text, &symbols, (left - 1, left)));
        }
        while let Some(Join { left, right, bytes, .. }) = joins.pop() {
            // One of the two may have become part of another since.
            let sizes = [symbols[left].bytes, symbols[right].bytes];
            if sizes.contains(&0) || sizes[0] + sizes[1] != bytes {
                continue;
            }
            let after = symbols[right].after;
            symbols[right].bytes = 0;
            symbols[left].bytes = bytes;
            symbols[left].after = after;
            if let Some(after) = after {
                symbols[after].before = Some(left);
            }
            let before = symbols[left].before;
            joins.extend(before.and_then(|before| self.join(model, text, &symbols, (before, left))));
            joins.extend(after.and_then(|after| self.join(model, text, &symbols, (left, after))));
        }
        let mut ids = Vec::new();
        for symbol in symbols.iter().filter(|symbol| symbol.bytes > 0) {
            self.spell(model, &text[symbol.start..symbol.start + symbol.bytes], &mut ids)?;
        }
        Ok(ids.into_iter().map(|id| Token::new(id, String::new(), (0, 0))).collect())
    }

    /// The id and score of a text that is a token.
    fn token(&self, model: &ModelWrapper, text: &str) -> Option<(u32, f32)> {
        let id = model.token_to_id(text)?;
        Some((id, self.scores.get(id as usize).copied().flatten()?))
    }

    fn join(
        &self,
        model: &ModelWrapper,
        text: &str,
        symbols: &[Symbol],
        (left, right): (usize, usize),
    ) -> Option<Join> {
        let bytes = symbols[left].bytes + symbols[right].bytes;
        if bytes > self.longest {
            return None;
        }
        let start = symbols[left].start;
        let (_, score) = self.token(model, &text[start..start + bytes])?;
        Some(Join { score, left, right, bytes })
    }

    fn spell(&self, model: &ModelWrapper, text: &str, ids: &mut Vec<u32>) -> tokenizers::Result<()> {
        if let Some((id, _)) = self.token(model, text) {
            ids.push(id);
            return Ok(());
        }
        let bytes: Option<Vec<u32>> = text.bytes().map(|byte| self.bytes[usize::from(byte)]).collect();
        match (bytes, self.unknown) {
            (Some(bytes), _) => ids.extend(bytes),
            (None, Some(unknown)) => ids.push(unknown),
            (None, None) => return Err(format!("no token stands for {text:?} or its bytes").into()),
        }
        Ok(())
    }
}

fn characters(text: &str) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::with_capacity(text.len());
    for (index, (start, char)) in text.char_indices().enumerate() {
        let bytes = char.len_utf8();
        let after = (start + bytes < text.len()).then_some(index + 1);
        symbols.push(Symbol { start, bytes, before: index.checked_sub(1), after });
    }
    symbols
}

#[cfg(test)]
mod tests {
    use ahash::AHashMap;
    use proptest::prelude::*;
    use tokenizers::models::bpe::BPE;

    use super::*;

    const TOKENS: [(&str, Option<f32>); 20] = [
        ("<unk>", None),
        ("a", Some(-3.0)),
        ("b", Some(-3.0)),
        ("c", Some(-4.0)),
        ("ab", Some(-1.0)),
        ("ba", Some(-1.0)),
        ("aa", Some(-0.5)),
        ("aab", Some(-0.25)),
        ("bc", Some(2.0)),
        ("abc", Some(-9.0)),
        ("abab", Some(-2.0)),
        ("é", Some(-7.0)),
        ("éa", Some(0.0)),
        ("bé", Some(-1.0)),
        ("aaa", Some(-0.5)),
        ("ca", Some(-1.0)),
        ("cab", None),
        ("🙂", None),
        ("caca", Some(-1.0)),
        ("aaaa", Some(5.0)),
    ];

    fn model() -> ModelWrapper {
        let ids: AHashMap<String, u32> =
            TOKENS.iter().enumerate().map(|(id, (text, _))| ((*text).to_owned(), id as u32)).collect();
        ModelWrapper::BPE(BPE::builder().vocab_and_merges(ids, Vec::new()).build().unwrap())
    }

    fn scored(bytes: bool, unknown: bool) -> Scored {
        Scored {
            scores: TOKENS.iter().map(|(_, score)| *score).collect(),
            bytes: (0..256).map(|byte| bytes.then_some(1000 + byte)).collect(),
            unknown: unknown.then_some(0),
            longest: 4,
        }
    }

    fn ids(scored: &Scored, text: &str) -> Vec<u32> {
        scored.tokenize(&model(), text).unwrap().iter().map(|token| token.id).collect()
    }

    /// The same by the definition: of all neighbours, the first of those with the highest score, again and again.
    fn by_definition(text: &str) -> Vec<u32> {
        let find = |text: &str| {
            let id = TOKENS.iter().position(|(token, score)| *token == text && score.is_some())?;
            Some((id as u32, TOKENS[id].1.unwrap()))
        };
        let mut parts: Vec<String> = text.chars().map(String::from).collect();
        loop {
            let mut best: Option<(f32, usize)> = None;
            for left in 1..parts.len() {
                let score = find(&[&*parts[left - 1], &*parts[left]].concat()).map(|(_, score)| score);
                if let Some(score) = score.filter(|score| best.is_none_or(|(best, _)| *score > best)) {
                    best = Some((score, left - 1));
                }
            }
            let Some((_, left)) = best else { break };
            let right = parts.remove(left + 1);
            parts[left].push_str(&right);
        }
        let spell = |part: &String| match find(part) {
            Some((id, _)) => vec![id],
            None => part.bytes().map(|byte| 1000 + u32::from(byte)).collect(),
        };
        parts.iter().flat_map(spell).collect()
    }

    proptest! {
        #[test]
        fn pairs_merge_by_the_definition(text in "[abcé🙂x]{0,24}") {
            prop_assert_eq!(ids(&scored(true, true), &text), by_definition(&text));
        }
    }

    #[test]
    fn what_no_token_spells_becomes_bytes_or_the_unknown_token() {
        assert_eq!(ids(&scored(true, true), "a🙂"), [1, 1240, 1159, 1153, 1130]);
        assert_eq!(ids(&scored(false, true), "a🙂x"), [1, 0, 0]);
        // A token that no text becomes is none, not even on the way to another.
        assert_eq!(ids(&scored(true, true), "cab"), [15, 2]);
        let error = scored(false, false).tokenize(&model(), "a🙂").unwrap_err();
        assert!(error.to_string().contains('🙂'), "{error}");
        assert_eq!(ids(&scored(true, true), ""), [0; 0]);
    }

    #[test]
    fn a_forged_token_is_spelt_out() {
        let mut inner = tokenizers::Tokenizer::new(model());
        inner.add_tokens([tokenizers::AddedToken::from("cab", true).normalized(false)]).unwrap();
        let tokenizer = super::super::Tokenizer::new(inner, Some(scored(true, true)), Some(19), "x").unwrap();
        assert_eq!(tokenizer.encode("acabb").unwrap(), [1, 16, 2]);
        // The middle of the token was written by somebody else.
        assert_eq!(tokenizer.encode_guarded("acabb", &[2], &|_| true).unwrap(), [1, 15, 2, 2]);
        assert_eq!(tokenizer.encode_guarded("acabb", &[0, 4], &|_| true).unwrap(), [1, 16, 2]);
    }

    #[test]
    fn long_texts_take_time_in_proportion() {
        let started = std::time::Instant::now();
        let text = "abcaab".repeat(50_000);
        assert!(ids(&scored(true, true), &text).len() > 50_000);
        assert!(started.elapsed().as_secs() < 10, "{:?}", started.elapsed());
    }
}
