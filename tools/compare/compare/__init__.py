"""Runs whin and its peers on the same random weights and compares what they reach."""
