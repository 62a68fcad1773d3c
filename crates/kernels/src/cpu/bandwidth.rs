//! How fast memory can be read: the limit that decoding is measured against.

use std::hint::black_box;
use std::time::Instant;

use super::buffer::{Buffer, Parts};
use super::isa::prefetch;
use super::threads::Threads;
use crate::{Error, Result};

/// Bytes that are read: far more than any cache holds.
const BYTES: usize = 640 << 20;
/// Bytes of one task.
const TASK: usize = 1 << 20;
/// Reads before the first that counts, and reads that count.
const ROUNDS: (usize, usize) = (1, 5);

/// Bytes a second that `threads` threads read from memory, in huge pages where the system has them: the median of
/// several reads of 640 MiB.
///
/// # Errors
/// When there is no memory or no thread to be had.
pub fn read_bandwidth(threads: usize) -> Result<f64> {
    let mut pool = Threads::new(threads)
        .map_err(|error| Error::Failed(format!("cannot start {threads} threads: {error}")))?;
    let mut buffer = Buffer::<u64>::new(BYTES / size_of::<u64>(), "measuring the bandwidth")?;
    let chunk = TASK / size_of::<u64>();
    let tasks = BYTES / TASK;
    let parts = Parts::new(buffer.values_mut());
    // Pages that were never written are all the same page of zeros, and never leave the cache.
    // SAFETY: each task has its own chunk.
    pool.run(tasks, &|task| unsafe { parts.part(task * chunk..(task + 1) * chunk) }.fill(1));
    let numbers = buffer.values();
    let mut median_of = |sum: &(dyn Fn(&[u64]) -> u64 + Sync)| {
        let mut seconds = Vec::new();
        for round in 0..ROUNDS.0 + ROUNDS.1 {
            let start = Instant::now();
            pool.run(tasks, &|task| {
                black_box(sum(&numbers[task * chunk..(task + 1) * chunk]));
            });
            if round >= ROUNDS.0 {
                seconds.push(start.elapsed().as_secs_f64());
            }
        }
        seconds.sort_by(f64::total_cmp);
        seconds[seconds.len() / 2]
    };
    // Which of the two is faster differs from processor to processor; the limit is what the better one gets.
    let seconds = median_of(&sum::<false>).min(median_of(&sum::<true>));
    Ok(BYTES as f64 / seconds)
}

/// Wide enough lanes that the additions never wait for each other.
fn sum<const PREFETCH: bool>(numbers: &[u64]) -> u64 {
    let mut lanes = [0_u64; 32];
    for chunk in numbers.as_chunks::<32>().0 {
        if PREFETCH {
            for line in 0..4 {
                prefetch(chunk.as_ptr().wrapping_add(AHEAD + 8 * line).cast());
            }
        }
        for (lane, number) in lanes.iter_mut().zip(chunk) {
            *lane ^= number;
        }
    }
    lanes.iter().fold(0, |a, b| a ^ b)
}

/// How far ahead memory is asked for, in numbers: the distance of the products.
const AHEAD: usize = 4096 / size_of::<u64>();
