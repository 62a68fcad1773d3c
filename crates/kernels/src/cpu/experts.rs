//! A mixture of experts: which of them work on which rows, and what they find. The rows of each expert are multiplied
//! together, so that its weights are read once a step, and no others than those of chosen experts.

use super::buffer::Parts;
use super::input::Input;
use super::isa::{Isa, PANEL};
use super::product::{Group, Sink, multiply, multiply_groups};
use super::rows::{self, Rows};
use super::{Cpu, each_row, normalize_row, of_rows};
use crate::{Experts, Gating, Result, Shares, Step};

/// Memory for one mixture at a time.
///
/// A row that goes to `top_k` experts has as many places in their products. Places of one expert stand together, in the
/// order of experts, and begin with a block of rows where products take blocks; between them some may be left over.
pub struct Scratch {
    choices: Vec<Choice>, // (rows, top_k), by falling scores
    groups: Vec<Group>,   // of each chosen expert its places and the first output of its gates
    sources: Vec<u32>,    // (places,), the row that is there, or NONE
    starts: Vec<u32>,     // (experts,), the next free place of each
    hidden: Rows,         // (places, inner)
}

/// An expert that works on a row.
#[derive(Clone, Copy, Default)]
struct Choice {
    expert: u32,
    place: u32,
    /// Its score at first, then its share.
    share: f32,
}

/// A place that no row has.
const NONE: u32 = u32::MAX;

impl Scratch {
    pub fn new() -> Result<Self> {
        let (choices, groups, sources, starts) = Default::default();
        Ok(Self { choices, groups, sources, starts, hidden: Rows::new(0, 0)? })
    }

    /// Gives each choice its place, those of an expert from a multiple of `block` on. Each expert has `outputs` outputs.
    /// Returns the most places of one expert.
    fn group(
        &mut self,
        top_k: usize,
        (experts, outputs): (usize, usize),
        block: impl Fn(usize) -> usize,
    ) -> usize {
        self.starts.clear();
        self.starts.resize(experts, 0);
        self.choices.iter().for_each(|choice| self.starts[choice.expert as usize] += 1);
        let most = self.starts.iter().max().map_or(0, |most| *most as usize);
        let (block, mut end) = (block(most), 0_usize);
        self.groups.clear();
        for (expert, count) in self.starts.iter_mut().enumerate().filter(|(_, count)| **count > 0) {
            let start = end.next_multiple_of(block);
            end = start + *count as usize;
            self.groups.push(Group { rows: start..end, first: expert * outputs });
            *count = start as u32;
        }
        self.sources.clear();
        self.sources.resize(end, NONE);
        for (index, choice) in self.choices.iter_mut().enumerate() {
            let next = &mut self.starts[choice.expert as usize];
            choice.place = *next;
            self.sources[*next as usize] = (index / top_k) as u32;
            *next += 1;
        }
        most
    }

    /// The same places for products of which each expert has `outputs` outputs rather than `before`.
    fn regroup(&mut self, before: usize, outputs: usize) {
        self.groups.iter_mut().for_each(|group| group.first = group.first / before * outputs);
    }
}

impl<I: Isa> Cpu<I> {
    pub(super) fn try_experts_add(
        &mut self,
        args: &Experts<'_, Self>,
        step: &Step,
        x: &mut Rows,
    ) -> Result<()> {
        let (count, inner, width) = (args.experts, args.down.inputs, x.width());
        assert!((1..=count).contains(&args.top_k) && args.router.outputs == count, "number of experts");
        assert_eq!(args.gate_up.outputs, count * 2 * inner, "outputs of the experts' gate and up");
        assert_eq!(args.down.outputs, count * width, "outputs of the experts' down");
        self.choose(args, step, x)?;
        let (gates, down) = (args.gate_up.kind(), args.down.kind());
        let block = |most| Input::block::<I>(gates, most, width).max(Input::block::<I>(down, most, inner));
        let most = self.experts.group(args.top_k, (count, 2 * inner), block);
        self.hidden(args, most, x)?;
        self.experts.regroup(2 * inner, width);
        let (isa, places, Scratch { sources, hidden, groups, .. }) =
            (self.isa, self.experts.sources.len(), &self.experts);
        self.input.prepare_groups(isa, &mut self.threads, down, (places, most, inner), &|place, out| {
            match sources[place] {
                NONE => out.fill(0.0),
                _ => out.copy_from_slice(hidden.row(place)),
            }
        })?;
        self.output.reshape(places, width)?;
        let sink = (Sink::Store(args.down_bias.map(Vec::as_slice)), &groups[..]);
        multiply_groups(isa, &mut self.threads, (args.down, width), &self.input, sink, &mut self.output);
        self.add_up(args, step, x);
        Ok(())
    }

