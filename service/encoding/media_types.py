"""Media types: the parser of a Content-Type, and the types of Arrow and Parquet, which need the extra `arrow`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from typing import Self

ARROW = "application/vnd.apache.arrow.stream"
ARROW_FILE = "application/vnd.apache.arrow.file"  # Feather files have this format, too
PARQUET = "application/vnd.apache.parquet"
ARROW_REMEDY = "pip install 'glle-server[arrow]'"
_PARAMETER = re.compile(r';\s*([^\s=;"]+)\s*=\s*("(?:[^"\\]|\\.)*"|[^;]*)')
_ESCAPED = re.compile(r"\\(.)")


@dataclass(frozen=True)
class MediaType:
    """Media type such as ``text/csv``, and its parameters by name; media type and names are in lower case."""

    kind: str = ""
    parameters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, content_type: str) -> Self:
        """Return the media type of a Content-Type; of repeated parameters the first counts (RFC 9110, 8.3)."""
        kind, separator, rest = content_type.partition(";")
        parameters: dict[str, str] = {}
        for name, value in _PARAMETER.findall(separator + rest):
            plain = _ESCAPED.sub(r"\1", value[1:-1]) if value[:1] == '"' and len(value) > 1 else value.strip()
            parameters.setdefault(name.lower(), plain)
        return cls(kind.strip().lower(), parameters)


@cache
def has_arrow() -> bool:
    """Return whether pyarrow is installed."""
    return find_spec("pyarrow") is not None
