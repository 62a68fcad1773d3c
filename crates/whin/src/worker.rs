//! The loop that owns the backend: it takes requests, shares out each step, runs the forward pass and hands the
//! results to the sequences.

use std::collections::VecDeque;
use std::sync::mpsc::Receiver;

use whin_kernels::{BLOCK, Backend, KvKind, Step};

use crate::blocks::Blocks;
use crate::memory;
use crate::model::forward::{Run, forward};
use crate::model::rope::Rope;
use crate::model::spec::Spec;
use crate::model::weights::Model;
use crate::scheduler::{Limits, Progress, Share, schedule};
use crate::sequence::{Job, Sequence};
use crate::{Error, ErrorKind, Result};

/// Sequences that run at once; others wait their turn.
pub(crate) const MAX_SEQUENCES: usize = 64;

/// Everything that computes.
pub(crate) struct Worker<B: Backend> {
    backend: B,
    spec: Spec,
    model: Model<B>,
    run: Run<B>,
    blocks: Blocks,
    block_bytes: usize,
    states: Blocks,
    /// Of the state of one sequence; none where no layer has one.
    state_bytes: Option<usize>,
    waiting: VecDeque<Job>,
    sequences: Vec<Sequence>,
    limits: Limits,
}

impl<B: Backend> Worker<B> {
    /// A worker whose steps hold up to `rows` rows and whose cache holds `kv`.
    pub fn new(mut backend: B, spec: Spec, model: Model<B>, rows: usize, kv: KvKind) -> Result<Self> {
        // Each sequence that is answering needs a row of every step, and its logits.
        let limits = Limits { rows, wanted: rows.min(MAX_SEQUENCES) };
        let cache = spec.cache_shape(kv);
        let run = Run::new(&mut backend, &spec, &cache, (limits.rows, limits.wanted))?;
        let [blocks, states] = [Blocks::default(), Blocks::default()];
        let block_bytes = cache.bytes_per_position() * BLOCK;
        let state_bytes = cache.has_states().then(|| cache.bytes_per_state());
        let (waiting, sequences) = (VecDeque::new(), Vec::new());
        Ok(Self {
            backend,
            spec,
            model,
            run,
            blocks,
            block_bytes,
            states,
            state_bytes,
            waiting,
            sequences,
            limits,
        })
    }

    /// Works until nobody can send requests any more and the last one is done.
    pub fn serve(mut self, jobs: &Receiver<Job>) {
        while self.receive(jobs) {
            self.step();
        }
    }

    /// Takes in new requests, waiting for one where there is nothing to do, and lets go of those that were cancelled.
    /// Returns false when none is left and none can come.
    fn receive(&mut self, jobs: &Receiver<Job>) -> bool {
        if self.sequences.is_empty() && self.waiting.is_empty() {
            self.rest();
            match jobs.recv() {
                Ok(job) => self.waiting.push_back(job),
                Err(_) => return false,
            }
        }
        self.waiting.extend(jobs.try_iter());
        self.waiting.retain(|job| {
            let cancelled = job.canceller.is_cancelled();
            if cancelled {
                Sequence::end_unstarted(job);
            }
            !cancelled
        });
        self.drop_cancelled();
        let room = self.limits.wanted - self.sequences.len();
        let admitted = self.waiting.drain(..room.min(self.waiting.len()));
        self.sequences.extend(admitted.map(Sequence::new));
        true
    }

    /// Gives the memory of keys, values and states back while nobody needs it.
    fn rest(&mut self) {
        self.blocks.clear();
        self.backend.shrink(&mut self.run.state, 0);
        self.states.clear();
        self.backend.shrink_states(&mut self.run.state, 0);
    }

    fn drop_cancelled(&mut self) {
        for index in (0..self.sequences.len()).rev() {
            if self.sequences[index].canceller.is_cancelled() {
                self.sequences[index].cancel();
                self.remove(index);
            }
        }
    }

