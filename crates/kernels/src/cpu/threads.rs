//! A pool of threads for stages that last microseconds.
//!
//! A stage is a number of tasks. Each thread has a run of neighbours for its own, which it takes in order, so that what
//! they read is one stretch of memory; when it has none left it takes the last of another's. So a thread that the system
//! has put aside delays nothing but the task in hand, and one that has not come is not waited for. Between stages
//! workers spin for a moment, because the next stage usually follows at once, and then sleep.

use std::any::Any;
use std::cell::UnsafeCell;
use std::hint::spin_loop;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a worker waits awake for the next stage: longer than the pauses inside a step, shorter than a time slice.
const SPIN: Duration = Duration::from_micros(100);

/// The pool. The calling thread works too, so `Threads::new(n)` starts `n - 1` others.
pub struct Threads {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
}

struct Shared {
    /// (stage number << 32) | (open << 31) | workers inside the stage.
    gate: AtomicU64,
    stage: UnsafeCell<Stage>,
    runs: Box<[Run]>, // (threads,)
    failure: Mutex<Option<Box<dyn Any + Send>>>,
    sleepers: AtomicUsize,
    sleep: Mutex<()>,
    wake: Condvar,
    exit: AtomicBool,
}

/// What the tasks of the current stage do.
#[derive(Clone, Copy)]
struct Stage {
    task: *const (dyn Fn(usize) + Sync),
}

/// The tasks that one thread has not begun: (first << 32) | end. On cache lines of its own, since all others ask their
/// own run far more often than this one.
#[derive(Default)]
#[repr(align(128))]
struct Run(AtomicU64);

impl Run {
    fn set(&self, tasks: Range<usize>) {
        self.0.store((tasks.start as u64) << 32 | tasks.end as u64, SeqCst);
    }

    /// The first task.
    fn first(&self) -> Option<usize> {
        self.take(|first, end| (first, (first + 1, end)))
    }

    /// The last task.
    fn last(&self) -> Option<usize> {
        self.take(|first, end| (end - 1, (first, end - 1)))
    }

    fn take(&self, from: impl Fn(u64, u64) -> (u64, (u64, u64))) -> Option<usize> {
        let mut run = self.0.load(SeqCst);
        loop {
            let (first, end) = (run >> 32, run & u64::from(u32::MAX));
            if first == end {
                return None;
            }
            let (task, (first, end)) = from(first, end);
            match self.0.compare_exchange_weak(run, first << 32 | end, SeqCst, SeqCst) {
                Ok(_) => return Some(task as usize),
                Err(other) => run = other,
            }
        }
    }
}

// SAFETY: `stage` is written by `run` while the gate is closed and no worker is inside, and read by workers that
// entered through the open gate; the gate's atomic operations order the two. Its pointer leads to a `Sync` closure.
unsafe impl Sync for Shared {}
// SAFETY: as above; nothing in it belongs to one thread.
unsafe impl Send for Shared {}

const OPEN: u64 = 1 << 31;
const INSIDE: u64 = OPEN - 1;

impl Threads {
    /// A pool of `count` threads, the caller counted in.
    ///
    /// # Errors
    /// That of the system when it cannot start a thread.
    pub fn new(count: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            gate: AtomicU64::new(0),
            stage: UnsafeCell::new(Stage { task: &|_: usize| () }),
            runs: (0..count.max(1)).map(|_| Run::default()).collect(),
            failure: Mutex::new(None),
            sleepers: AtomicUsize::new(0),
            sleep: Mutex::new(()),
            wake: Condvar::new(),
            exit: AtomicBool::new(false),
        });
        let mut threads = Self { shared, workers: Vec::new() };
        for index in 1..count {
            let shared = Arc::clone(&threads.shared);
            let builder = std::thread::Builder::new().name(format!("whin-{index}"));
            threads.workers.push(builder.spawn(move || shared.work(index))?);
        }
        Ok(threads)
    }

    /// How many threads work, the caller counted in.
    pub fn count(&self) -> usize {
        self.workers.len() + 1
    }

    /// Calls `task(i)` for each `i` below `tasks`, on all threads, and returns when all calls have returned.
    ///
    /// # Panics
    /// When a task does, after the others have ended.
    pub fn run(&mut self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        if tasks <= 1 || self.workers.is_empty() {
            return (0..tasks).for_each(task);
        }
        assert!(u32::try_from(tasks).is_ok(), "tasks of a stage");
        let shared = &*self.shared;
        // SAFETY: only the lifetime changes. Workers call the closure inside the gate, and this function does not
        // return before the gate is closed and empty.
        let task = unsafe {
            std::mem::transmute::<*const (dyn Fn(usize) + Sync + '_), *const (dyn Fn(usize) + Sync + 'static)>(
                task,
            )
        };
        // SAFETY: the gate is closed and empty, since `run` takes `&mut self` and leaves it so.
        unsafe { *shared.stage.get() = Stage { task } };
        for (index, run) in shared.runs.iter().enumerate() {
            let count = shared.runs.len();
            run.set(index * tasks / count..(index + 1) * tasks / count);
        }
        let number = (shared.gate.load(SeqCst) >> 32).wrapping_add(1) << 32;
        shared.gate.store(number | OPEN, SeqCst);
        // A worker counts itself as a sleeper before it looks at the gate for the last time, so one of the two sees
        // the other; the lock makes sure that it is truly asleep when it is woken.
        if shared.sleepers.load(SeqCst) > 0 {
            drop(lock(&shared.sleep));
            shared.wake.notify_all();
        }
        // SAFETY: this thread wrote the stage and keeps it until the end of this function.
        unsafe { shared.take_tasks(0) };
        shared.gate.fetch_and(!OPEN, SeqCst);
        let mut rounds = 0_u32;
        while shared.gate.load(SeqCst) & INSIDE > 0 {
            rounds += 1;
            // Soon it is likelier that the other has lost its core than that it still computes: offer it this one.
            if rounds > 200 { std::thread::yield_now() } else { spin_loop() }
        }
        let failure = lock(&shared.failure).take();
        if let Some(failure) = failure {
            resume_unwind(failure);
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shared.exit.store(true, SeqCst);
        drop(lock(&self.shared.sleep));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            // Panics of tasks are caught, so a worker has nothing to report.
            let _ = worker.join();
        }
    }
}

