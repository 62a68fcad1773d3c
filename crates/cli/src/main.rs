//! The command `whin`.

fn main() {}
