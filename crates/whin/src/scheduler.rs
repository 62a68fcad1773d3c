//! Which rows run next.

/// How far a sequence is, as far as scheduling cares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Tokens that have yet to run.
    pub remaining: usize,
    /// Whether the logits of each row are wanted, not only those of the last.
    pub wants_every_row: bool,
}

/// The part of a step that one sequence gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Share {
    /// Index of the sequence.
    pub sequence: usize,
    /// How many of its next tokens run.
    pub rows: usize,
}

/// What a step can hold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Rows.
    pub rows: usize,
    /// Rows whose logits are wanted.
    pub wanted: usize,
}

/// Shares one step out: first one row to each sequence that is generating, so that a long prompt never holds up those
/// that are already answering; then prompts in the order of their arrival, as much as fits.
pub(crate) fn schedule(progress: &[Progress], limits: Limits) -> Vec<Share> {
    let mut left = limits;
    let mut shares = Vec::new();
    let is_decode = |p: &Progress| p.remaining == 1;
    let decodes = progress.iter().enumerate().filter(|(_, p)| is_decode(p));
    let prefills = progress.iter().enumerate().filter(|(_, p)| !is_decode(p));
    for (sequence, progress) in decodes.chain(prefills) {
        let mut rows = progress.remaining.min(left.rows);
        if progress.wants_every_row {
            rows = rows.min(left.wanted);
        } else if left.wanted == 0 {
            // The last row of a prompt wants logits that have no room in this step.
            rows = rows.min(progress.remaining - 1);
        }
        if rows > 0 {
            left.rows -= rows;
            left.wanted -= match (progress.wants_every_row, rows == progress.remaining) {
                (true, _) => rows,
                (false, last) => usize::from(last),
            };
            shares.push(Share { sequence, rows });
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(progress: &[(usize, bool)], rows: usize, wanted: usize) -> Vec<(usize, usize)> {
        let progress: Vec<Progress> = progress
            .iter()
            .map(|&(remaining, wants_every_row)| Progress { remaining, wants_every_row })
            .collect();
        let shares = schedule(&progress, Limits { rows, wanted });
        shares.iter().map(|share| (share.sequence, share.rows)).collect()
    }

    #[test]
    fn decodes_go_first_and_prompts_fill_the_rest_in_order() {
        let progress = [(100, false), (1, false), (30, false), (1, false)];
        assert_eq!(rows(&progress, 64, 8), [(1, 1), (3, 1), (0, 62)]);
        assert_eq!(rows(&progress, 200, 8), [(1, 1), (3, 1), (0, 100), (2, 30)]);
    }

    #[test]
    fn wanted_logits_bound_a_step() {
        assert_eq!(rows(&[(100, true), (5, false)], 64, 16), [(0, 16), (1, 4)]);
        assert_eq!(rows(&[(1, false), (1, false), (1, false)], 64, 2), [(0, 1), (1, 1)]);
    }

    #[test]
    fn something_always_runs() {
        for remaining in [1, 2, 63, 64, 65, 1000] {
            for every in [false, true] {
                assert_eq!(rows(&[(remaining, every)], 64, 64), [(0, remaining.min(64))]);
            }
        }
    }
}