    fn remove(&mut self, index: usize) {
        let sequence = self.sequences.remove(index);
        self.blocks.give_back(sequence.table);
        self.states.give_back(sequence.state);
    }

    fn step(&mut self) {
        let progress = |sequence: &Sequence| Progress {
            remaining: sequence.remaining(),
            wants_every_row: sequence.wants_every_row(),
        };
        let progress: Vec<Progress> = self.sequences.iter().map(progress).collect();
        let shares = schedule(&progress, self.limits);
        let (shares, starved) = self.reserve(shares);
        if !shares.is_empty() {
            let step = self.build(&shares);
            forward(&mut self.backend, &self.spec, &self.model, &step, &mut self.run);
        }
        let mut ended = starved;
        ended.extend(self.deliver(&shares));
        ended.sort_unstable();
        for index in ended.into_iter().rev() {
            self.remove(index);
        }
        for border in self.spec.ropes.iter().filter_map(Rope::border) {
            self.sequences.iter_mut().for_each(|sequence| sequence.cross(border));
        }
    }

    /// Gives each sequence the blocks and the state that its share needs. A sequence that finds no memory ends with an error; the
    /// others go on. Returns the shares that can run and the sequences that have ended.
    fn reserve(&mut self, shares: Vec<Share>) -> (Vec<Share>, Vec<usize>) {
        let (mut granted, mut ended) = (Vec::new(), Vec::new());
        for share in shares {
            let result = self.reserve_one(share);
            let sequence = &mut self.sequences[share.sequence];
            match result {
                Ok(()) => {
                    sequence.start();
                    granted.push(share);
                }
                Err(error) => {
                    sequence.fail(error);
                    ended.push(share.sequence);
                }
            }
        }
        (granted, ended)
    }

    fn reserve_one(&mut self, share: Share) -> Result<()> {
        if let Some(bytes) = self.state_bytes
            && self.sequences[share.sequence].state.is_none()
        {
            let state = match self.states.take() {
                Some(state) => state,
                None => self.add_state(bytes)?,
            };
            self.sequences[share.sequence].state = Some(state);
        }
        for _ in 0..self.sequences[share.sequence].missing_blocks(share.rows) {
            let block = match self.blocks.take() {
                Some(block) => block,
                None => self.add_block(self.sequences[share.sequence].done)?,
            };
            self.sequences[share.sequence].table.push(block);
        }
        Ok(())
    }

    fn add_block(&mut self, position: usize) -> Result<u32> {
        let bytes = self.block_bytes;
        let count = self.blocks.count();
        let no_room = |free: Option<u64>| no_room_for_block(position, count * bytes, bytes, free);
        match memory::available() {
            Some(free) if free < bytes as u64 => return Err(no_room(Some(free))),
            _ => self.backend.grow(&mut self.run.state, count + 1).map_err(|_| no_room(None))?,
        }
        self.blocks.add();
        self.blocks.take().ok_or_else(|| no_room(None))
    }

    fn add_state(&mut self, bytes: usize) -> Result<u32> {
        let count = self.states.count();
        let no_room = |free: Option<u64>| no_room_for_state(count * bytes, bytes, free);
        match memory::available() {
            Some(free) if free < bytes as u64 => return Err(no_room(Some(free))),
            _ => self.backend.grow_states(&mut self.run.state, count + 1).map_err(|_| no_room(None))?,
        }
        self.states.add();
        self.states.take().ok_or_else(|| no_room(None))
    }

    fn build(&self, shares: &[Share]) -> Step {
        let mut step = Step::default();
        let mut spans = Vec::new();
        for (slot, share) in shares.iter().enumerate() {
            let sequence = &self.sequences[share.sequence];
            let rows = sequence.done..sequence.done + share.rows;
            for position in rows {
                let last = sequence.wants_every_row() || position + 1 == sequence.tokens.len();
                if last {
                    step.wanted.push(step.rows() as u32);
                }
                step.tokens.push(sequence.tokens[position]);
                step.positions.push(position as u32);
                step.slots.push(slot as u32);
                spans.push(sequence.span(position));
            }
            step.tables.push(sequence.table.clone());
            step.states.extend(sequence.state);
        }
        step.rotations = self.spec.ropes.iter().map(|rope| rope.rotation(&step.positions, &spans)).collect();
        step
    }

