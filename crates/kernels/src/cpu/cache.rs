//! The key-value cache, in the panels that products take: attention multiplies queries with keys and weights with
//! values as any other product multiplies rows with a matrix.

use half::bf16;

use super::buffer::{Buffer, Parts};
use super::isa::{CACHE_LINE, GROUP, Isa, PANEL, Panel, Stored, place, prefetch};
use super::rows::quantize_weights;
use super::states::States;
use super::threads::Threads;
use crate::{BLOCK, CacheShape, KvKind, LayerCache, Result, Step};

/// Keys and values of all sequences, and the states of recurrent layers.
#[derive(Debug)]
pub struct State {
    kind: KvKind,
    layers: Vec<Option<Layer>>, // none for those that are recurrent
    block_len: usize,           // bytes
    blocks: Vec<Buffer<u8>>,    // each (layers, kv_heads) of what `Head` views
    pub(super) states: States,
}

/// Where one layer stands in a block.
#[derive(Debug)]
pub struct Layer {
    offset: usize, // of its first head, in bytes
    pub kv_heads: usize,
    pub head_dim: usize,
    /// `head_dim` padded with zeros to whole panels.
    pub stride: usize,
}

/// The keys and values of one head in one block.
#[derive(Clone, Copy)]
pub struct Head<'a, W> {
    /// Panels of 16 positions: (BLOCK / PANEL, stride / GROUP, 16 positions, GROUP)
    pub keys: &'a [W],
    /// Panels of 16 numbers of the head: (stride / PANEL, BLOCK / GROUP, 16 numbers, GROUP)
    pub values: &'a [W],
    /// Whether any of them is infinite or NaN.
    pub faulty: bool,
}

/// The quantised keys and values of one head in one block, in panels as [`Head`] has them.
#[derive(Clone, Copy)]
pub struct QuantizedHead<'a> {
    keys: &'a [i8],
    values: &'a [i8],
    key_scales: &'a [[f32; PANEL]],
    key_sums: &'a [[i32; PANEL]],
    /// NaN where the value held infinity or NaN. (BLOCK,)
    pub value_scales: &'a [f32],
}

impl<'a> QuantizedHead<'a> {
    /// Sixteen positions of the keys.
    pub fn keys(&self, panel: usize) -> Panel<'a> {
        let len = self.keys.len() / (BLOCK / PANEL);
        let values = &self.keys[panel * len..(panel + 1) * len];
        Panel { values, scales: &self.key_scales[panel], sums: &self.key_sums[panel] }
    }

    /// Sixteen numbers of the values, for weights that hold the scales of the positions and are not offset.
    pub fn values(&self, panel: usize) -> Panel<'a> {
        let values = &self.values[panel * PANEL * BLOCK..(panel + 1) * PANEL * BLOCK];
        Panel { values, scales: &[1.0; PANEL], sums: &[0; PANEL] }
    }
}

/// Bytes behind the numbers of a head, whole cache lines: the first says whether any number is infinite or NaN.
const NOTES: usize = 64;

/// Fewer rows than these are stored sooner by one thread than shared out.
const WORTH_SHARING: usize = 8;

impl Layer {
    /// Numbers of the keys, or of the values, of a head in one block.
    fn count(&self) -> usize {
        BLOCK * self.stride
    }

    /// Bytes of a head in one block.
    fn head_len(&self, kind: KvKind) -> usize {
        BLOCK * kind.bytes(self.stride) + NOTES
    }
}

impl State {
    pub(super) fn new(shape: &CacheShape) -> Self {
        let mut block_len = 0;
        let mut layers = Vec::new();
        for layer in &shape.layers {
            let &LayerCache::Positions { kv_heads, head_dim } = layer else {
                layers.push(None);
                continue;
            };
            let stride = head_dim.next_multiple_of(PANEL);
            let layer = Layer { offset: block_len, kv_heads, head_dim, stride };
            block_len += kv_heads * layer.head_len(shape.kind);
            layers.push(Some(layer));
        }
        let states = States::new(&shape.layers);
        Self { kind: shape.kind, layers, block_len, blocks: Vec::new(), states }
    }

    /// Makes room for at least `blocks` blocks.
    pub(super) fn grow(&mut self, blocks: usize) -> Result<()> {
        while self.blocks.len() < blocks {
            self.blocks.push(Buffer::new(self.block_len, "the key-value cache")?);
        }
        Ok(())
    }

    /// Frees the blocks from number `blocks` on.
    pub(super) fn shrink(&mut self, blocks: usize) {
        self.blocks.truncate(blocks);
    }

    pub(super) fn kind(&self) -> KvKind {
        self.kind
    }

