//! What is right: every stage in plain loops.