    /// Hands the logits to the sequences and returns those that have ended.
    fn deliver(&mut self, shares: &[Share]) -> Vec<usize> {
        let mut wanted = Vec::new(); // (sequence, first position, rows of logits)
        for share in shares {
            let sequence = &mut self.sequences[share.sequence];
            let first = sequence.done;
            sequence.done += share.rows;
            if sequence.wants_every_row() {
                wanted.push((share.sequence, first, share.rows));
            } else if sequence.done == sequence.tokens.len() {
                wanted.push((share.sequence, sequence.done - 1, 1));
            }
        }
        let delivered = if wanted.iter().all(|&(sequence, ..)| self.sequences[sequence].is_greedy()) {
            self.deliver_best(&wanted)
        } else {
            self.deliver_logits(&wanted)
        };
        delivered.unwrap_or_else(|error| {
            // The device is lost for all who took part in the step.
            for &Share { sequence, .. } in shares {
                self.sequences[sequence].fail(Error::new(error.kind(), error.to_string()));
            }
            shares.iter().map(|share| share.sequence).collect()
        })
    }

    fn deliver_best(&mut self, wanted: &[(usize, usize, usize)]) -> Result<Vec<usize>> {
        let best = self.backend.argmax(&self.run.logits, wanted.len())?;
        let mut ended = Vec::new();
        for (&(sequence, ..), best) in wanted.iter().zip(best) {
            if self.sequences[sequence].take_best(best.id, best.logit) {
                ended.push(sequence);
            }
        }
        Ok(ended)
    }

    fn deliver_logits(&mut self, wanted: &[(usize, usize, usize)]) -> Result<Vec<usize>> {
        let vocab = self.spec.vocab;
        let count: usize = wanted.iter().map(|(_, _, rows)| rows).sum();
        let mut logits = self.backend.read(&self.run.logits, count)?;
        let mut rest = logits.as_mut_slice();
        let mut ended = Vec::new();
        for &(sequence, first, rows) in wanted {
            let (own, others) = rest.split_at_mut(rows * vocab);
            rest = others;
            if self.sequences[sequence].take_logits(first, own, vocab) {
                ended.push(sequence);
            }
        }
        Ok(ended)
    }
}

fn no_room_for_state(held: usize, bytes: usize, free: Option<u64>) -> Error {
    let free = free.map_or(String::new(), |free| format!(", and {} are free", memory::size(free)));
    Error::new(
        ErrorKind::OutOfMemory,
        format!(
            "no memory for what recurrent layers remember of one more text: {} in use, {} more are needed{free}; run \
             fewer requests at once",
            memory::size(held as u64),
            memory::size(bytes as u64),
        ),
    )
}

