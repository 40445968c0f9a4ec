"""The table of runs on the page of equations."""

from docs.figures.seeds import HEAD, ITEMS, PAGE, is_over_http


def test_the_page_has_every_item_as_there() -> None:
    """The rows are the items of the program, each found in the library; its route or parameter is in the contract."""
    rows = [line.strip("| ").split(" | ") for line in PAGE.read_text(encoding="utf-8").split(HEAD)[1].splitlines()]
    shown = {(row[0], row[1]): row[4:] for row in rows if len(row) == 6}
    for item in ITEMS:
        assert shown[item.source, item.name] == ["there", f"`{item.http}`" if item.http else "-"]
        assert not item.http or is_over_http(item)
