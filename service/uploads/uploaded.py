"""The table of an upload, with a record of its format, its dialect, the roles of its columns, and notices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from worker.base.problems import notes_in_http

if TYPE_CHECKING:
    from glle_engine.tables.table import Table


def uploaded(table: Table, format_: str, **source: Any) -> Table:
    """Return a table whose `source` has the format, layout and notices of the upload, and the items of `source`."""
    if table.layout is not None:
        source |= table.layout.source()
    if table.notices:
        source["notices"] = notes_in_http(table.notices)
    return replace(table, source={"kind": "upload", "format": format_, **source})
