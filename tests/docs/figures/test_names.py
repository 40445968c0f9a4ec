"""Names and defaults of parameters in the library, the estimators, the client, the commands and the API."""

from docs.figures import names
from docs.figures.methods.tables import between


def test_a_parameter_has_one_name_and_one_default() -> None:
    """In all surfaces; what differs is listed with its reason, and nothing else is listed."""
    assert set(names.differences()) == set(names.DIFFERENT)


def test_the_page_has_the_table() -> None:
    """As `python -m docs.figures.names` writes it."""
    assert between(names.PAGE.read_text(encoding="utf-8"), "names") == names.listing()
