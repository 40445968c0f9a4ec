"""The items of the papers in the table; `python -m docs.figures.seeds` runs them."""

from docs.figures.methods.tables import between
from docs.figures.seeds import ITEMS, PAGE, is_over_http


def test_the_page_lists_the_items() -> None:
    """In their order; the route or the parameter of each is in the contract."""
    rows = between(PAGE.read_text(encoding="utf-8"), "seeds").splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == [item.name for item in ITEMS]
    assert [item.name for item in ITEMS if item.http and not is_over_http(item)] == []
