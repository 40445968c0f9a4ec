"""The table of the papers' items that `python -m docs.figures.seeds` runs in the library and on a service."""

from docs.figures.methods.tables import between
from docs.figures.seeds import ITEMS, PAGE, over_http
from glle import Client
from tests.system.conftest import Up


def test_the_page_lists_the_items() -> None:
    """The page lists the items in their order, and none has failed."""
    rows = between(PAGE.read_text(encoding="utf-8"), "seeds").splitlines()[2:]
    assert [row.split(" | ")[1] for row in rows] == [item.name for item in ITEMS]
    assert not any("**no**" in row for row in rows)


def test_a_service_has_the_arrays_of_the_library(up: Up) -> None:
    """Items by a route, by a parameter of a posterior and by one of a method have the library's arrays."""
    with Client(up.url, progress=False) as client:
        for http in ("/v1/posteriors/{id}/draws/{index}/weights", "glle: mean", "lle: radius"):
            assert over_http(http, client) <= 1e-6
