"""The table of an upload, with a record of its format, its dialect, the roles of its columns, and notices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.records.dataset import Table

if TYPE_CHECKING:
    from glle_engine.tables.table import TableArrays


def uploaded(table: TableArrays, format_: str, **source: Any) -> Table:
    """Return the table of an upload."""
    if table.layout is not None:
        source |= table.layout.source()
    if table.notices:
        source["notices"] = list(table.notices)
    return Table(
        values=table.values,
        names=table.names,
        labels=table.labels,
        colors=table.colors,
        coordinates=table.coordinates,
        ids=table.ids,
        source={"kind": "upload", "format": format_, **source},
    )
