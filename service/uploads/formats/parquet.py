"""Parquet bodies: check the sizes in the footer and in the pages before anything is unpacked."""

from __future__ import annotations

import mmap
from typing import IO, TYPE_CHECKING, Any

from service.uploads.disk_array import check_inflated
from service.uploads.formats.arrow_columns import BLOCK_VALUES, Columns, check_size, malformed_as, read_columns
from service.uploads.formats.parquet_pages import unpacked_sizes
from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.uploads.column_roles import ColumnRoles
    from service.uploads.limits import Limits
    from worker.storage.datasets import Table

_MOST_PAGE = 2**26  # bytes: a column of a million numbers has 8 MB
_MOST_FOOTER = 2**20  # bytes of a string, and members of a list, in the footer


def read_parquet(file: IO[bytes], limits: Limits, roles: ColumnRoles) -> Table:
    """Return the table of a Parquet file.

    Raises
    ------
    ProblemError
        ``malformed-parquet``, ``inflated-too-large``, ``missing-value`` and ``not-finite`` with row and column, and
        others.

    """
    from pyarrow import parquet  # noqa: PLC0415 # an extra

    remedy = "Write it with pyarrow.parquet.write_table or with pandas' to_parquet."
    with malformed_as("malformed-parquet", "a Parquet file", remedy):
        footer = parquet.ParquetFile(
            file, thrift_string_size_limit=_MOST_FOOTER, thrift_container_size_limit=_MOST_FOOTER
        )
        schema = footer.schema_arrow  # made from the footer at each access
        columns = Columns.of(schema, roles, limits)
        check_size(footer.metadata.num_rows, columns, limits)
        _check_pages(file, footer.metadata, limits)

        names = schema.names

        def batches(columns: Columns) -> Iterator[Any]:
            layout = columns.layout
            texts = [*layout.one_hot, *layout.id_columns, *([] if layout.label is None else [layout.label])]
            once = [names[at] for at in texts]  # a text of many rows is unpacked once
            with parquet.ParquetFile(file, metadata=footer.metadata, read_dictionary=once) as body:
                yield from body.iter_batches(max(1, BLOCK_VALUES // columns.width), use_threads=False)

        return read_columns(file, schema, roles, limits, batches, "parquet")


def _check_pages(file: IO[bytes], metadata: Any, limits: Limits) -> None:
    """Raise a problem if a page is large, because pyarrow unpacks a page as a whole and trusts the footer."""
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as body:
        total = 0
        for size in unpacked_sizes(body, metadata):
            total += size
            check_inflated("The Parquet file", total, limits)
            if size > _MOST_PAGE:
                detail = f"A page of the Parquet file takes {size:,} bytes unpacked; {_MOST_PAGE:,} are allowed."
                raise refuse("page-too-large", 413, detail, "Write smaller pages (data_page_size).", allowed=_MOST_PAGE)