fn no_room_for_block(position: usize, held: usize, bytes: usize, free: Option<u64>) -> Error {
    let free = free.map_or(String::new(), |free| format!(", and {} are free", memory::size(free)));
    Error::new(
        ErrorKind::OutOfMemory,
        format!(
            "no memory for the keys and values after position {position}: {} in use, {} more are needed for the next \
             {BLOCK} positions{free}; use a shorter text, or run fewer requests at once",
            memory::size(held as u64),
            memory::size(bytes as u64),
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use crate::model::Weights;
    use whin_kernels::reference::Reference;

    use super::*;
    use crate::Checkpoint;
    use crate::model::plan::Plan;
    use crate::request::{Canceller, Event, FinishReason};
    use crate::sequence::Goal;

    fn worker(rows: usize) -> Worker<Reference> {
        worker_of(Checkpoint::open(None).unwrap(), rows)
    }

    fn worker_of(checkpoint: Checkpoint, rows: usize) -> Worker<Reference> {
        let spec = checkpoint.spec().clone();
        let loads = Plan::new(&spec).claim(checkpoint.tensors().unwrap()).unwrap();
        let model = Model::load(&mut Reference, &spec, &loads, Weights::Int8, &mut |_, _| ()).unwrap();
        Worker::new(Reference, spec, model, rows, KvKind::Bf16).unwrap()
    }

    fn scoring(tokens: usize) -> (Job, Receiver<Event>, Canceller) {
        let (events, receiver) = channel();
        let canceller = Canceller::default();
        let goal = Goal::Score(Vec::new());
        let job = Job { prompt: vec![313; tokens], goal, events, canceller: canceller.clone() };
        (job, receiver, canceller)
    }

    #[test]
    fn blocks_come_back_and_memory_with_them() {
        let mut worker = worker(8);
        let (sender, jobs) = channel();
        for _ in 0..3 {
            let (job, events, _) = scoring(70);
            sender.send(job).unwrap();
            while events.try_recv().is_err() {
                assert!(worker.receive(&jobs));
                worker.step();
            }
            assert_eq!(worker.blocks.count(), 2, "two blocks of 64 hold 70 positions, each time anew");
            assert!(worker.sequences.is_empty());
        }
        drop(sender);
        assert!(!worker.receive(&jobs));
        assert_eq!(worker.blocks.count(), 0);
    }

    #[test]
    fn states_come_back_and_memory_with_them() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lfm2");
        let mut worker = worker_of(Checkpoint::open(Some(folder.as_ref())).unwrap(), 8);
        let (sender, jobs) = channel();
        for round in 0..3 {
            let wanted: Vec<_> = (0..3)
                .map(|_| {
                    let (mut job, events, _) = scoring(20);
                    job.prompt.fill(7);
                    sender.send(job).unwrap();
                    events
                })
                .collect();
            assert!(worker.receive(&jobs));
            worker.step();
            assert!(worker.sequences.iter().filter_map(|sequence| sequence.state).count() <= 3, "{round}");
            let mut scores: Vec<Vec<f64>> = Vec::new();
            for events in wanted {
                let event = loop {
                    match events.try_recv() {
                        Ok(event) => break event,
                        Err(_) => {
                            assert!(worker.receive(&jobs));
                            worker.step();
                        }
                    }
                };
                let Event::Scored(score) = event else { panic!("a score") };
                scores.push(score);
            }
            assert!(scores.windows(2).all(|pair| pair[0] == pair[1]), "{scores:?}");
            assert!((1..=3).contains(&worker.states.count()), "{} states", worker.states.count());
            assert!(worker.sequences.is_empty());
        }
        drop(sender);
        assert!(!worker.receive(&jobs));
        assert_eq!((worker.states.count(), worker.blocks.count()), (0, 0));
    }

    #[test]
    fn a_request_cancelled_in_the_queue_ends_before_the_others() {
        let mut worker = worker(1); // one sequence at a time
        let (sender, jobs) = channel();
        let (first, first_events, _) = scoring(20);
        let (second, second_events, canceller) = scoring(20);
        sender.send(first).unwrap();
        sender.send(second).unwrap();
        assert!(worker.receive(&jobs));
        assert_eq!((worker.sequences.len(), worker.waiting.len()), (1, 1));
        worker.step();
        canceller.cancel();
        assert!(worker.receive(&jobs));
        assert!(worker.waiting.is_empty());
        assert!(
            matches!(second_events.try_recv(), Ok(Event::Done(end)) if end.reason == FinishReason::Cancelled)
        );
        assert!(first_events.try_recv().is_err(), "the first goes on");
    }

    #[test]
    fn the_missing_memory_is_summed_up() {
        let error = no_room_for_block(640, 10 << 20, 1 << 20, Some(5));
        assert_eq!(error.kind(), ErrorKind::OutOfMemory);
        for part in ["640", "10.0 MiB", "1.0 MiB", "5 bytes"] {
            assert!(error.to_string().contains(part), "{error}");
        }
    }
}