    pub(super) fn layer(&self, layer: usize) -> &Layer {
        self.layers[layer].as_ref().expect("a layer that keeps keys and values")
    }

    /// Asks for the cache lines in which [`store`](Self::store) will put what few rows bring: one position's numbers are
    /// scattered over hundreds, of which the weights have left none in the cache.
    pub(super) fn fetch_places(&self, layer: usize, step: &Step) {
        if step.rows() >= WORTH_SHARING {
            return;
        }
        let layer = self.layer(layer);
        // A line holds sixteen outputs of as many inputs as fit into four bytes.
        let inputs = match self.kind {
            KvKind::F32 => 1,
            KvKind::Bf16 => 2,
            KvKind::Int8 => 4,
        };
        let panel = |len: usize| len / inputs * CACHE_LINE;
        for row in 0..step.rows() {
            let (block, entry) = entry(step, row);
            let block = self.blocks[block].values().as_ptr();
            for head in 0..layer.kv_heads {
                let keys = layer.offset + head * layer.head_len(self.kind);
                let values = keys + BLOCK / PANEL * panel(layer.stride);
                let fetch = |at: usize| prefetch(block.wrapping_add(at));
                let own = keys + entry / PANEL * panel(layer.stride);
                (own..own + panel(layer.stride)).step_by(CACHE_LINE).for_each(fetch);
                let own = values + entry / inputs * CACHE_LINE;
                (0..layer.stride / PANEL).for_each(|index| fetch(own + index * panel(BLOCK)));
            }
        }
    }

    /// Stores the keys and values of all rows of a step, where `numbers` finds them: (2 · kv_heads · head_dim,) a row.
    pub(super) fn store<'a, I: Isa>(
        &mut self,
        isa: I,
        threads: &mut Threads,
        layer: usize,
        step: &Step,
        numbers: &(dyn Fn(usize) -> &'a [f32] + Sync),
    ) {
        let layer = self.layers[layer].as_ref().expect("a layer that keeps keys and values");
        let (kind, dim, len) = (self.kind, layer.head_dim, layer.head_len(self.kind));
        let store = |region: &mut [u8], row: usize, head: usize| {
            let numbers = numbers(row);
            assert_eq!(numbers.len(), 2 * layer.kv_heads * dim, "width of the keys and values");
            let (keys, values) = numbers.split_at(layer.kv_heads * dim);
            let part = head * dim..(head + 1) * dim;
            let (key, value) = (&keys[part.clone()], &values[part]);
            let place = (layer.stride, entry(step, row).1);
            match kind {
                KvKind::F32 => store_head::<I, f32>(isa, region, place, key, value),
                KvKind::Bf16 => store_head::<I, bf16>(isa, region, place, key, value),
                KvKind::Int8 => store_quantized(isa, region, place, key, value),
            }
        };
        let region = |head: usize| layer.offset + head * len..layer.offset + (head + 1) * len;
        if step.rows() < WORTH_SHARING {
            for row in 0..step.rows() {
                let block = self.blocks[entry(step, row).0].values_mut();
                (0..layer.kv_heads).for_each(|head| store(&mut block[region(head)], row, head));
            }
        } else {
            let blocks: Vec<Parts<'_, u8>> =
                self.blocks.iter_mut().map(|block| Parts::new(block.values_mut())).collect();
            threads.run(layer.kv_heads, &|head| {
                for row in 0..step.rows() {
                    // SAFETY: each head belongs to one task.
                    store(unsafe { blocks[entry(step, row).0].part(region(head)) }, row, head);
                }
            });
        }
    }

    /// One head of one block.
    pub(super) fn head<W: Stored>(&self, layer: &Layer, head: usize, block: u32) -> Head<'_, W> {
        let len = layer.head_len(self.kind);
        let at = layer.offset + head * len;
        let (numbers, notes) = self.blocks[block as usize].values()[at..at + len].split_at(len - NOTES);
        let (keys, values) = bytemuck::cast_slice(numbers).split_at(layer.count());
        Head { keys, values, faulty: notes[0] != 0 }
    }

    /// One head of one block, where the cache is quantised.
    pub(super) fn quantized_head(&self, layer: &Layer, head: usize, block: u32) -> QuantizedHead<'_> {
        let len = layer.head_len(self.kind);
        let at = layer.offset + head * len;
        let (numbers, rest) = self.blocks[block as usize].values()[at..at + len].split_at(2 * layer.count());
        let (keys, values) = bytemuck::cast_slice(numbers).split_at(layer.count());
        let (key_scales, rest) = rest.split_at(4 * BLOCK);
        let (key_sums, rest) = rest.split_at(4 * BLOCK);
        QuantizedHead {
            keys,
            values,
            key_scales: bytemuck::cast_slice::<u8, f32>(key_scales).as_chunks().0,
            key_sums: bytemuck::cast_slice::<u8, i32>(key_sums).as_chunks().0,
            value_scales: bytemuck::cast_slice(&rest[..4 * BLOCK]),
        }
    }
}

