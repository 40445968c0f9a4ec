"""Machine, timing, tables and pictures of the benchmarks."""
