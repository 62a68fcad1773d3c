//! Which blocks of the key-value cache, and which states of recurrent layers, are free.

/// Hands out blocks, or states, by number and takes them back. The memory behind them belongs to the backend.
#[derive(Debug, Default)]
pub struct Blocks {
    free: Vec<u32>,
    count: usize,
}

impl Blocks {
    /// A free block; none when all that exist are in use.
    pub fn take(&mut self) -> Option<u32> {
        self.free.pop()
    }

    /// Takes blocks back.
    pub fn give_back(&mut self, blocks: impl IntoIterator<Item = u32>) {
        self.free.extend(blocks);
    }

    /// How many blocks exist, free or not.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Forgets all blocks, of which none may be in use.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Adds one block, free, that the backend has made room for.
    pub fn add(&mut self) {
        self.free.push(self.count as u32);
        self.count += 1;
    }
}
