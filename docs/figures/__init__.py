"""Programs that make the pictures and measure the numbers of the documentation, such as `docs.figures.posterior`."""

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported
os.environ["MPLBACKEND"] = "agg"