    /// Finds the experts of each row.
    fn choose(&mut self, args: &Experts<'_, Self>, step: &Step, x: &Rows) -> Result<()> {
        let (rows, top_k) = (step.rows(), args.top_k);
        self.normalize(args.router, args.norm.as_ref(), x, (rows, &|row| row))?;
        self.output.reshape(rows, args.experts)?;
        let sink = Sink::Store(args.router_bias.map(Vec::as_slice));
        multiply(self.isa, &mut self.threads, args.router, &self.input, sink, &mut self.output);
        self.experts.choices.resize(rows * top_k, Choice::default());
        let (scores, choices) = (&self.output, Parts::new(&mut self.experts.choices));
        each_row(&mut self.threads, rows, &|row| {
            // SAFETY: each row belongs to one task.
            choose(scores.row(row), args.shares, unsafe { choices.part(row * top_k..(row + 1) * top_k) });
        });
        Ok(())
    }

    /// What stands between the products of the experts, `most` rows of one at most.
    fn hidden(&mut self, args: &Experts<'_, Self>, most: usize, x: &Rows) -> Result<()> {
        let (isa, norm, inner) = (self.isa, args.norm.as_ref().map(of_rows), args.down.inputs);
        let Scratch { sources, groups, hidden, .. } = &mut self.experts;
        let (places, kind) = (sources.len(), args.gate_up.kind());
        self.input.prepare_groups(
            isa,
            &mut self.threads,
            kind,
            (places, most, x.width()),
            &|place, out| match sources[place] {
                NONE => out.fill(0.0),
                row => normalize_row(isa, norm, x.row(row as usize), out),
            },
        )?;
        hidden.reshape(places, inner)?;
        let weight = (args.gate_up, 2 * inner);
        if let Gating::Plain(activation) = args.gating
            && inner.is_multiple_of(PANEL)
            && args.gate_up_bias.is_none()
        {
            let sink = (Sink::Gate(activation), &groups[..]);
            multiply_groups(isa, &mut self.threads, weight, &self.input, sink, hidden);
            return Ok(());
        }
        self.output.reshape(places, 2 * inner)?;
        let sink = (Sink::Store(args.gate_up_bias.map(Vec::as_slice)), &groups[..]);
        multiply_groups(isa, &mut self.threads, weight, &self.input, sink, &mut self.output);
        let (out, hidden) = (&self.output, Parts::new(hidden.values_mut()));
        each_row(&mut self.threads, places, &|place| {
            if sources[place] != NONE {
                // SAFETY: each place belongs to one task.
                let hidden = unsafe { hidden.part(place * inner..(place + 1) * inner) };
                rows::gate_as(isa, args.gating, out.row(place).split_at(inner), hidden);
            }
        });
        Ok(())
    }

    /// Adds what the experts have found to their rows, one after the other in the order of their choices.
    fn add_up(&mut self, args: &Experts<'_, Self>, step: &Step, x: &mut Rows) {
        let (isa, top_k, width) = (self.isa, args.top_k, x.width());
        let choices = &self.experts.choices;
        let (found, x) = (Parts::new(self.output.values_mut()), Parts::new(x.values_mut()));
        each_row(&mut self.threads, step.rows(), &|row| {
            let of_place = |choice: &Choice| {
                let place = choice.place as usize;
                // SAFETY: each row belongs to one task, and each place to one row.
                unsafe { found.part(place * width..(place + 1) * width) }
            };
            // SAFETY: each row belongs to one task.
            let x = unsafe { x.part(row * width..(row + 1) * width) };
            let [first, others @ ..] = &choices[row * top_k..(row + 1) * top_k] else { return };
            let sum = of_place(first);
            rows::scale(isa, sum, first.share);
            others.iter().for_each(|choice| rows::add_scaled(isa, of_place(choice), choice.share, sum));
            rows::add_scaled(isa, sum, args.scale, x);
        });
    }
}

