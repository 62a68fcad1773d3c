//! `manifest.json` of a cell and the head of its weights: written, read, and checked before anything is believed.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use whin_kernels::{Layout, SECTION_ALIGNMENT};

use super::QUANTISER;
use super::sources::Contents;
use crate::Weights;
use crate::model::Spec;

/// Rises whenever the files of a cell change their form.
pub const FORMAT: u32 = 2;
const MAGIC: &[u8; 16] = b"whin weights\r\n\x1a\n";
/// Where the first weight lies: behind the head, on a page of its own.
pub const HEAD: u64 = 4096;
/// Models have some hundred weights and, at the most that is believed, some ten thousand.
pub const LONGEST: u64 = 16 << 20;

/// What a cell holds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The first thing that is read: what else there is depends on it.
    pub format: u32,
    pub subject: Subject,
    /// The checkpoint's folder when the cell was written, for people.
    pub checkpoint: String,
    /// The files that the weights were made from.
    pub sources: Vec<Contents>,
    /// The name of the file with the weights, beside this one.
    pub data: String,
    /// Its length in bytes.
    pub size: u64,
    /// All weights, in the order in which they lie there.
    pub weights: Vec<Entry>,
}

/// What a cell must have been made for and with to be of use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Subject {
    quantiser: u32,
    layout: String,
    layout_version: u32,
    /// As [`Weights::name`] has it.
    pub form: String,
    family: String,
    layers: usize,
    width: usize,
    vocab: usize,
    parameters: u64,
}

/// One weight.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// Its place in the model.
    pub name: String,
    /// As `WeightKind::name` has it; f32 for vectors.
    pub kind: String,
    /// (outputs, inputs) of a matrix, (numbers,) of a vector.
    pub shape: Vec<usize>,
    /// Where it begins.
    pub offset: u64,
    /// Its bytes, the gaps behind its parts included.
    pub size: u64,
    /// XXH3, 64 bits, of those bytes, in hexadecimal digits.
    pub xxh3: String,
}

impl Subject {
    pub fn new(spec: &Spec, form: Weights, layout: Layout) -> Self {
        Self {
            quantiser: QUANTISER,
            layout: layout.name.to_owned(),
            layout_version: layout.version,
            form: form.name().to_owned(),
            family: spec.family.to_owned(),
            layers: spec.layers.len(),
            width: spec.width,
            vocab: spec.vocab,
            parameters: spec.parameters(),
        }
    }

    /// The name of the folder of such a cell.
    pub fn cell_name(&self) -> String {
        format!("{}-{}", self.form, self.layout)
    }

    /// The form of weights in a cell of this name; none where it is no name of a cell.
    pub fn form_of(cell_name: &str) -> Option<&'static str> {
        let forms = Weights::ALL.iter().map(|form| form.name());
        forms.into_iter().find(|form| {
            let layout = cell_name.strip_prefix(form).and_then(|rest| rest.strip_prefix('-'));
            layout
                .is_some_and(|layout| !layout.is_empty() && layout.bytes().all(|b| b.is_ascii_alphanumeric()))
        })
    }
}

impl Manifest {
    /// The manifest in `json`, of which every number has been checked.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(json: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Version {
            format: u32,
        }
        if json.len() as u64 > LONGEST {
            return Err(format!("has a manifest of more than {LONGEST} bytes"));
        }
        let broken = |_| "has a broken manifest".to_owned();
        let Version { format } = serde_json::from_slice(json).map_err(broken)?;
        if format != FORMAT {
            return Err(format!("is of format {format}, and this version writes {FORMAT}"));
        }
        let manifest: Self = serde_json::from_slice(json).map_err(broken)?;
        manifest.check_places().ok_or("has a manifest that contradicts itself")?;
        Ok(manifest)
    }

    /// Weights lie one behind the other from the head to the end of the file, at multiples of the alignment.
    fn check_places(&self) -> Option<()> {
        let mut end = HEAD;
        for entry in &self.weights {
            let is_aligned = entry.size.is_multiple_of(SECTION_ALIGNMENT as u64);
            (entry.offset == end && is_aligned).then_some(())?;
            end = end.checked_add(entry.size)?;
        }
        (end == self.size && is_data_name(&self.data)).then_some(())
    }

    pub fn to_json(&self) -> Result<Vec<u8>, serde_json::Error> {
        serde_json::to_vec_pretty(self)
    }
}

/// The first bytes of the weights' file that belongs to the manifest in `json`.
pub fn head(json: &[u8], size: u64) -> Vec<u8> {
    let mut head = Vec::with_capacity(HEAD as usize);
    head.extend_from_slice(MAGIC);
    head.extend_from_slice(&FORMAT.to_le_bytes());
    head.extend_from_slice(&size.to_le_bytes());
    head.extend_from_slice(&Sha256::digest(json));
    head.resize(HEAD as usize, 0);
    head
}

/// The BLAKE3 of the manifest in `json`, in hexadecimal digits.
pub fn digest(json: &[u8]) -> String {
    blake3::hash(json).to_hex().to_string()
}

/// How `xxh3` stands in a manifest.
pub fn checksum(xxh3: u64) -> String {
    format!("{xxh3:016x}")
}

/// Names of the weights' file: chosen anew each time, so that no two writers and no reader meet in one.
pub fn data_name(random: u64) -> String {
    format!("weights-{random:016x}.bin")
}

pub fn is_data_name(name: &str) -> bool {
    let random = name.strip_prefix("weights-").and_then(|name| name.strip_suffix(".bin"));
    random.is_some_and(|digits| digits.len() == 16 && digits.bytes().all(|digit| digit.is_ascii_hexdigit()))
}
