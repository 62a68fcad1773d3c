//! Engines that stay loaded: callers who ask for the same checkpoint, to be run in the same way, share one.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use crate::{CacheMode, Checkpoint, Engine, Options, Result, Verify};

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
    key: Key,
    /// Held by the caller who loads; none until it is there, and for ever where that failed.
    loaded: Mutex<Option<Engine>>,
}

/// What makes two engines the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Key {
    path: Option<PathBuf>,
    options: Options,
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
        let key = Key::new(path, options);
        if let Some(slot) = self.find(&key)
            && let Some(engine) = slot.current()
        {
            return Ok(engine);
        }
        // What can be refused without weights is refused before anything is let go for it.
        let checkpoint = Checkpoint::open(key.path.as_deref())?;
        loop {
            let slot = self.reserve(&key);
            let mut loaded = slot.lock();
            if let Some(engine) = loaded.as_ref().filter(|engine| engine.is_current()) {
                return Ok(engine.clone());
            }
            // Whoever was waited for may have failed, and the slot be forgotten.
            if !self.holds(&slot) {
                continue;
            }
            // A failure is forgotten before those who wait for it can go on.
            return load(&checkpoint, options, &mut loaded).inspect_err(|_| self.forget(&slot));
        }
    }

    /// How many engines are loaded, or being loaded.
    pub fn count(&self) -> usize {
        self.slots().len()
    }

    /// Lets all engines go.
    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.slots());
        // One that is being loaded is its loader's.
        let loaded = all.iter().filter_map(|slot| slot.try_lock()?.take());
        loaded.for_each(let_go);
    }

    fn slots(&self) -> MutexGuard<'_, Vec<Arc<Slot>>> {
        // Nothing is left half done in there by a caller who panicked.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The slot of such engines, if there is one, which counts as used now.
    fn find(&self, key: &Key) -> Option<Arc<Slot>> {
        use_in(&mut self.slots(), key)
    }

    fn holds(&self, slot: &Arc<Slot>) -> bool {
        self.slots().iter().any(|other| Arc::ptr_eq(other, slot))
    }

    /// The same, or a new one, for which the least recently used ones make room.
    fn reserve(&self, key: &Key) -> Arc<Slot> {
        let mut slots = self.slots();
        if let Some(slot) = use_in(&mut slots, key) {
            return slot;
        }
        let slot = Arc::new(Slot { key: key.clone(), loaded: Mutex::default() });
        // One that is being loaded, or just asked for, is in use, however long ago that began.
        let mut old = Vec::new();
        let mut extra = (slots.len() + 1).saturating_sub(self.most);
        slots.retain(|slot| {
            let idle = if extra > 0 { slot.try_lock() } else { None };
            extra -= usize::from(idle.is_some());
            idle.is_none_or(|mut loaded| {
                old.extend(loaded.take());
                false
            })
        });
        slots.push(slot.clone());
        drop(slots);
        old.into_iter().for_each(let_go);
        slot
    }

    fn forget(&self, slot: &Arc<Slot>) {
        self.slots().retain(|other| !Arc::ptr_eq(other, slot));
    }
}

/// The slot for such engines in `slots`, moved to their end.
fn use_in(slots: &mut [Arc<Slot>], key: &Key) -> Option<Arc<Slot>> {
    let at = slots.iter().position(|slot| slot.key == *key)?;
    slots[at..].rotate_left(1);
    slots.last().cloned()
}

/// Loads an engine into a slot.
fn load(checkpoint: &Checkpoint, options: &Options, slot: &mut Option<Engine>) -> Result<Engine> {
    // Of files that have changed, the old engine makes room for the new one.
    if let Some(old) = slot.take() {
        let_go(old);
    }
    let engine = Engine::start(checkpoint, options, &mut |_, _| ())?;
    *slot = Some(engine.clone());
    Ok(engine)
}

/// Drops an engine, and waits a moment for its memory, which the next one needs, unless requests keep it.
fn let_go(engine: Engine) {
    let is_gone = engine.ending();
    let started = Instant::now();
    // It may have packed weights to bring to a slow disk first.
    let dropped = std::thread::Builder::new().spawn(move || drop(engine));
    while dropped.is_ok() && !is_gone() && started.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Key {
    fn new(path: Option<&Path>, options: &Options) -> Self {
        // A name on the hub is no path, and stands for itself.
        let full = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // How weights were found makes no difference to what they are.
        let options = Options { cache: CacheMode::Off, verify: Verify::Quick, ..options.clone() };
        Self { path: path.map(full), options }
    }
}

impl Slot {
    fn lock(&self) -> MutexGuard<'_, Option<Engine>> {
        self.loaded.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its engine, waited for if it is being loaded; none where it is not there or its files have changed.
    fn current(&self) -> Option<Engine> {
        let loaded = self.lock();
        loaded.as_ref().filter(|engine| engine.is_current()).cloned()
    }

    /// As [`Self::lock`]; none where somebody is loading it or looking at it.
    fn try_lock(&self) -> Option<MutexGuard<'_, Option<Engine>>> {
        match self.loaded.try_lock() {
            Ok(loaded) => Some(loaded),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl std::fmt::Debug for Slot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Slot").field("key", &self.key).finish_non_exhaustive()
    }
}
