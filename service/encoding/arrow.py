"""Arrow and Parquet are an extra: whether pyarrow is there, and what to do when it is not."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

ARROW = "application/vnd.apache.arrow.stream"
PARQUET = "application/vnd.apache.parquet"
REMEDY = "pip install 'glle-server[arrow]'"


@cache
def has_arrow() -> bool:
    """Say whether Arrow streams and Parquet can be written and read."""
    return find_spec("pyarrow") is not None