impl Shared {
    fn work(&self, index: usize) {
        let mut done = 0;
        while let Some(stage) = self.enter(done) {
            done = stage;
            // SAFETY: this worker is inside the gate.
            unsafe { self.take_tasks(index) };
            self.gate.fetch_sub(1, SeqCst);
        }
    }

    /// Waits for a stage other than `done`, enters it and returns its number; none when the pool ends.
    fn enter(&self, done: u64) -> Option<u64> {
        loop {
            let start = Instant::now();
            let mut rounds = 0_u32;
            loop {
                if self.exit.load(SeqCst) {
                    return None;
                }
                let gate = self.gate.load(SeqCst);
                if self.is_new(gate, done) {
                    if self.gate.compare_exchange(gate, gate + 1, SeqCst, SeqCst).is_ok() {
                        return Some(gate >> 32);
                    }
                    continue;
                }
                rounds += 1;
                if rounds.is_multiple_of(64) && start.elapsed() > SPIN {
                    break;
                }
                spin_loop();
            }
            let mut guard = lock(&self.sleep);
            self.sleepers.fetch_add(1, SeqCst);
            while !self.exit.load(SeqCst) && !self.is_new(self.gate.load(SeqCst), done) {
                guard = self.wake.wait(guard).unwrap_or_else(PoisonError::into_inner);
            }
            self.sleepers.fetch_sub(1, SeqCst);
        }
    }

    fn is_new(&self, gate: u64, done: u64) -> bool {
        gate & OPEN > 0 && gate >> 32 != done
    }

    /// Calls tasks until none is left, first those of thread `index`.
    ///
    /// # Safety
    /// The stage must be alive: the caller is inside the gate, or is the thread that opened it.
    unsafe fn take_tasks(&self, index: usize) {
        // SAFETY: nobody writes the stage while the gate is open or a worker is inside.
        let Stage { task } = unsafe { *self.stage.get() };
        // SAFETY: the closure outlives the stage, because `run` waits for all who are inside.
        let task = unsafe { &*task };
        let others = self.runs[index + 1..].iter().chain(&self.runs[..index]);
        let calls = AssertUnwindSafe(|| {
            while let Some(index) = self.runs[index].first() {
                task(index);
            }
            for other in others {
                while let Some(index) = other.last() {
                    task(index);
                }
            }
        });
        if let Err(failure) = catch_unwind(calls) {
            self.runs.iter().for_each(|run| run.set(0..0));
            *lock(&self.failure) = Some(failure);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_task_runs_once() {
        for count in [1, 2, 3, 8] {
            let mut threads = Threads::new(count).unwrap();
            for round in 0..2_000_usize {
                let tasks = round % 37;
                let calls: Vec<AtomicUsize> = (0..tasks).map(|_| AtomicUsize::new(0)).collect();
                threads.run(tasks, &|i| {
                    calls[i].fetch_add(1, SeqCst);
                });
                assert!(calls.iter().all(|c| c.load(SeqCst) == 1), "{count} threads, {tasks} tasks");
                if round % 500 == 0 {
                    std::thread::sleep(SPIN * 3); // let the workers fall asleep
                }
            }
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_pool_lives_on() {
        let mut threads = Threads::new(3).unwrap();
        let caught =
            catch_unwind(AssertUnwindSafe(|| threads.run(100, &|i| assert_ne!(i, 50, "task fifty"))));
        assert!(caught.is_err());
        let sum = AtomicUsize::new(0);
        threads.run(10, &|i| {
            sum.fetch_add(i, SeqCst);
        });
        assert_eq!(sum.load(SeqCst), 45);
    }
}
