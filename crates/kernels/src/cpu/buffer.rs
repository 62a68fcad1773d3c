//! Memory for weights, activations and caches.

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use memmap2::MmapMut;

use crate::bytes::Section;
use crate::{Error, Result};

/// A huge page.
const HUGE: usize = 2 << 20;

/// Numbers in pages of their own, all zero at first, aligned to a page; from two mebibytes on in huge pages where the
/// system has them, since reading weights at full bandwidth would otherwise spend a tenth of the time on address
/// translation. Or numbers of a file, where they lie.
#[derive(Debug)]
pub struct Buffer<T> {
    memory: Memory,
    marker: PhantomData<T>,
}

#[derive(Debug)]
enum Memory {
    Empty,
    Own(MmapMut, Range<usize>), // and the bytes of it that count
    File(Section),
}

impl<T: Pod> Buffer<T> {
    /// Room for `len` numbers; `what` names them in the error.
    pub fn new(len: usize, what: &str) -> Result<Self> {
        if len == 0 {
            return Ok(Self { memory: Memory::Empty, marker: PhantomData });
        }
        let out_of_memory = |bytes| Error::OutOfMemory { what: what.to_owned(), bytes };
        let bytes = len.checked_mul(size_of::<T>()).ok_or_else(|| out_of_memory(usize::MAX))?;
        // The system gives huge pages to whole ones only, and starts maps anywhere. Pages that nobody touches cost nothing.
        let room = if bytes < HUGE { 0 } else { HUGE };
        let whole = bytes.checked_add(room).ok_or_else(|| out_of_memory(usize::MAX))?;
        let map = MmapMut::map_anon(whole).map_err(|_| out_of_memory(bytes))?;
        let start = if room == 0 { 0 } else { map.as_ptr().align_offset(HUGE) };
        // Only a wish: small pages serve as well, a little slower. The rest behind the last huge page stays small, also where
        // the system is free with huge pages: what they hold beyond the numbers would be memory that nobody can use.
        #[cfg(target_os = "linux")]
        {
            let huge = bytes / HUGE * HUGE;
            let _ = map.advise_range(memmap2::Advice::HugePage, start, huge);
            if room > 0 {
                let _ = map.advise_range(memmap2::Advice::NoHugePage, start + huge, whole - start - huge);
            }
        }
        Ok(Self { memory: Memory::Own(map, start..start + bytes), marker: PhantomData })
    }

    /// The numbers of a part of a file; none where it holds no whole number of them or begins between two.
    pub fn of_file(section: Section) -> Option<Self> {
        bytemuck::try_cast_slice::<u8, T>(&section).ok()?;
        Some(Self { memory: Memory::File(section), marker: PhantomData })
    }

    /// All numbers.
    pub fn values(&self) -> &[T] {
        match &self.memory {
            Memory::Empty => &[],
            Memory::Own(map, bytes) => bytemuck::cast_slice(&map[bytes.clone()]),
            Memory::File(section) => bytemuck::cast_slice(section),
        }
    }

    /// All numbers, to write.
    ///
    /// # Panics
    /// Where they are those of a file.
    pub fn values_mut(&mut self) -> &mut [T] {
        match &mut self.memory {
            Memory::Empty => &mut [],
            Memory::Own(map, bytes) => bytemuck::cast_slice_mut(&mut map[bytes.clone()]),
            Memory::File(_) => panic!("numbers of a file are not written"),
        }
    }
}

/// A slice of which several threads write different parts at once.
pub struct Parts<'a, T> {
    start: *mut T,
    len: usize,
    marker: PhantomData<&'a mut [T]>,
}

// SAFETY: threads get at the numbers only through `part`, whose callers keep the parts apart.
unsafe impl<T: Send> Sync for Parts<'_, T> {}

impl<'a, T> Parts<'a, T> {
    /// All of `slice`, to be handed out in parts.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), marker: PhantomData }
    }

    /// One part.
    ///
    /// # Safety
    /// No two parts that overlap may be alive at once.
    #[expect(clippy::mut_from_ref, reason = "the caller keeps the parts apart")]
    pub unsafe fn part(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "part outside of the slice");
        // SAFETY: the range lies inside the slice, as just checked, and the caller lets no other part overlap it.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.end - range.start) }
    }
}
