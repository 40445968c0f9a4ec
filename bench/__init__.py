"""Benchmarks of `make bench`, which measures the project and other libraries in turn, and compares goals."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported
