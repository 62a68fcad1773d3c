//! Writes a checkpoint with random weights in the shape of a known model.

fn main() {}
