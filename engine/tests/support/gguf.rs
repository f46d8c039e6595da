//! A writer of small GGUF files, which also writes wrong ones.

/// A metadata value.
#[derive(Clone)]
pub enum Meta {
    U32(u32),
    F32(f32),
    Flag(bool),
    Text(&'static str),
    Texts(Vec<String>),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
}

/// Collects entries and tensors; `bytes` lays them out.
pub struct Writer {
    entries: Vec<u8>,
    entry_count: u64,
    infos: Vec<u8>,
    tensor_count: u64,
    data: Vec<u8>,
}

const ALIGNMENT: usize = 32;

fn text(value: &str) -> Vec<u8> {
    [&(value.len() as u64).to_le_bytes()[..], value.as_bytes()].concat()
}

fn array(kind: u32, count: usize, elements: Vec<u8>) -> Vec<u8> {
    [&9_u32.to_le_bytes()[..], &kind.to_le_bytes(), &(count as u64).to_le_bytes(), &elements].concat()
}

impl Writer {
    pub fn new() -> Self {
        Self { entries: Vec::new(), entry_count: 0, infos: Vec::new(), tensor_count: 0, data: Vec::new() }
    }

    pub fn meta(&mut self, key: &str, value: Meta) {
        let bytes = match value {
            Meta::U32(value) => [4_u32.to_le_bytes(), value.to_le_bytes()].concat(),
            Meta::F32(value) => [6_u32.to_le_bytes(), value.to_le_bytes()].concat(),
            Meta::Flag(value) => [&7_u32.to_le_bytes()[..], &[u8::from(value)]].concat(),
            Meta::Text(value) => [&8_u32.to_le_bytes()[..], &text(value)].concat(),
            Meta::Texts(values) => array(8, values.len(), values.iter().flat_map(|value| text(value)).collect()),
            Meta::I32s(values) => array(5, values.len(), values.iter().flat_map(|value| value.to_le_bytes()).collect()),
            Meta::F32s(values) => array(6, values.len(), values.iter().flat_map(|value| value.to_le_bytes()).collect()),
        };
        self.raw_meta(key, &bytes);
    }

    /// An entry whose type and value are given as bytes.
    pub fn raw_meta(&mut self, key: &str, bytes: &[u8]) {
        self.entries.extend(text(key));
        self.entries.extend(bytes);
        self.entry_count += 1;
    }

    /// A tensor with its data; dimensions in the file's order, contiguous first.
    pub fn tensor(&mut self, name: &str, dimensions: &[u64], kind: u32, data: &[u8]) {
        self.tensor_at(name, dimensions, kind, self.data.len() as u64);
        self.data.extend(data);
        self.data.resize(self.data.len().next_multiple_of(ALIGNMENT), 0);
    }

    /// A tensor info that points to any offset.
    pub fn tensor_at(&mut self, name: &str, dimensions: &[u64], kind: u32, offset: u64) {
        self.infos.extend(text(name));
        self.infos.extend((dimensions.len() as u32).to_le_bytes());
        self.infos.extend(dimensions.iter().flat_map(|side| side.to_le_bytes()));
        self.infos.extend(kind.to_le_bytes());
        self.infos.extend(offset.to_le_bytes());
        self.tensor_count += 1;
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = b"GGUF\x03\0\0\0".to_vec();
        bytes.extend(self.tensor_count.to_le_bytes());
        bytes.extend(self.entry_count.to_le_bytes());
        bytes.extend(&self.entries);
        bytes.extend(&self.infos);
        if self.tensor_count > 0 {
            bytes.resize(bytes.len().next_multiple_of(ALIGNMENT), 0);
        }
        bytes.extend(&self.data);
        bytes
    }
}
