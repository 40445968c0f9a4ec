"""Commands of the server: `glle up`, `serve`, `worker`, `keys`, `doctor`, `scrub`, `settings`.

May import every package of `service`. Start with `main`.
"""

import os

# One BLAS thread a process: N workers with N threads each ran three times slower.
BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(BLAS_VARIABLES, "1"))  # before any import of numpy, which reads them once
