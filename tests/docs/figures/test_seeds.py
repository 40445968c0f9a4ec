"""The items of the papers."""

import pytest

from docs.figures.seeds import ITEMS, Item, is_over_http


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.name)
def test_the_item_is_there(item: Item) -> None:
    """Its figure is at most its bound, and its route or parameter is in the contract."""
    assert item.run() <= item.bound
    assert not item.http or is_over_http(item)
