"""Where and by what a result was computed."""

from __future__ import annotations

import platform
import socket

import numpy as np
import scipy  # type: ignore[import-untyped, unused-ignore] # typed where its stubs are installed

import glle_engine
from worker.base.numerics import own_numbers


def provenance() -> dict[str, str]:
    """Return the versions and the machine of this process."""
    return {
        "engine": glle_engine.__version__,
        "numbers": own_numbers(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "host": socket.gethostname(),
    }
