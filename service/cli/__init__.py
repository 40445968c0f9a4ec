"""Commands of the server: `glle up`, `serve`, `worker`, `keys`, `doctor`, `scrub`, `settings`.

May import every package of `service`. Start with `main`, which adds these commands to the `glle` of the client.
"""

import os

# One BLAS thread for each process: N workers with N threads each were three times slower.
BLAS_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
os.environ.update(dict.fromkeys(BLAS_VARIABLES, "1"))  # before numpy is imported, which reads them only once
