"""Benchmarks of `make bench`: each figure beside its goal, measured side by side in one run."""
