"""Media types of Arrow and Parquet, and whether pyarrow is installed, which the extra `arrow` installs."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

ARROW = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"  # also Feather
PARQUET = "application/vnd.apache.parquet"
REMEDY = "pip install 'glle-server[arrow]'"


@cache
def has_arrow() -> bool:
    """Return whether pyarrow is installed."""
    return find_spec("pyarrow") is not None
