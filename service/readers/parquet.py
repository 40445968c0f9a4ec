"""Parquet bodies: what the footer announces is checked before anything is unpacked."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

from service.readers.appended import too_large
from service.readers.columns import BLOCK_VALUES, Columns, check_size, table_of
from worker.problems import ProblemError, refuse

if TYPE_CHECKING:
    from service.readers.apart import Apart
    from service.readers.shape import Limits
    from worker.datasets import Table

_MOST_FOOTER = 2**20  # bytes of a string, and members of a list, in the footer


def read_parquet(file: IO[bytes], limits: Limits, apart: Apart) -> Table:
    """Return the table of a Parquet file.

    Raises
    ------
    ProblemError
        ``malformed-parquet``, ``inflated-too-large``, ``missing-value`` and ``not-finite`` with row and column, and
        others.

    """
    import pyarrow as pa  # noqa: PLC0415 # an extra
    from pyarrow import parquet  # noqa: PLC0415 # likewise

    try:
        with parquet.ParquetFile(
            file, thrift_string_size_limit=_MOST_FOOTER, thrift_container_size_limit=_MOST_FOOTER
        ) as body:
            columns = Columns.of(body.schema_arrow, apart, limits)
            check_size(body.metadata.num_rows, columns, limits)
            groups = [body.metadata.row_group(number) for number in range(body.metadata.num_row_groups)]
            if (size := sum(group.total_byte_size for group in groups)) > limits.inflated:
                raise too_large("The Parquet file", size, limits.inflated)
            rows = max(1, BLOCK_VALUES // len(columns.names))
            return table_of(file, columns, body.iter_batches(rows, use_threads=False), limits, source="parquet")
    except (pa.ArrowException, ValueError) as error:
        raise _malformed(str(error)) from None
    except OSError as error:
        if error.errno is not None:  # of the disk, and not of the file
            raise
        raise _malformed(str(error)) from None


def _malformed(reason: str) -> ProblemError:
    return refuse(
        "malformed-parquet",
        422,
        f"The body is no Parquet file: {reason[:200]}.",
        "Send what pyarrow.parquet.write_table or pandas' to_parquet write.",
    )
