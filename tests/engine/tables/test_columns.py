"""Columns of Python objects."""

from decimal import Decimal
from fractions import Fraction

from glle_engine.tables.columns import objects_column


def test_numbers_that_float64_cannot_hold_are_texts() -> None:
    """Whole numbers have all their digits; other numbers are written as Python writes them; gaps stay gaps."""
    values = [Decimal("1E+20"), 2**70, True, None, Fraction(1, 3), 0.5]
    column = objects_column(values, "object")
    assert column.kind == "text"
    assert column.missing.tolist() == [False, False, False, True, False, False]
    texts = [text for text, gone in zip(column.values.tolist(), column.missing, strict=True) if not gone]
    assert texts == ["1" + 20 * "0", str(2**70), "1", "1/3", "0.5"]
