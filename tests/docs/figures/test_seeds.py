"""The items of the papers."""

import pytest

from docs.figures.methods.tables import between
from docs.figures.seeds import ITEMS, PAGE, Item, is_over_http


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_item_is_there(item: Item) -> None:
    """Its figure is at most its bound, and its route or parameter is in the contract."""
    assert item.run() <= item.bound
    assert not item.http or is_over_http(item)


def test_the_page_lists_the_items() -> None:
    """In their order, each with its route or parameter."""
    rows = between(PAGE.read_text(encoding="utf-8"), "seeds").splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == [item.name for item in ITEMS]