/// Fills `chosen` with the experts of the highest scores, the lowest of equals, by falling scores, and their shares.
fn choose(scores: &[f32], shares: Shares, chosen: &mut [Choice]) {
    let beats = |a: f32, b: f32| a > b || (a.is_nan() && !b.is_nan());
    let mut count = 0;
    for (expert, &score) in scores.iter().enumerate() {
        let place =
            chosen[..count].iter().rposition(|other| !beats(score, other.share)).map_or(0, |at| at + 1);
        if place == chosen.len() {
            continue;
        }
        count = chosen.len().min(count + 1);
        chosen.copy_within(place..count - 1, place + 1);
        chosen[place] = Choice { expert: expert as u32, place: 0, share: score };
    }
    let max = chosen[0].share;
    let power = |score: f32| (score - max).exp();
    let sum: f64 = match shares {
        Shares::OfAll => scores.iter().map(|score| f64::from(power(*score))).sum(),
        Shares::OfChosen => chosen.iter().map(|choice| f64::from(power(choice.share))).sum(),
    };
    for choice in chosen {
        choice.share = (f64::from(power(choice.share)) / sum) as f32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(scores: &[f32], top_k: usize, shares: Shares) -> Vec<(u32, f32)> {
        let mut chosen = vec![Choice::default(); top_k];
        choose(scores, shares, &mut chosen);
        chosen.iter().map(|choice| (choice.expert, choice.share)).collect()
    }

    #[test]
    fn the_lowest_of_equals_comes_first() {
        let of = |scores: &[f32], top_k| -> Vec<u32> {
            chosen(scores, top_k, Shares::OfAll).into_iter().map(|(expert, _)| expert).collect()
        };
        let (nan, infinity) = (f32::NAN, f32::INFINITY);
        assert_eq!(of(&[1.0, 3.0, 3.0, 2.0, 3.0], 2), [1, 2]);
        assert_eq!(of(&[0.0, -0.0, 0.0], 3), [0, 1, 2]);
        assert_eq!(of(&[5.0, 4.0, 6.0, 1.0, 7.0], 3), [4, 2, 0]);
        assert_eq!(of(&[1.0, nan, infinity, nan], 3), [1, 3, 2]);
        assert_eq!(of(&[-infinity; 4], 2), [0, 1]);
        assert_eq!(of(&[nan; 3], 1), [0]);
    }

    #[test]
    fn shares_are_softmaxes() {
        let scores = [0.0, 2.0_f32.ln(), 5.0_f32.ln()];
        let near = |found: Vec<(u32, f32)>, right: &[(u32, f32)]| {
            let fits = |(a, b): (&(u32, f32), &(u32, f32))| a.0 == b.0 && (a.1 - b.1).abs() < 1e-6;
            assert!(found.len() == right.len() && found.iter().zip(right).all(fits), "{found:?}");
        };
        near(chosen(&scores, 2, Shares::OfAll), &[(2, 0.625), (1, 0.25)]);
        near(chosen(&scores, 2, Shares::OfChosen), &[(2, 5.0 / 7.0), (1, 2.0 / 7.0)]);
        assert!(chosen(&[f32::INFINITY, 0.0], 2, Shares::OfAll)[0].1.is_nan());
    }

    #[test]
    fn places_of_an_expert_stand_together_from_the_first_of_a_block_on() {
        let mut scratch = Scratch::new().unwrap();
        let choice = |expert| Choice { expert, ..Choice::default() };
        scratch.choices = [3, 0, 0, 3, 3, 7].map(choice).to_vec();
        let most = scratch.group(2, (8, 10), |most| if most == 3 { 4 } else { 1 });
        let groups: Vec<_> = scratch.groups.iter().map(|group| (group.rows.clone(), group.first)).collect();
        assert_eq!((most, groups), (3, vec![(0..2, 0), (4..7, 30), (8..9, 70)]));
        assert_eq!(scratch.sources, [0, 1, NONE, NONE, 0, 1, 2, NONE, 2]);
        let places: Vec<u32> = scratch.choices.iter().map(|choice| choice.place).collect();
        assert_eq!(places, [4, 0, 1, 5, 6, 8]);
        scratch.regroup(10, 6);
        assert_eq!(scratch.groups[2].first, 42);
    }
}
