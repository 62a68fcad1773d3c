//! Writes GGUF files as they should not always be.

/// A value of the metadata as it lies in a file: its type, and its bytes.
#[derive(Clone, Debug)]
pub struct Value(pub u32, pub Vec<u8>);

/// The types of values.
pub const U8: u32 = 0;
pub const U32: u32 = 4;
pub const I32: u32 = 5;
pub const F32: u32 = 6;
pub const FLAG: u32 = 7;
pub const TEXT: u32 = 8;
pub const LIST: u32 = 9;
pub const U64: u32 = 10;
pub const I64: u32 = 11;

pub fn string(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [&(bytes.len() as u64).to_le_bytes()[..], bytes].concat()
}

pub fn text(bytes: impl AsRef<[u8]>) -> Value {
    Value(TEXT, string(bytes))
}

pub fn uint(number: u32) -> Value {
    Value(U32, number.to_le_bytes().to_vec())
}

pub fn float(number: f32) -> Value {
    Value(F32, number.to_le_bytes().to_vec())
}

pub fn flag(flag: u8) -> Value {
    Value(FLAG, vec![flag])
}

/// A list that announces `count` items of the type `kind`.
pub fn list(kind: u32, count: u64, items: &[u8]) -> Value {
    Value(LIST, [&kind.to_le_bytes()[..], &count.to_le_bytes(), items].concat())
}

pub fn texts(items: &[&[u8]]) -> Value {
    let bytes: Vec<u8> = items.iter().flat_map(string).collect();
    list(TEXT, items.len() as u64, &bytes)
}

/// A tensor as the header describes it.
#[derive(Clone, Debug)]
pub struct Tensor {
    pub name: Vec<u8>,
    /// The length of a row first.
    pub dims: Vec<u64>,
    pub kind: u32,
    pub offset: u64,
}

pub fn tensor(name: &str, dims: &[u64], kind: u32, offset: u64) -> Tensor {
    Tensor { name: name.into(), dims: dims.to_vec(), kind, offset }
}

/// A file, field by field.
#[derive(Clone, Debug)]
pub struct File {
    pub magic: [u8; 4],
    pub version: u32,
    /// Unset, as many as there are.
    pub tensor_count: Option<u64>,
    pub key_count: Option<u64>,
    pub keys: Vec<(Vec<u8>, Value)>,
    pub tensors: Vec<Tensor>,
    pub alignment: usize,
    pub data: Vec<u8>,
}

impl Default for File {
    fn default() -> Self {
        Self {
            magic: *b"GGUF",
            version: 3,
            tensor_count: None,
            key_count: None,
            keys: Vec::new(),
            tensors: Vec::new(),
            alignment: 32,
            data: Vec::new(),
        }
    }
}

impl File {
    pub fn new(keys: &[(&str, Value)], tensors: &[Tensor], data: &[u8]) -> Self {
        let keys = keys.iter().map(|(key, value)| (key.as_bytes().to_vec(), value.clone())).collect();
        Self { keys, tensors: tensors.to_vec(), data: data.to_vec(), ..Self::default() }
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.magic.to_vec();
        bytes.extend(self.version.to_le_bytes());
        bytes.extend(self.tensor_count.unwrap_or(self.tensors.len() as u64).to_le_bytes());
        bytes.extend(self.key_count.unwrap_or(self.keys.len() as u64).to_le_bytes());
        for (key, Value(kind, value)) in &self.keys {
            bytes.extend(string(key));
            bytes.extend(kind.to_le_bytes());
            bytes.extend(value);
        }
        for tensor in &self.tensors {
            bytes.extend(string(&tensor.name));
            bytes.extend((tensor.dims.len() as u32).to_le_bytes());
            tensor.dims.iter().for_each(|dim| bytes.extend(dim.to_le_bytes()));
            bytes.extend(tensor.kind.to_le_bytes());
            bytes.extend(tensor.offset.to_le_bytes());
        }
        bytes.resize(bytes.len().next_multiple_of(self.alignment), 0);
        bytes.extend(&self.data);
        bytes
    }
}
