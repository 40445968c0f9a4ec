"""Names and defaults of parameters in the library, the estimators, the client, the commands and the API."""

from docs.figures import names
from docs.figures.methods.tables import between


def test_a_parameter_has_one_name_and_one_default() -> None:
    """Every interface uses one name and default for a parameter, except for differences listed with a reason."""
    assert set(names.differences()) == set(names.DIFFERENT)


def test_the_page_has_the_table() -> None:
    """The page holds the table that `python -m docs.figures.names` writes."""
    assert between(names.PAGE.read_text(encoding="utf-8"), "names") == names.listing()