/// The block of a row and its place there.
fn entry(step: &Step, row: usize) -> (usize, usize) {
    let position = step.positions[row] as usize;
    (step.tables[step.slots[row] as usize][position / BLOCK] as usize, position % BLOCK)
}

/// Stores one position of one head. The first of a block finds whatever another sequence left there, and clears it:
/// products run over all positions of a block, and a weight of zero makes a zero of any number but not of NaN.
fn store_head<I: Isa, W: Stored>(
    isa: I,
    region: &mut [u8],
    (stride, entry): (usize, usize),
    key: &[f32],
    value: &[f32],
) {
    if entry == 0 {
        region.fill(0);
    }
    let (numbers, notes) = region.split_at_mut(region.len() - NOTES);
    let (keys, values) = bytemuck::cast_slice_mut::<u8, W>(numbers).split_at_mut(BLOCK * stride);
    let panel = &mut keys[entry / PANEL * PANEL * stride..][..PANEL * stride];
    let finite = isa.run(|| {
        let mut finite = true;
        for (chunk, key) in key.chunks(PANEL).enumerate() {
            let numbers = sixteen(key, &mut finite);
            for (k, number) in (chunk * PANEL..).zip(&numbers[..key.len()]) {
                panel[place::<W>(entry, k)] = *number;
            }
        }
        for (panel, value) in values.chunks_exact_mut(PANEL * BLOCK).zip(value.chunks(PANEL)) {
            let numbers = sixteen(value, &mut finite);
            for (lane, number) in numbers[..value.len()].iter().enumerate() {
                panel[place::<W>(lane, entry)] = *number;
            }
        }
        finite
    });
    if !finite {
        notes[0] = 1;
    }
}

/// Up to sixteen numbers in the form of the cache, and whether they are finite: in vectors, before they are scattered.
#[inline(always)]
fn sixteen<W: Stored>(x: &[f32], finite: &mut bool) -> [W; PANEL] {
    let mut lanes = [0.0; PANEL];
    lanes[..x.len()].copy_from_slice(x);
    let mut numbers = [W::zeroed(); PANEL];
    let mut faults = 0_u32;
    for (number, lane) in numbers.iter_mut().zip(&lanes) {
        *number = W::nearest(*lane);
        faults |= u32::from(!number.number().is_finite());
    }
    *finite &= faults == 0;
    numbers
}

/// The same in a quantised cache, which holds no NaN but in scales: nothing has to be cleared for products, whose
/// weights are zero for what is not seen.
fn store_quantized<I: Isa>(
    isa: I,
    region: &mut [u8],
    (stride, entry): (usize, usize),
    key: &[f32],
    value: &[f32],
) {
    let (numbers, rest) = region.split_at_mut(2 * BLOCK * stride);
    let (keys, values) = bytemuck::cast_slice_mut::<u8, i8>(numbers).split_at_mut(BLOCK * stride);
    let (key_scales, rest) = rest.split_at_mut(4 * BLOCK);
    let (key_sums, rest) = rest.split_at_mut(4 * BLOCK);
    let mut quantized = vec![0; key.len()];
    let scale = quantize_weights(isa, key, &mut quantized).unwrap_or(f32::NAN);
    bytemuck::cast_slice_mut(key_scales)[entry] = scale;
    bytemuck::cast_slice_mut(key_sums)[entry] =
        quantized.iter().map(|number| i32::from(*number)).sum::<i32>();
    let panel = &mut keys[entry / PANEL * PANEL * stride..][..PANEL * stride];
    for (k, number) in quantized.iter().enumerate() {
        panel[place_in_four(entry, k)] = *number;
    }
    let scale = quantize_weights(isa, value, &mut quantized).unwrap_or(f32::NAN);
    bytemuck::cast_slice_mut(&mut rest[..4 * BLOCK])[entry] = scale;
    for (panel, numbers) in values.chunks_exact_mut(PANEL * BLOCK).zip(quantized.chunks(PANEL)) {
        for (lane, number) in numbers.iter().enumerate() {
            panel[place_in_four(lane, entry)] = *number;
        }
    }
}

/// Where input `k` of an output stands in its quantised panel.
fn place_in_four(output: usize, k: usize) -> usize {
    (k / GROUP * PANEL + output % PANEL) * GROUP + k % GROUP
}
