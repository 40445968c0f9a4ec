"""Rows of tables in answers."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx


def rows(answer: httpx.Response) -> list[dict[str, str]]:
    """Return the rows of a CSV response."""
    return list(csv.DictReader(io.StringIO(answer.text, newline="")))
