"""Add to an uploaded table what its data set will show about the upload: format, columns, and notices for the user."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from worker.base.problems import notes_in_http

if TYPE_CHECKING:
    from glle_engine.tables.table import Table


def uploaded(table: Table, format_: str, **source: Any) -> Table:
    """Return the table with a new `source`: format, columns and notices of the upload, and the keyword arguments."""
    if table.layout is not None:
        source |= table.layout.source()
    if table.notices:
        source["notices"] = notes_in_http(table.notices)
    return replace(table, source={"kind": "upload", "format": format_, **source})
