//! Engines that stay loaded: callers who ask for the same checkpoint, to be run in the same way, share one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::cache::Sources;
use crate::checkpoint::Source;
use crate::{Checkpoint, Engine, Options, Result};

/// How long the memory of an engine that was let go is waited for, where no request keeps it.
const PATIENCE: Duration = Duration::from_secs(1);

/// Loaded engines by checkpoint and options. Beyond a number of them the one that was asked for the longest time ago is
/// let go; requests that run on it end in peace, and so do those of callers who still hold it.
///
/// ```
/// use whin::{Engines, Options};
///
/// let engines = Engines::new(2);
/// let one = engines.get(None, &Options::default())?;
/// let same = engines.get(None, &Options::default())?;
/// assert!(same.shares_weights_with(&one));
/// # Ok::<(), whin::Error>(())
/// ```
#[derive(Debug)]
pub struct Engines {
    most: usize,
    slots: Mutex<Vec<Arc<Slot>>>, // the most recently used last
}

/// A place for one engine.
struct Slot {
    path: Option<PathBuf>,
    options: Options,
    /// Held by the caller who loads; none until it is there, and for ever where that failed.
    loaded: Mutex<Option<Loaded>>,
}

struct Loaded {
    engine: Engine,
    /// The files that it was loaded from; none for the built-in model.
    files: Option<Sources>,
}

impl Engines {
    /// Room for `most` engines, at least one.
    pub fn new(most: usize) -> Self {
        Self { most: most.max(1), slots: Mutex::default() }
    }

    /// The engine for the checkpoint at `path`, or for the built-in model: one that is loaded, if its files are still
    /// as they were, else a new one. Of several callers who ask at once, one loads and the others wait; callers who ask
    /// for something else do not.
    ///
    /// # Errors
    /// As [`Engine::load`]. Failures are not kept: the next caller tries again.
    pub fn get(&self, path: Option<&Path>, options: &Options) -> Result<Engine> {
        if let Some(slot) = self.find(path, options)
            && let Some(engine) = slot.current()
        {
            return Ok(engine);
        }
        // What can be refused without weights is refused before anything is let go for it.
        let checkpoint = Checkpoint::open(path)?;
        let slot = self.reserve(path, options);
        let mut loaded = slot.lock();
        if let Some(loaded) = loaded.as_ref().filter(|loaded| loaded.is_current()) {
            return Ok(loaded.engine.clone());
        }
        // Of files that have changed, the old engine makes room for the new one.
        if let Some(old) = loaded.take() {
            old.let_go();
        }
        let files = files(&checkpoint);
        let engine = match Engine::start(&checkpoint, options, &mut |_, _| ()) {
            Ok(engine) => engine,
            Err(error) => {
                drop(loaded);
                self.forget(&slot);
                return Err(error);
            }
        };
        *loaded = Some(Loaded { engine: engine.clone(), files });
        Ok(engine)
    }

    /// How many engines are loaded, or being loaded.
    pub fn count(&self) -> usize {
        self.slots().len()
    }

    /// Lets all engines go.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.slots());
        all.iter().for_each(|slot| slot.let_go());
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        // Nothing is left half done in there by a caller who panicked.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of such engines, if there is one, which counts as used now.
    fn find(&self, path: Option<&Path>, options: &Options) -> Option<Arc<Slot>> {
        use_in(&mut self.slots(), path, options)
    }

    /// The same, or a new one, for which the least recently used ones make room.
    fn reserve(&self, path: Option<&Path>, options: &Options) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = use_in(&mut slots, path, options) {
            return slot;
        }
        let (path, options) = (path.map(Path::to_owned), options.clone());
        let slot = Arc::new(Slot { path, options, loaded: Mutex::default() });
        slots.push(slot.clone());
        let extra = slots.len().saturating_sub(self.most);
        let old: Vec<Arc<Slot>> = slots.drain(..extra).collect();
        drop(slots);
        old.iter().for_each(|slot| slot.let_go());
        slot
    }

    fn forget(&self, slot: &Arc<Slot>) {
        self.slots().retain(|other| !Arc::ptr_eq(other, slot));
    }
}

/// The slot for such engines in `slots`, moved to their end.
fn use_in(slots: &mut [Arc<Slot>], path: Option<&Path>, options: &Options) -> Option<Arc<Slot>> {
    let at = slots.iter().position(|slot| slot.path.as_deref() == path && slot.options == *options)?;
    slots[at..].rotate_left(1);
    slots.last().cloned()
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Loaded>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its engine, waited for if it is being loaded; none where it is not there or its files have changed.
    fn current(&self) -> Option<Engine> {
        let loaded = self.lock();
        loaded.as_ref().filter(|loaded| loaded.is_current()).map(|loaded| loaded.engine.clone())
    }

    fn let_go(&self) {
        // One that is being loaded is its loader's.
        let loaded = self.loaded.try_lock().ok().and_then(|mut loaded| loaded.take());
        if let Some(loaded) = loaded {
            loaded.let_go();
        }
    }
}

impl Loaded {
    /// Drops the engine, and waits a moment for its memory, which the next one needs, unless requests keep it.
    fn let_go(self) {
        let is_gone = self.engine.end();
        let started = Instant::now();
        while !is_gone() && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn is_current(&self) -> bool {
        self.files.as_ref().is_none_or(Sources::are_unchanged)
    }
}

fn files(checkpoint: &Checkpoint) -> Option<Sources> {
    let Source::Folder(folder) = checkpoint.source() else { return None };
    let shards = checkpoint.tensors().ok()?.files().to_vec();
    Sources::look(checkpoint.source(), folder, &shards).ok()
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("path", &self.path).finish_non_exhaustive()
    }
}
