"""Benchmarks of the engine: fits, draws, memory, threads, stages, peers."""
