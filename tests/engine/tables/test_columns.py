"""Columns of Python objects."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest

from glle_engine.tables.columns import Column, objects_column
from glle_engine.tables.frames import series_column


def test_numbers_that_float64_cannot_hold_are_texts() -> None:
    """Whole numbers have all their digits; other numbers are written as Python writes them; gaps stay gaps."""
    values = [Decimal("1E+20"), 2**70, True, None, Fraction(1, 3), 0.5]
    column = objects_column(values, "object")
    assert column.kind == "text"
    assert column.missing.tolist() == [False, False, False, True, False, False]
    texts = [text for text, gone in zip(column.values.tolist(), column.missing, strict=True) if not gone]
    assert texts == ["1" + 20 * "0", str(2**70), "1", "1/3", "0.5"]


def test_a_block_of_rows_has_the_cells_and_faults_of_its_rows() -> None:
    """Rows are counted from the block's first one; a column that does not come from text has no cells."""
    values, missing = np.array([1.0, np.nan, 3.0, 4.0]), np.array([False, True, False, False])
    column = Column("number", "text", values, missing, cells=["1", "?", "3", "4"], faults={1: "no-number"})
    block = column.rows(1, 3)
    assert (block.cells, block.faults, block.missing.tolist()) == (["?", "3"], {0: "no-number"}, [True, False])
    assert Column("number", "float64", values, missing).rows(1, 3).cells is None


def test_an_array_of_pyarrow_is_read_as_a_chunked_one() -> None:
    """A record batch has arrays, a table has chunked arrays; both may be dictionaries."""
    pa = pytest.importorskip("pyarrow")
    for array in (pa.array([1.5, None, 2.5]), pa.array(["a", "b", "a"]).dictionary_encode()):
        one, other = series_column(array), series_column(pa.chunked_array([array]))
        assert (one.kind, one.type, one.missing.tolist()) == (other.kind, other.type, other.missing.tolist())
        assert one.values[one.missing == 0].tolist() == other.values[other.missing == 0].tolist()
